// SPDX-License-Identifier: Apache-2.0
// A grammar for the output of a model, and how far an output has come in it. Grammars are immutable
// to their users, who may share one between threads; what they remember of states and masks is
// guarded inside, and is bounded (kMaxPoolBytes, kMaxMaskBytes).
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

// A vocabulary's tokens with text, as grammars see them.
struct Vocabulary {
  explicit Vocabulary(std::vector<std::string> token_bytes)
      : bytes(std::move(token_bytes)), trie(bytes) {}
  const std::vector<std::string> bytes;  // by id; empty: never chosen under a grammar
  const TokenTrie trie;
  int32_t markup_token = -1;  // of tool calls; chosen in grammars of tools alone
};

class Grammar {
 public:
  // Each compiles one kind of grammar. `vocabulary` is shared by all of a tokenizer.
  static absl::StatusOr<std::shared_ptr<const Grammar>> OfSchema(
      absl::string_view json, std::shared_ptr<const Vocabulary> vocabulary);
  static absl::StatusOr<std::shared_ptr<const Grammar>> OfRegex(
      absl::string_view pattern, std::shared_ptr<const Vocabulary> vocabulary);
  static absl::StatusOr<std::shared_ptr<const Grammar>> OfEbnf(
      absl::string_view text, std::shared_ptr<const Vocabulary> vocabulary);
  static absl::StatusOr<std::shared_ptr<const Grammar>> OfTools(
      absl::string_view json, const ToolOptions& options,
      std::shared_ptr<const Vocabulary> vocabulary);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  // What the grammar was made of, in a form that Restore reads.
  const std::string& source() const { return source_; }
  // Corrupt for a text that is no source; what Of... says of one that does not compile.
  static absl::StatusOr<std::shared_ptr<const Grammar>> Restore(
      absl::string_view source, std::shared_ptr<const Vocabulary> vocabulary);

 private:
  friend class Matcher;
  // States and masks found so far. When its pool is exhausted, another one takes its place.
  struct Memory {
    Memory(const ExpressionPool& base, const Vocabulary& vocabulary, bool markup)
        : pool(base), masks(&pool, vocabulary.trie, markup ? -1 : vocabulary.markup_token) {}
    Mutex mutex;
    ExpressionPool pool ABSL_GUARDED_BY(mutex);
    MaskBuilder masks ABSL_GUARDED_BY(mutex);
  };
  Grammar() = default;
  static absl::StatusOr<std::shared_ptr<const Grammar>> Create(
      ExpressionPool pool, Expr content, Expr reasoning, bool markup, std::string source,
      std::shared_ptr<const Vocabulary> vocabulary);
  std::shared_ptr<Memory> CurrentMemory() const;

  ExpressionPool base_;  // compiled
  Expr content_ = kFail;
  Expr reasoning_ = kFail;  // kFail: reasoning is free
  bool markup_ = false;
  std::string source_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<Memory> memory_ ABSL_GUARDED_BY(mutex_);
};

// One output in its grammar, token by token. Taking back and copying are cheap. One thread at a
// time.
class Matcher {
 public:
  // Where an output begins.
  enum class Start { kContent, kReasoning };

  // Starts anew; a null grammar allows everything.
  void Reset(std::shared_ptr<const Grammar> grammar, Start start);
  bool active() const { return grammar_ != nullptr; }
  const std::shared_ptr<const Grammar>& grammar() const { return grammar_; }

  // The output grew by a token; `bytes` are empty for one that ends a turn. What the grammar does
  // not allow is taken, too: then nothing may follow. Throws where there is no memory; nothing
  // changes then.
  void Push(absl::string_view bytes);
  // As Push, for the token that ends the reasoning.
  void PushThinkEnd(absl::string_view bytes);
  // Takes back the last push. REQUIRES: there is one.
  void Pop();

  // Whether the grammar says nothing of what follows: reasoning is free.
  bool free() const;
  // Whether the output may end here: never in the reasoning.
  absl::StatusOr<bool> MayEnd();
  // Whether reasoning may end here.
  absl::StatusOr<bool> MayEndThinking();
  // The tokens that may follow, of those with bytes; none once the output does not match. Null only
  // where free(). Unsupported when one mask or output needs more than the bounds.
  absl::StatusOr<std::shared_ptr<const MaskBits>> Mask();

 private:
  struct Step {
    Expr state;
    uint32_t text_end;  // of text_
    bool content;
  };
  Expr state() const { return steps_.back().state; }
  void Add(absl::string_view bytes, Expr state, bool content);
  absl::StatusOr<bool> Accepts();
  // Finds the states of all steps anew, in memory_.
  void Replay() ABSL_EXCLUSIVE_LOCKS_REQUIRED(memory_->mutex);
  Expr Advance(Expr state, absl::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(memory_->mutex);
  // Calls fn() under the memory's lock, and once more in a fresh one if it exhausts the pool.
  template <class Fn>
  absl::Status WithMemory(Fn&& fn);

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<Grammar::Memory> memory_;
  bool stale_ = false;       // the states of steps_ are those of another memory
  std::vector<Step> steps_;  // the first one before any token
  std::string text_;
};

}  // namespace dsv4::grammar
