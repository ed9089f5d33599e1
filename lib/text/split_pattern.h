// SPDX-License-Identifier: Apache-2.0
// One pattern of a pre-tokenizer: cuts a text into the pattern's matches and the texts between
// them. Patterns are in Oniguruma's Ruby syntax, as in the HF tokenizers library, and are
// translated to PCRE2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Forward declarations of PCRE2's types, so that this header does not include PCRE2's.
struct pcre2_real_code_8;
struct pcre2_real_match_data_8;
struct pcre2_real_match_context_8;

namespace dsv4 {

// Working memory of one thread, for any number of patterns.
class MatchState {
 public:
  MatchState();

 private:
  friend class SplitPattern;
  struct Deleter {
    void operator()(pcre2_real_match_data_8* data) const;
    void operator()(pcre2_real_match_context_8* context) const;
  };
  // Null when memory ran out.
  std::unique_ptr<pcre2_real_match_data_8, Deleter> data_;
  std::unique_ptr<pcre2_real_match_context_8, Deleter> context_;
};

// Immutable: may be used from several threads at once, each with a MatchState of its own.
class SplitPattern {
 public:
  enum class Engine {
    kJit,          // machine code, or the interpreter if the system forbids it
    kInterpreter,  // the same pieces, slower
  };

  // Unsupported, naming the construct, for a regex beyond: literals, classes, \p{X} and \P{X} of
  // the categories L M N P S, \s, \S, \r, \n, \t, \f, escaped punctuation, groups, look-ahead,
  // alternatives and quantifiers. Corrupt for a malformed one.
  static absl::StatusOr<SplitPattern> FromRegex(absl::string_view regex,
                                                Engine engine = Engine::kJit);
  // A pattern that matches only `literal`, which must not be empty.
  static absl::StatusOr<SplitPattern> FromLiteral(absl::string_view literal);

  // Calls `emit` for the pieces of `text` in order. No piece is empty; joined, they are the text.
  // `emit` may use `state`; its error ends the walk. Errors: Unsupported if the pattern backtracks
  // too much.
  // REQUIRES: `text` is UTF-8.
  absl::Status ForEachPiece(absl::string_view text, MatchState& state,
                            absl::FunctionRef<absl::Status(absl::string_view)> emit) const;

 private:
  struct Deleter {
    void operator()(pcre2_real_code_8* code) const;
  };
  static absl::StatusOr<SplitPattern> Compile(absl::string_view source, absl::string_view pattern,
                                              uint32_t options, Engine engine);

  std::string source_;  // as in the tokenizer's file, for messages
  std::unique_ptr<pcre2_real_code_8, Deleter> code_;
};

}  // namespace dsv4
