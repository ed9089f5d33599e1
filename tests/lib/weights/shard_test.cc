// SPDX-License-Identifier: Apache-2.0
#include "lib/config/shard.h"

#include <memory>
#include <utility>
#include <vector>

#include "lib/weights/synthetic.h"
#include "lib/weights/weight_table.h"
#include "lib/weights/weights.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using Ends = std::vector<std::pair<int64_t, int64_t>>;

Ends EndsOf(const Slices& slices) {
  Ends ends;
  for (const Slice& slice : slices.all()) ends.push_back({slice.begin, slice.end});
  return ends;
}

// A little of everything: two output groups of two heads, D 384, I 256, 700 tokens.
ModelConfig SmallConfig() {
  ModelConfig config;
  config.hidden_size = 384;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 4;
  config.q_lora_rank = 128;
  config.o_groups = 2;
  config.o_lora_rank = 128;
  config.compress_ratios = {0, 4, 0};
  config.index_n_heads = 4;
  config.index_topk = 16;
  config.n_routed_experts = 3;
  config.num_experts_per_tok = 2;
  config.moe_intermediate_size = 256;
  config.num_nextn_predict_layers = 1;
  config.vocab_size = 700;
  return config;
}

TEST_CASE("whole blocks are dealt out as evenly as they go") {
  CHECK(EndsOf(Slices(4096, 128, 2)) == Ends{{0, 2048}, {2048, 4096}});
  CHECK(EndsOf(Slices(384, 128, 2)) == Ends{{0, 128}, {128, 384}});
  CHECK(EndsOf(Slices(700, 128, 4)) == Ends{{0, 128}, {128, 384}, {384, 512}, {512, 700}});
  CHECK(EndsOf(Slices(128, 128, 2)) == Ends{{0, 0}, {0, 128}});  // a rank may have none
  CHECK(EndsOf(Slices(8, 1, 8)).back() == std::pair<int64_t, int64_t>(7, 8));
  CHECK(EndsOf(Slices(129280, 128, 3)) == Ends{{0, 43008}, {43008, 86144}, {86144, 129280}});
}

TEST_CASE("a count of devices that does not divide the output groups is refused by name") {
  ModelConfig config = SmallConfig();
  REQUIRE_OK(Shards::Of(config, 1));
  REQUIRE_OK(Shards::Of(config, 2));
  for (const int ranks : {3, 4, 8}) {
    REQUIRE_FAILS(Shards::Of(config, ranks), absl::StatusCode::kInvalidArgument,
                  "o_groups = 2 cannot be split between " + std::to_string(ranks) +
                      " devices; supported numbers of devices: 1, 2");
  }
  config.o_groups = 16;
  REQUIRE_OK(Shards::Of(config, 8));
  REQUIRE_FAILS(Shards::Of(config, 16), absl::StatusCode::kInvalidArgument, "1, 2, 4, 8");
}

TEST_CASE("a rank's views begin at its rows of data and of scales") {
  const ModelConfig config = SmallConfig();
  auto weights = Weights::Load(config, *SyntheticCheckpoint(config), {});
  REQUIRE_OK(weights);
  WeightViews& whole = **weights;
  const Shards shards = Shards::Of(config, 2).value();
  WeightViews part = ShardOf(whole, config, shards, 1);

  // wq_b: heads 2 and 3 of 4, 512 rows each, of 128 elements; a row of scales for 128 rows.
  const AttentionWeights &attn = part.layers[1].attn, &all = whole.layers[1].attn;
  CHECK(attn.sink == all.sink + 2);
  CHECK(attn.wq_b.n == 1024);
  CHECK(attn.wq_b.data == all.wq_b.data + 1024 * 128);
  CHECK(attn.wq_b.scale == all.wq_b.scale + 8);
  CHECK(attn.wo_a.n == 128);
  CHECK(attn.wo_a.data == all.wo_a.data + 128 * 1024);
  CHECK(attn.wo_a.scale == all.wo_a.scale + 8);
  // wo_b: rows 128 to 383 of D, of 256 elements.
  CHECK(attn.wo_b.n == 256);
  CHECK(attn.wo_b.data == all.wo_b.data + 128 * 256);
  CHECK(attn.wo_b.scale == all.wo_b.scale + 2);
  // What every rank has whole.
  CHECK(attn.wq_a.data == all.wq_a.data);
  CHECK(attn.wkv.n == 512);
  CHECK(attn.indexer.wq_b.data == all.indexer.wq_b.data);
  CHECK(part.embed.n == 700);

  // Experts: rows 128 to 255 of I, of 384 elements in 192 bytes and 12 scales; rows 128 to 383 of
  // D, of 256 elements in 128 bytes and 8 scales.
  const MoeWeights &moe = part.layers[1].moe, &all_moe = whole.layers[1].moe;
  REQUIRE(moe.table == moe.expert_table.data());
  for (size_t e = 0; e < 3; ++e) {
    const ExpertWeights &expert = *moe.table[e], &of_all = all_moe.experts[e];
    CHECK(&expert == &moe.experts[e]);
    CHECK(expert.w1.n == 128);
    CHECK(expert.w1.data == of_all.w1.data + 128 * 192);
    CHECK(expert.w3.scale == of_all.w3.scale + 128 * 12);
    CHECK(expert.w2.n == 256);
    CHECK(expert.w2.data == of_all.w2.data + 128 * 128);
    CHECK(expert.w2.scale == of_all.w2.scale + 128 * 8);
  }
  CHECK(moe.shared_w1.data == all_moe.shared_w1.data + 128 * 384);
  CHECK(moe.shared_w1.scale == all_moe.shared_w1.scale + 3);
  CHECK(moe.shared_w2.data == all_moe.shared_w2.data + 128 * 256);
  CHECK(moe.gate.data == all_moe.gate.data);

  // Of the vocabulary's blocks the last three, the last of them short.
  CHECK(part.head.n == 700 - 384);
  CHECK(part.head.data == whole.head.data + 384 * 384);
  REQUIRE(part.drafter != nullptr);
  CHECK(part.drafter->mtp.e_proj.n == 256);
  CHECK(part.drafter->mtp.h_proj.scale == whole.drafter->mtp.h_proj.scale + 3);
  CHECK(part.drafter->blocks[0].attn.sink == whole.drafter->blocks[0].attn.sink + 2);

  // Both parts together are the whole. (Scales of short blocks would be an exception; none is
  // here.)
  WeightViews first = ShardOf(whole, config, shards, 0);
  CHECK(SharedOutBytes(config, &first) + SharedOutBytes(config, &part) ==
        SharedOutBytes(config, &whole));
}

TEST_CASE("exchanges are counted") {
  ModelConfig config = SmallConfig();
  CHECK(ExchangeOf(config, 1, 2, QuantizedRows::kRoundTrip).exchanges == 0);
  CHECK(ExchangeOf(config, 1, 2, QuantizedRows::kRoundTrip).bytes == 0);
  const ExchangeCost cost = ExchangeOf(config, 2, 2, QuantizedRows::kRoundTrip);
  CHECK(cost.exchanges == 9);
  // Two layers of 256 of the groups, 384 twice, three products of 256; 700 logits.
  CHECK(cost.bytes == 2 * 2 * (256 + 2 * 384 + 3 * 256) + 4 * 700);
  // As codes the groups are 256 bytes and two scales, padded.
  CHECK(ExchangeOf(config, 2, 2, QuantizedRows::kCodes).bytes ==
        2 * (272 + 2 * (2 * 384 + 3 * 256)) + 4 * 700);
}

}  // namespace
}  // namespace dsv4
