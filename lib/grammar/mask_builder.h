// SPDX-License-Identifier: Apache-2.0
// Computes the tokens that may follow in a state of a pool, by a walk over the trie of tokens.
// Results are cached by state and by the first part of a state. So states that differ only in what
// follows (such as the brackets behind a string) share the work.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "lib/base/hash_table.h"
#include "lib/grammar/expression_pool.h"
#include "lib/grammar/token_trie.h"

namespace dsv4::grammar {

// The most bytes of cached masks, and of cached first parts.
inline constexpr int64_t kMaxMaskBytes = int64_t{32} << 20;

// The tokens whose bytes are a prefix of a string of the state: token t is bit t % 32 of word t
// / 32.
using MaskBits = std::vector<uint32_t>;

class MaskBuilder {
 public:
  // The arguments must outlive the builder. No mask has the token `left_out`.
  MaskBuilder(ExpressionPool* pool, const TokenTrie& trie, int32_t left_out = -1)
      : pool_(pool), trie_(&trie), left_out_(left_out) {}

  // The mask if it is known, or null. Does not use the pool.
  std::shared_ptr<const MaskBits> KnownMaskOf(Expr state) const {
    const auto known = masks_.find(state);
    return known != masks_.end() ? known->second : nullptr;
  }
  // Null if the pool is exhausted.
  std::shared_ptr<const MaskBits> MaskOf(Expr state);

  int64_t bytes() const { return mask_bytes_ + head_bytes_; }
  // Forgets all results.
  void Clear();

 private:
  // The tokens of a state's beginning, up to its first part that cannot be empty.
  struct Head {
    MaskBits bits;
    std::vector<int32_t> tokens;  // in place of `bits` if they are few
    std::vector<uint32_t> exits;  // nodes of the trie where the beginning is complete
    int64_t bytes() const {
      return static_cast<int64_t>(sizeof(Head) + (bits.size() + tokens.size() + exits.size()) * 4);
    }
  };
  void AddTo(Expr state, MaskBits* bits);
  const Head& HeadOf(Expr first);
  // Visits the nodes [begin, end) of the trie. `state`: the state at `depth`.
  template <class Visit>
  void Walk(Expr state, uint32_t begin, uint32_t end, uint32_t depth, Visit&& visit);

  ExpressionPool* pool_;
  const TokenTrie* trie_;
  const int32_t left_out_;
  HashMap<Expr, std::shared_ptr<const MaskBits>> masks_;
  HashMap<Expr, Head> heads_;
  Head cut_short_;  // of an exhausted pool
  int64_t mask_bytes_ = 0, head_bytes_ = 0;
  std::vector<Expr> path_;  // scratch of Walk: the state at each depth
};

}  // namespace dsv4::grammar
