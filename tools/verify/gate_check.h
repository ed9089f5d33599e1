// SPDX-License-Identifier: Apache-2.0
// Checks whether an answer passes a case of gates.json.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/io/json.h"
#include "lib/text/streaming_parser.h"

namespace dsv4 {

// An answer, built from its events.
class GateAnswer {
 public:
  void Add(const ParserEvent& event);

  // `check` is "exact" (the content equals the expected text), "json" (both parse to the same
  // value) or "tool" (the calls equal the expected list of {name, arguments}). An answer that does
  // not end by itself, or has a malformed part, does not pass.
  bool Passes(absl::string_view check, const JsonValue& expected) const;

 private:
  struct Call {
    std::string name, arguments;
    bool whole = false;
  };
  bool CallsEqual(const JsonValue& expected) const;

  std::string content_;
  std::vector<Call> calls_;
  bool stopped_ = false;
  bool malformed_ = false;
};

}  // namespace dsv4
