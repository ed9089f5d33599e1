// SPDX-License-Identifier: Apache-2.0
// Whether an answer is what a case of gates.json expects.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/io/json.h"
#include "lib/text/streaming_parser.h"

namespace dsv4 {

// An answer as its events tell it.
class GateAnswer {
 public:
  void Add(const ParserEvent& event);

  // `check` is "exact" (the content is the expected text), "json" (it parses to what the expected
  // text parses to) or "tool" (the calls are the expected list of {name, arguments}). No answer
  // passes that does not end by itself, or with anything malformed.
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
