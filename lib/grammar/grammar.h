// SPDX-License-Identifier: Apache-2.0
// A grammar for the output of a model (Grammar), and the position of an output in it (Matcher).
// Threads may share a grammar. Its caches of states and masks are guarded inside and bounded
// (kMaxPoolBytes, kMaxMaskBytes), and so are those of all grammars of a vocabulary
// (kMaxGrammarsBytes).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/mutex.h"
#include "lib/grammar/expression_pool.h"
#include "lib/grammar/mask_builder.h"
#include "lib/grammar/memory_budget.h"
#include "lib/grammar/token_trie.h"
#include "lib/grammar/tool_markup.h"

namespace dsv4::grammar {

// The tokens of a vocabulary for grammars.
struct Vocabulary {
  explicit Vocabulary(std::vector<std::string> token_bytes,
                      int64_t grammars_bytes = kMaxGrammarsBytes)
      : bytes(std::move(token_bytes)),
        trie(bytes),
        budget(std::make_shared<MemoryBudget>(grammars_bytes)) {}
  const std::vector<std::string> bytes;  // by id; empty: never chosen under a grammar
  const TokenTrie trie;
  const std::shared_ptr<MemoryBudget> budget;  // of the grammars over these tokens
  int32_t markup_token = -1;  // the marker of tool calls; allowed only in grammars of tools
};

class Grammar {
 public:
  // Each function compiles one kind of grammar. All grammars of a tokenizer share its `vocabulary`.
  static absl::StatusOr<std::shared_ptr<const Grammar>> OfSchema(
      absl::string_view json, std::shared_ptr<const Vocabulary> vocabulary);
  // OfSchema, with the options `strict` and `quick`.
  static absl::StatusOr<std::shared_ptr<const Grammar>> OfAnswer(
      absl::string_view json, const ToolOptions& options,
      std::shared_ptr<const Vocabulary> vocabulary);
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
  // Cached states and masks. When its pool is exhausted or was freed for other grammars, a new one
  // replaces it.
  struct Memory final : MemoryBudget::Cache {
    Memory(const ExpressionPool& base, const Vocabulary& vocabulary, bool markup)
        : Cache(vocabulary.budget),
          pool(base),
          masks(&pool, vocabulary.trie, markup ? -1 : vocabulary.markup_token) {}
    ~Memory() { Remove(); }
    // After its use, also without waiting for other threads.
    void Count() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { Used(pool.bytes() + masks.bytes()); }
    void CountNow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { UsedNow(pool.bytes() + masks.bytes()); }
    bool TryFree() override;
    Mutex mutex;
    std::atomic<bool> exhausted = false;  // and not for lack of work; or freed
    ExpressionPool pool ABSL_GUARDED_BY(mutex);
    MaskBuilder masks ABSL_GUARDED_BY(mutex);
  };
  Grammar() = default;
  using Compiled = absl::StatusOr<std::shared_ptr<Grammar>>;
  static absl::StatusOr<std::shared_ptr<const Grammar>> CompileSchema(
      absl::string_view json, bool strict, bool quick,
      std::shared_ptr<const Vocabulary> vocabulary);
  static Compiled Create(ExpressionPool pool, Expr content, Expr reasoning, bool markup,
                         std::string source, std::shared_ptr<const Vocabulary> vocabulary);
  std::shared_ptr<Memory> CurrentMemory() const;

  ExpressionPool base_;  // compiled
  MemoryBudget::Share base_share_;
  Expr content_ = kFail;
  Expr reasoning_ = kFail;  // kFail: reasoning is free
  bool markup_ = false;
  std::vector<NotEnforced> not_enforced_;
  std::string source_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  mutable Mutex mutex_;
  mutable std::shared_ptr<Memory> memory_ ABSL_GUARDED_BY(mutex_);
};

// What may follow an output.
struct Following {
  std::shared_ptr<const MaskBits> mask{};  // the tokens with bytes; null: any
  bool may_end = false;                    // the output
  bool may_end_thinking = false;           // the reasoning
};

// The position of one output in its grammar. Push, Pop and copies are cheap, and wait for no other
// thread: states are computed when they are asked for. One thread at a time.
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
  // Errors: Unsupported if a mask or an output exceeds the limits.
  absl::StatusOr<std::shared_ptr<const MaskBits>> Mask();
  // All of that. `work`: the most, about 50 ns each; nullopt if it does not suffice. What was found
  // out is kept, so the next call needs less. Errors: Unsupported beyond limits of memory and
  // depth.
  absl::StatusOr<std::optional<Following>> Follow(int64_t work);
  // Follow, without waiting for a thread that uses the grammar's memory: nullopt then, and, unless
  // `build`, where the mask is not in it.
  std::optional<Following> FollowNow(int64_t work, bool build);
  // Takes over the states that `copy` has computed. REQUIRES: it was a copy of this matcher, from
  // which nothing that the copy has was popped since.
  void Adopt(const Matcher& copy);

 private:
  struct Step {
    Expr state;
    uint32_t text_end;  // of text_
    bool content;
  };
  Expr state() const { return steps_.back().state; }
  void Add(absl::string_view bytes, bool content);
  absl::StatusOr<bool> Accepts();
  // Computes the states of all steps, in memory_. False if that exhausts its pool.
  bool Resolve() ABSL_EXCLUSIVE_LOCKS_REQUIRED(memory_->mutex);
  Following FollowingOf(std::shared_ptr<const MaskBits> mask, bool accepts) const;
  Expr Advance(Expr state, absl::string_view bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(memory_->mutex);
  // Calls fn() under the memory's lock. If it exhausts the pool, calls it once more with a new one.
  // If only work lacks, *lacks_work is set and the status an error.
  template <class Fn>
  absl::Status WithMemory(Fn&& fn, int64_t work, bool* lacks_work);

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<Grammar::Memory> memory_;
  std::vector<Step> steps_;  // the first one before any token
  size_t known_ = 0;         // so many of them have their state in memory_
  std::string text_;
};

}  // namespace dsv4::grammar
