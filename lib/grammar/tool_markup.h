// SPDX-License-Identifier: Apache-2.0
// Languages of turns that call tools in the family's markup (DSML): the names of the given tools,
// parameters that match their schemas, and the string attribute by the type of the value.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/grammar/enforcement.h"
#include "lib/grammar/expression_pool.h"
#include "lib/io/json.h"

namespace dsv4::grammar {

enum class ToolChoice {
  kNone,      // text without calls
  kAuto,      // text, optionally followed by calls
  kRequired,  // calls
};

struct ToolOptions {
  ToolChoice choice = ToolChoice::kAuto;
  std::string name{};  // the only tool that may be called; empty: any
  bool strict = true;  // false: what schemas cannot enforce is left out
  bool quick = false;  // Unsupported if compiling takes more than kQuickWork
};

struct ToolLanguage {
  Expr content;    // after the reasoning
  Expr reasoning;  // without texts that a parser takes for its end
};

// `tools`: an array of functions, or of objects with the key "function". A function's "strict"
// overrides that of the options. `answer`: the turns without calls; without it, any text.
// `enforcement`: receives what is left out. Errors: InvalidArgument and Unsupported, naming the
// place, as in "tools#/0/function/parameters/...".
absl::StatusOr<ToolLanguage> ToolCallLanguage(ExpressionPool* pool, const JsonValue& tools,
                                              const ToolOptions& options,
                                              std::optional<Expr> answer, Enforcement* enforcement);

}  // namespace dsv4::grammar
