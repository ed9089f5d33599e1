// SPDX-License-Identifier: Apache-2.0
// Which part of the model each rank of an engine computes (docs/adr/0020-exact-split.md): rows of
// weight matrices, in whole blocks of 128, and so columns of activations. What is in no list here
// every rank computes.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op/gather_columns.h"
#include "lib/model/config.h"

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
  // Blocks of `unit` of `total` elements, dealt out as evenly as they go; the last one may be
  // shorter.
  Slices(int64_t total, int64_t unit, int ranks);

  const Slice& operator[](int rank) const { return slices_[static_cast<size_t>(rank)]; }
  absl::Span<const Slice> all() const { return absl::MakeConstSpan(slices_).subspan(0, ranks_); }

 private:
  std::array<Slice, kMaxRanks> slices_{};
  size_t ranks_ = 0;
};

struct Shards {
  // InvalidArgument, with the counts that can be, when the output groups cannot be shared out
  // evenly, or for more than kMaxRanks.
  static absl::StatusOr<Shards> Of(const ModelConfig& config, int ranks);

  int ranks = 1;
  Slices groups;  // output groups, with their heads: wq_b, sinks, attention, wo_a
  Slices hidden;  // of D: rows of wo_b, w2, e_proj and h_proj
  Slices inter;   // of I: rows of w1 and w3
  Slices vocab;   // rows of the head
};

// What a token of a step costs in exchanges: of a main pass with logits for it.
struct ExchangeCost {
  int64_t exchanges = 0;  // of a pass, however many tokens it has
  int64_t bytes = 0;      // that each rank has after them of a token, its own included
};
// `activation_bytes`: of an element; `quantized`: how the output groups are stored.
ExchangeCost ExchangeOf(const ModelConfig& config, int ranks, int64_t activation_bytes,
                        QuantizedRows quantized);

}  // namespace dsv4
