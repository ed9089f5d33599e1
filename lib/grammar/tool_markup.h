// SPDX-License-Identifier: Apache-2.0
// Turns that call tools in the family's markup (DSML), as languages: the names of tools that there
// are, parameters by their schemas, the string attribute by the type of the value.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/grammar/expression_pool.h"
#include "lib/io/json.h"

namespace dsv4::grammar {

enum class ToolChoice {
  kNone,      // text without calls
  kAuto,      // text, which calls may end
  kRequired,  // calls
};

struct ToolOptions {
  ToolChoice choice = ToolChoice::kAuto;
  std::string name{};  // the only tool that may be called; empty: any
  bool strict = true;  // off: parameters are not held to the schemas, of any tool
};

struct ToolLanguage {
  Expr content;    // after the reasoning
  Expr reasoning;  // without what parsers of texts take for its end
};

// `tools` is an array of functions, or of objects with the key "function". A function is strict but
// for "strict": false. InvalidArgument and Unsupported name the place, as in
// "tools#/0/function/parameters/...".
absl::StatusOr<ToolLanguage> ToolCallLanguage(ExpressionPool* pool, const JsonValue& tools,
                                              const ToolOptions& options);

}  // namespace dsv4::grammar
