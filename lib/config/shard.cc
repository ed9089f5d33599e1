// SPDX-License-Identifier: Apache-2.0
#include "lib/config/shard.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {
namespace {

constexpr int64_t kBlock = kFp8Block;  // rows that share scales

}  // namespace

Slices::Slices(int64_t total, int64_t unit, int ranks) : ranks_(static_cast<size_t>(ranks)) {
  const int64_t blocks = CeilDiv(total, unit);
  for (int rank = 0; rank < ranks; ++rank) {
    slices_[static_cast<size_t>(rank)] = {
        .begin = std::min(blocks * rank / ranks * unit, total),
        .end = std::min(blocks * (rank + 1) / ranks * unit, total)};
  }
}

absl::StatusOr<Shards> Shards::Of(const ModelConfig& config, int ranks) {
  if (ranks > kMaxRanks || config.o_groups % ranks != 0) {
    std::string counts = "1";
    for (int count = 2; count <= kMaxRanks; ++count) {
      if (config.o_groups % count == 0) absl::StrAppend(&counts, ", ", count);
    }
    return InvalidArgument("o_groups = ", config.o_groups, " cannot be split between ", ranks,
                           " devices; supported numbers of devices: ", counts);
  }
  return Shards{.ranks = ranks,
                .groups = Slices(config.o_groups, 1, ranks),
                .hidden = Slices(config.hidden_size, kBlock, ranks),
                .inter = Slices(config.moe_intermediate_size, kBlock, ranks),
                .vocab = Slices(config.vocab_size, kBlock, ranks)};
}

// Per layer: output groups, attention's y, products, the experts' y; then logits.
ExchangeCost ExchangeOf(const ModelConfig& config, int ranks, int64_t activation_bytes,
                        QuantizedRows quantized) {
  if (ranks == 1) return {};
  const int64_t groups = config.o_groups * config.o_lora_rank;
  const int64_t groups_bytes = quantized == QuantizedRows::kCodes
                                   ? RoundUp(groups + groups / kFp8Block, int64_t{16})
                                   : groups * activation_bytes;
  const int64_t products = (config.num_experts_per_tok + 1) * config.moe_intermediate_size;
  const int64_t layer = groups_bytes + (2 * config.hidden_size + products) * activation_bytes;
  return {.exchanges = 4 * config.num_hidden_layers + 1,
          .bytes = config.num_hidden_layers * layer +
                   config.vocab_size * static_cast<int64_t>(sizeof(float))};
}

}  // namespace dsv4
