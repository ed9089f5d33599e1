// SPDX-License-Identifier: Apache-2.0
// Rows of every block format against the values that gguf-py gives (tests/gguf/README.md).
#include "lib/tensor/block_format.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "absl/strings/strip.h"
#include "lib/io/gguf.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"
#include "tests/support/tensor_file.h"

namespace dsv4 {
namespace {

const std::string kFolder = std::string(DSV4_SOURCE_DIR) + "/tests/gguf/";

// The sign of a zero is free.
uint32_t BitsOf(float value) { return std::bit_cast<uint32_t>(value == 0 ? 0.0f : value); }

TEST_CASE("rows of every format have the bits of the reference reader") {
  const auto model = OpenGguf(kFolder + "formats.gguf");
  REQUIRE_OK(model);
  const test::TensorFile expected(kFolder + "rows.safetensors");
  int compared = 0, grids = 0;
  std::vector<bool> seen(static_cast<size_t>(BlockType::kCount));
  for (const GgufTensor& tensor : model->parts[0].tensors) {
    absl::string_view name = tensor.name;
    if (name == "source") continue;
    INFO(std::string(name));
    const std::optional<BlockType> type = BlockTypeOfGguf(tensor.type);
    REQUIRE(type);
    const int64_t count = tensor.bytes / InfoOf(*type).bytes * InfoOf(*type).elements;
    std::vector<float> values(static_cast<size_t>(count));
    LoadBlocks(*type, tensor.data, count, values.data());
    if (absl::ConsumeSuffix(&name, ".grid")) {
      // Every entry of the codebook, under signs; of IQ1_S 8 times the entries, plus 1.
      ++grids;
      std::vector<int8_t> codes(values.size());
      std::vector<float> scale(values.size() / kBlockRun);
      UnpackBlocks(*type, tensor.data, count, codes.data(), scale.data(), nullptr);
      const std::vector<int8_t> grid = expected.Read<int8_t>(std::string(tensor.name));
      REQUIRE(grid.size() <= codes.size());
      int different = 0;
      for (size_t i = 0; i < grid.size(); ++i) different += codes[i] != grid[i];
      CHECK(different == 0);
      continue;
    }
    const std::vector<float> rows = expected.Read<float>(std::string(tensor.name));
    REQUIRE(rows.size() == values.size());
    int different = 0;
    for (size_t i = 0; i < rows.size(); ++i) different += BitsOf(values[i]) != BitsOf(rows[i]);
    CHECK(different == 0);
    CHECK_FALSE(HasNonFiniteBlocks(*type, tensor.data, count));
    seen[static_cast<size_t>(*type)] = true;
    ++compared;
  }
  CHECK(grids == 6);
  // Every quantised format that the file has, twice.
  CHECK(compared == 2 * std::count(seen.begin(), seen.end(), true));
  CHECK(std::count(seen.begin(), seen.end(), true) == 21);
}

TEST_CASE("plain numbers are widened") {
  // Halves by hand: 1, -2, the least subnormal, 65504, infinity.
  const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x7c00};
  float values[5];
  LoadBlocks(BlockType::kF16, reinterpret_cast<const uint8_t*>(halves), 5, values);
  CHECK(values[0] == 1);
  CHECK(values[1] == -2);
  CHECK(values[2] == 0x1p-24f);
  CHECK(values[3] == 65504);
  CHECK(std::isinf(values[4]));
  CHECK(HasNonFiniteBlocks(BlockType::kF16, reinterpret_cast<const uint8_t*>(halves), 5));
  CHECK_FALSE(HasNonFiniteBlocks(BlockType::kF16, reinterpret_cast<const uint8_t*>(halves), 4));
  const uint16_t bf16[] = {0x3f80, 0xff80};
  LoadBlocks(BlockType::kBf16, reinterpret_cast<const uint8_t*>(bf16), 1, values);
  CHECK(values[0] == 1);
  CHECK(HasNonFiniteBlocks(BlockType::kBf16, reinterpret_cast<const uint8_t*>(bf16), 2));
}

TEST_CASE("scales that are no numbers are found") {
  // A block of Q8_0 and one of MXFP4 at the end of a row.
  std::vector<uint8_t> q8(2 * 34, 1);
  CHECK_FALSE(HasNonFiniteBlocks(BlockType::kQ8_0, q8.data(), 64));
  q8[35] = 0x7c;  // the exponent of infinity
  CHECK(HasNonFiniteBlocks(BlockType::kQ8_0, q8.data(), 64));
  std::vector<uint8_t> fp4(2 * 17, 100);
  CHECK_FALSE(HasNonFiniteBlocks(BlockType::kMxfp4, fp4.data(), 64));
  fp4[17] = 255;
  CHECK(HasNonFiniteBlocks(BlockType::kMxfp4, fp4.data(), 64));
  std::vector<uint8_t> q4(144, 1);
  CHECK_FALSE(HasNonFiniteBlocks(BlockType::kQ4K, q4.data(), 256));
  q4[3] = 0x7e;  // of the minimum
  CHECK(HasNonFiniteBlocks(BlockType::kQ4K, q4.data(), 256));
}

TEST_CASE("types have the names of GGUF") {
  CHECK(GgufTypeName(uint32_t{16}) == "IQ2_XXS");
  CHECK(GgufTypeName(uint32_t{39}) == "MXFP4");
  CHECK(GgufTypeName(uint32_t{145}) == "IQ2_KS (of ik_llama.cpp)");
  CHECK(GgufTypeName(uint32_t{202}) == "type 202 (of ik_llama.cpp)");
  CHECK(GgufTypeName(uint32_t{105}) == "105 (of Lucebox)");
  CHECK(GgufTypeName(uint32_t{1000}) == "type 1000");
  CHECK_FALSE(BlockTypeOfGguf(137));
  CHECK_FALSE(BlockTypeOfGguf(~uint32_t{0}));
  for (int i = 1; i < static_cast<int>(BlockType::kCount); ++i) {
    const BlockInfo& info = InfoOf(static_cast<BlockType>(i));
    CHECK(BlockTypeOfGguf(info.gguf_id) == info.type);
    CHECK(BlockBytes(info.type, 3 * info.elements) == 3 * info.bytes);
  }
}

}  // namespace
}  // namespace dsv4
