// SPDX-License-Identifier: Apache-2.0
// A grammar for the output of a model (Grammar), and the position of an output in it (Matcher).
// Threads may share a grammar. Its caches of states and masks are guarded inside and bounded
// (kMaxPoolBytes, kMaxMaskBytes).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/mutex.h"
#include "lib/grammar/expression_pool.h"
#include "lib/grammar/mask_builder.h"
#include "lib/grammar/token_trie.h"
#include "lib/grammar/tool_markup.h"

namespace dsv4::grammar {

// The tokens of a vocabulary for grammars.
struct Vocabulary {
  explicit Vocabulary(std::vector<std::string> token_bytes)
      : bytes(std::move(token_bytes)), trie(bytes) {}
  const std::vector<std::string> bytes;  // by id; empty: never chosen under a grammar
  const TokenTrie trie;
  int32_t markup_token = -1;  // the marker of tool calls; allowed only in grammars of tools
};

class Grammar {
 public:
  // Each function compiles one kind of grammar. All grammars of a tokenizer share its `vocabulary`.
  static absl::StatusOr<std::shared_ptr<const Grammar>> OfSchema(
      absl::string_view json, std::shared_ptr<const Vocabulary> vocabulary);
  // The same without what cannot be enforced.
  static absl::StatusOr<std::shared_ptr<const Grammar>> OfLenientSchema(
      absl::string_view json, std::shared_ptr<const Vocabulary> vocabulary);
  static absl::StatusOr<std::shared_ptr<const Grammar>> OfRegex(
      absl::string_view pattern, std::shared_ptr<const Vocabulary> vocabulary);
  static absl::StatusOr<std::shared_ptr<const Grammar>> OfEbnf(
      absl::string_view text, std::shared_ptr<const Vocabulary> vocabulary);
  static absl::StatusOr<std::shared_ptr<const Grammar>> OfTools(
      absl::string_view json, const ToolOptions& options,
      std::shared_ptr<const Vocabulary> vocabulary);

  // Turns that are JSON of the schema or call tools.
  static absl::StatusOr<std::shared_ptr<const Grammar>> OfToolsOrSchema(
      absl::string_view tools, absl::string_view schema, const ToolOptions& options,
      std::shared_ptr<const Vocabulary> vocabulary);

  // What the grammar does not enforce of its schemas.
  const std::vector<NotEnforced>& not_enforced() const { return not_enforced_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  // The grammar's source, in a form that Restore reads.
  const std::string& source() const { return source_; }
  // Compiles a source() again. Errors: Corrupt if the text is not a source; those of the functions
  // above.
  static absl::StatusOr<std::shared_ptr<const Grammar>> Restore(
      absl::string_view source, std::shared_ptr<const Vocabulary> vocabulary);

 private:
  friend class Matcher;
  // Cached states and masks. When its pool is exhausted, a new one replaces it.
  struct Memory {
    Memory(const ExpressionPool& base, const Vocabulary& vocabulary, bool markup)
        : pool(base), masks(&pool, vocabulary.trie, markup ? -1 : vocabulary.markup_token) {}
    Mutex mutex;
    ExpressionPool pool ABSL_GUARDED_BY(mutex);
    MaskBuilder masks ABSL_GUARDED_BY(mutex);
  };
  Grammar() = default;
  using Compiled = absl::StatusOr<std::shared_ptr<Grammar>>;
  static absl::StatusOr<std::shared_ptr<const Grammar>> CompileSchema(
      absl::string_view json, bool strict, std::shared_ptr<const Vocabulary> vocabulary);
  static Compiled Create(ExpressionPool pool, Expr content, Expr reasoning, bool markup,
                         std::string source, std::shared_ptr<const Vocabulary> vocabulary);
  std::shared_ptr<Memory> CurrentMemory() const;

  ExpressionPool base_;  // compiled
  Expr content_ = kFail;
  Expr reasoning_ = kFail;  // kFail: reasoning is free
  bool markup_ = false;
  std::vector<NotEnforced> not_enforced_;
  std::string source_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<Memory> memory_ ABSL_GUARDED_BY(mutex_);
};

// The position of one output in its grammar. Push, Pop and copies are cheap. One thread at a time.
class Matcher {
 public:
  // The part of a turn with which an output begins.
  enum class Start { kContent, kReasoning };

  // Starts an output. A null grammar allows everything.
  void Reset(std::shared_ptr<const Grammar> grammar, Start start);
  bool active() const { return grammar_ != nullptr; }
  const std::shared_ptr<const Grammar>& grammar() const { return grammar_; }

  // Adds a token to the output. `bytes`: its text, empty for a token that ends a turn. A token that
  // the grammar forbids is added too; then no token may follow. Throws std::bad_alloc if memory
  // runs out, and changes nothing.
  void Push(absl::string_view bytes);
  // As Push, for the token that ends the reasoning.
  void PushThinkEnd(absl::string_view bytes);
  // Undoes the last push. REQUIRES: there is one.
  void Pop();

  // Whether the grammar allows any token: in unconstrained reasoning.
  bool free() const;
  // Whether the output may end here: never in the reasoning.
  absl::StatusOr<bool> MayEnd();
  // Whether reasoning may end here.
  absl::StatusOr<bool> MayEndThinking();
  // The tokens with bytes that may follow; none if the output does not match. Null if free().
  // Errors: Unsupported if a mask or an output exceeds the limits. `work`: of the mask, about 50 ns
  // each.
  absl::StatusOr<std::shared_ptr<const MaskBits>> Mask(int64_t work = kMaxWork);
  // Whether Mask() would find its result in the grammar's memory, without waiting for a thread that
  // uses it.
  bool MaskIsKnown() const;

 private:
  struct Step {
    Expr state;
    uint32_t text_end;  // of text_
    bool content;
  };
  Expr state() const { return steps_.back().state; }
  void Add(absl::string_view bytes, Expr state, bool content);
  absl::StatusOr<bool> Accepts();
  // Computes the states of all steps again, in memory_.
  void Replay() ABSL_EXCLUSIVE_LOCKS_REQUIRED(memory_->mutex);
  Expr Advance(Expr state, absl::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(memory_->mutex);
  // Calls fn() under the memory's lock. If it exhausts the pool, calls it once more with a new one.
  template <class Fn>
  absl::Status WithMemory(Fn&& fn, int64_t work = kMaxWork);

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<Grammar::Memory> memory_;
  bool stale_ = false;       // the states of steps_ are those of another memory
  std::vector<Step> steps_;  // the first one before any token
  std::string text_;
};

}  // namespace dsv4::grammar
