// SPDX-License-Identifier: Apache-2.0
// Which tokens may follow in a state of a pool: a walk over the trie of tokens. Results are kept,
// by state and by what a state begins with, so that states which differ in what comes after an end
// (the brackets around a string, say) share the work.
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

// Bytes of kept masks, and of kept parts of masks, each.
inline constexpr int64_t kMaxMaskBytes = int64_t{32} << 20;

// Tokens whose bytes a string of the state begins with: 32 a word, as lib/sampling has them.
using MaskBits = std::vector<uint32_t>;

class MaskBuilder {
 public:
  // Both outlive the builder. No mask has the token `left_out`.
  MaskBuilder(ExpressionPool* pool, const TokenTrie& trie, int32_t left_out = -1)
      : pool_(pool), trie_(&trie), left_out_(left_out) {}

  // Null when the pool is exhausted.
  std::shared_ptr<const MaskBits> MaskOf(Expr state);

 private:
  // What begins a state, up to its first part that cannot be empty.
  struct Head {
    MaskBits bits;
    std::vector<int32_t> tokens;  // instead of bits where there are few
    std::vector<uint32_t> exits;  // nodes of the trie where it is complete
    int64_t bytes() const {
      return static_cast<int64_t>(sizeof(Head) + (bits.size() + tokens.size() + exits.size()) * 4);
    }
  };
  void AddTo(Expr state, MaskBits* bits);
  const Head& HeadOf(Expr first);
  // The nodes below `node` (all, if it is none), from `state` at it.
  template <class Visit>
  void Walk(Expr state, uint32_t begin, uint32_t end, uint32_t depth, Visit&& visit);

  ExpressionPool* pool_;
  const TokenTrie* trie_;
  const int32_t left_out_;
  HashMap<Expr, std::shared_ptr<const MaskBits>> masks_;
  HashMap<Expr, Head> heads_;
  int64_t mask_bytes_ = 0, head_bytes_ = 0;
  std::vector<Expr> path_;  // scratch of Walk: the state at each depth
};

}  // namespace dsv4::grammar
