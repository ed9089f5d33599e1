// SPDX-License-Identifier: Apache-2.0
// The part of the model that each rank of an engine computes (docs/adr/0020-exact-split.md): rows
// of weight matrices, in whole blocks of 128, and thus columns of activations. Every rank computes
// what is not listed here.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op/gather_columns.h"
#include "lib/config/config.h"

namespace dsv4 {

// Elements [begin, end); may be none.
struct Slice {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
};

// One slice for each rank, in order, of one dimension.
class Slices {
 public:
  Slices() = default;
  // Divides `total` elements in blocks of `unit` as evenly as possible; the last block may be
  // shorter.
  Slices(int64_t total, int64_t unit, int ranks);

  const Slice& operator[](int rank) const { return slices_[static_cast<size_t>(rank)]; }
  absl::Span<const Slice> all() const { return absl::MakeConstSpan(slices_).subspan(0, ranks_); }

 private:
  std::array<Slice, kMaxRanks> slices_{};
  size_t ranks_ = 0;
};

struct Shards {
  // Errors: InvalidArgument, listing the possible numbers of ranks, if the output groups cannot be
  // divided evenly or there are more than kMaxRanks.
  static absl::StatusOr<Shards> Of(const ModelConfig& config, int ranks);

  int ranks = 1;
  Slices groups;  // output groups, with their heads: wq_b, sinks, attention, wo_a
  Slices hidden;  // of D: rows of wo_b, w2, e_proj and h_proj
  Slices inter;   // of I: rows of w1 and w3
  Slices vocab;   // rows of the head
};

// Exchanges of a main pass with logits.
struct ExchangeCost {
  int64_t exchanges = 0;  // of a pass, with any number of tokens
  int64_t bytes = 0;      // of one token that each rank has after them, its own included
};
// `activation_bytes`: of an element. `quantized`: the format of the output groups.
ExchangeCost ExchangeOf(const ModelConfig& config, int ranks, int64_t activation_bytes,
                        QuantizedRows quantized);

}  // namespace dsv4
