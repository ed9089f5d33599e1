// SPDX-License-Identifier: Apache-2.0
// Contract of token_candidates: of a row of logits, the few tokens among which the sampler's rules
// choose, so that not all of the row has to reach the host. What is left to do is the sampler's
// (lib/sampling), which does it for a list of all tokens, too.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/op/op.h"
#include "kernels/op/token_weight.h"

namespace dsv4 {

// What to list of the tokens that are allowed and whose logit is finite. `best` is the largest of
// these logits; a token's weight is TokenWeight((logit - best) / temperature).
struct CandidateRule {
  enum Kind : int32_t {
    kLargest,      // the largest logit, equals by the lowest token
    kDraw,         // the first in token order up to which the weights pass uniform * their mass
    kMostLikely,   // at least the top_k largest logits
    kMostMass,     // at least the largest weights that reach top_p of their mass
    kLeastWeight,  // all of weight min_p and more
  };
  Kind kind = kLargest;
  float temperature = 1;
  int32_t top_k = 0;
  float top_p = 0, min_p = 0;
  double uniform = 0;
};

struct CandidateQuery {
  CandidateRule rule;
  int32_t row = 0;   // of the logits; below 0: nothing is asked, and the list is left alone
  int32_t list = 0;  // where the answer goes
  const uint32_t* allowed =
      nullptr;  // [vocab / 32 rounded up] token t is bit t % 32 of word t / 32
};

struct TokenLogit {
  int32_t token;
  float logit;
};

inline constexpr int32_t kMostCandidates = 1024;

// `tokens` in no order; count -1: they are more than kMostCandidates, and none is listed.
struct CandidateList {
  int32_t count;
  double mass;  // of all weights; kDraw and kMostMass only
  TokenLogit tokens[kMostCandidates];
};

// kMostLikely and kMostMass list whole bins, the most likely ones that suffice. All tokens of a bin
// are more likely than all of the next one's.
inline constexpr int32_t kCandidateBins = 1024;
constexpr int32_t DistanceBin(float best, float logit) {
  const float distance = best - logit;
  return distance < 32.0f ? static_cast<int32_t>(distance * 32.0f) : kCandidateBins - 1;
}
// REQUIRES: weight > 0. 32 bins from one power of two to the next.
constexpr int32_t WeightBin(float weight) {
  const int32_t below_one = static_cast<int32_t>((std::bit_cast<uint32_t>(1.0f) >> 18) -
                                                 (std::bit_cast<uint32_t>(weight) >> 18));
  return std::min(below_one, kCandidateBins - 1);
}

// lists[queries[q].list] answers queries[q].
struct TokenCandidatesParams {
  static constexpr Op kOp = Op::kTokenCandidates;
  int32_t rows = 0;  // queries
  int64_t vocab = 0;
  const CandidateQuery* queries = nullptr;  // [rows]
  const float* logits = nullptr;            // [rows of the head, vocab]
  CandidateList* lists = nullptr;           // may be memory of the host that the device writes
  // chosen[i]: the token of list i, for a later kernel; below 0: there is none, or several. May be
  // null. Lists that nothing is asked of leave it alone.
  int32_t* chosen = nullptr;
};

absl::Status Validate(const TokenCandidatesParams& params);
Cost CostOf(const TokenCandidatesParams& params);

}  // namespace dsv4
