// SPDX-License-Identifier: Apache-2.0
#include "lib/weights/synthetic.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "lib/io/mapped_file.h"
#include "lib/weights/synthetic_mix.h"
#include "tests/lib/model/small_model.h"

namespace dsv4 {
namespace {

using test::Config;
using test::Loaded;
using Code = absl::StatusCode;

TEST_CASE("synthetic weights load, of as many layers as are asked for") {
  const ModelConfig whole = Config(test::BundledFile("config.json"));
  const ModelConfig config = FirstLayers(whole, 4);
  const Loaded loaded = Weights::Load(config, *SyntheticCheckpoint(config), nullptr);
  REQUIRE_OK(loaded);
  REQUIRE((*loaded)->layers.size() == 4);
  for (size_t layer = 0; layer < 4; ++layer) {
    CHECK((*loaded)->layers[layer].compress_ratio == whole.compress_ratios[layer]);
  }
  REQUIRE((*loaded)->drafter != nullptr);
  CHECK((*loaded)->drafter->blocks[0].compress_ratio == whole.compress_ratios.back());
  const auto* const norm = (*loaded)->norm;
  const auto [least, most] = std::minmax_element(norm, norm + config.hidden_size);
  REQUIRE(*least >= 0x3f80);  // 1
  REQUIRE(*most < 0x3fc0);    // 1.5
}

TEST_CASE("a mix of types has the bytes of the public file") {
  // 10^9 bytes, as repositories list them. Keys and vocabulary are some MB of that.
  const std::map<std::string, double> files = {
      {"ds4-q2", 86.7}, {"ud-iq2_xxs", 90.8}, {"ud-q2_k_xl", 96.8}, {"ud-iq3_xxs", 104.2}};
  const auto json = ReadFile(DSV4_SOURCE_DIR "/benchmarks/e2e/flash/config.json", 1 << 20);
  REQUIRE_OK(json);
  const ModelConfig flash = Config(*json);
  for (const absl::string_view mix : MixNames()) {
    std::vector<TensorEntry> tensors = Weights::TensorsOf(flash);
    REQUIRE_OK(ApplyMix(mix, &tensors));
    double bytes = 0;
    for (const TensorEntry& tensor : tensors) bytes += static_cast<double>(tensor.bytes);
    INFO(mix << " has " << bytes * 1e-9 << " GB");
    CHECK(std::abs(bytes * 1e-9 / files.at(std::string(mix)) - 1) < 0.02);
  }
  std::vector<TensorEntry> none;
  REQUIRE_FAILS(ApplyMix("q2", &none), Code::kInvalidArgument,
                "mix of types \"q2\"; expected one of ds4-q2, ud-iq2_xxs, ud-q2_k_xl, ud-iq3_xxs");
}

TEST_CASE("random blocks have values of a size that keeps sums bounded") {
  for (int type = static_cast<int>(BlockType::kQ4_0); type < static_cast<int>(BlockType::kCount);
       ++type) {
    const BlockInfo& info = InfoOf(static_cast<BlockType>(type));
    INFO(info.name);
    const std::vector<uint8_t> blocks = RandomBlocks(info.type, 64 * info.bytes);
    std::vector<float> values(static_cast<size_t>(64 * info.elements));
    REQUIRE_FALSE(HasNonFiniteBlocks(info.type, blocks.data(), 64 * info.elements));
    LoadBlocks(info.type, blocks.data(), 64 * info.elements, values.data());
    double squares = 0;
    for (const float value : values) squares += double{value} * value;
    const double size = std::sqrt(squares / static_cast<double>(values.size()));
    CHECK(size > 0x1p-11);
    CHECK(size < 0x1p-2);
  }
}

}  // namespace
}  // namespace dsv4
