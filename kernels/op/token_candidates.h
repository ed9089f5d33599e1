// SPDX-License-Identifier: Apache-2.0
// Contract of token_candidates: selects from a row of logits the few tokens among which the sampler
// chooses, so that the device copies these to the host and not the whole row. The sampler
// (lib/sampling) applies its rules to the list as it would to all tokens.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/op/op.h"
#include "kernels/op/token_weight.h"

namespace dsv4 {

// Which tokens to list, among those that are allowed and have a finite logit. `best` is the largest
// of these logits. The weight of a token is TokenWeight((logit - best) / temperature); `mass` is
// the sum of all weights.
struct CandidateRule {
  enum Kind : int32_t {
    kLargest,      // the token with the largest logit; of equals the lowest token
    kDraw,         // the first token, in token order, at which the running sum of weights exceeds
                   // uniform * mass
    kMostLikely,   // at least the top_k largest logits
    kMostMass,     // at least the largest weights that sum up to top_p * mass
    kLeastWeight,  // all tokens with a weight of at least min_p
  };
  Kind kind = kLargest;
  float temperature = 1;
  int32_t top_k = 0;
  float top_p = 0, min_p = 0;
  double uniform = 0;
};

struct CandidateQuery {
  CandidateRule rule;
  int32_t row = 0;   // of the logits; negative: the query is skipped, its list is not written
  int32_t list = 0;  // index of the list that gets the answer
  // [vocab / 32 rounded up]: token t is bit t % 32 of word t / 32.
  const uint32_t* allowed = nullptr;
};

struct TokenLogit {
  int32_t token;
  float logit;
};

inline constexpr int32_t kMostCandidates = 1024;

// Unordered. count -1: there are more than kMostCandidates tokens, and none is listed.
struct CandidateList {
  int32_t count;
  double mass;  // kDraw and kMostMass only
  TokenLogit tokens[kMostCandidates];
};

// kMostLikely and kMostMass list whole bins, beginning with the most likely, until they suffice.
// All tokens of a bin are more likely than all tokens of the next bin.
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
  CandidateList* lists = nullptr;           // may be host memory that the device can write
  // chosen[i]: the only token of list i, for a later kernel; negative if list i has none or
  // several. Not written for the lists of skipped queries. May be null.
  int32_t* chosen = nullptr;
};

absl::Status Validate(const TokenCandidatesParams& params);
Cost CostOf(const TokenCandidatesParams& params);

}  // namespace dsv4
