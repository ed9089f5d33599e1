// SPDX-License-Identifier: Apache-2.0
// The block formats in which GGUF files store matrices: what each is called, how many bytes it
// takes, and the value of its elements. A row is a run of blocks without padding, so that rows are
// 2-byte aligned at best.
//
// Every quantised format means integers under scales: element i of a row is
//   scale[i / 16] * code[i] - min[i / 16],
// each scale and minimum rounded to f32, then the product, then the difference. These are the bits
// that ggml's own code gives, except that a zero may have another sign
// (docs/adr/0035-numerics-of-gguf-files.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace dsv4 {

enum class BlockType : uint8_t {
  kNone,  // not a block format
  // Without scales.
  kF32,
  kF16,
  kBf16,
  // Quantised.
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq2Xxs,
  kIq2Xs,
  kIq2S,
  kIq3Xxs,
  kIq3S,
  kIq1S,
  kIq1M,
  kIq4Nl,
  kIq4Xs,
  kMxfp4,
  kNvfp4,
  kCount,
};

struct BlockInfo {
  BlockType type = BlockType::kNone;
  const char* name = "";  // as GGUF has it: "Q8_0", "IQ2_XXS", ...
  uint32_t gguf_id = 0;   // the number of the type in a GGUF file
  int64_t elements = 0;   // of a block
  int64_t bytes = 0;      // of a block
  int f16_scale_at = -1;  // byte of the block at which its f16 scale lies; -1: it has none
  int f16_min_at = -1;    // the same of the f16 minimum, or of the minima's scale

  bool has_min() const { return f16_min_at >= 0; }
};

const BlockInfo& InfoOf(BlockType type);
// nullopt for types that are not read.
std::optional<BlockType> BlockTypeOfGguf(uint32_t gguf_id);
// The name of any number of a type, for messages: "Q8_1", "IQ2_KS (of ik_llama.cpp)", "type 200".
std::string GgufTypeName(uint32_t gguf_id);

constexpr bool IsQuantised(BlockType type) { return type >= BlockType::kQ4_0; }

// Bytes of `k` elements. REQUIRES: k is a multiple of the block's elements.
int64_t BlockBytes(BlockType type, int64_t k);

// Elements of a scale and a minimum of UnpackBlocks.
inline constexpr int64_t kBlockRun = 16;

// The codes, scales and minima of `k` elements at `data`. REQUIRES: a quantised format; k is a
// multiple of its block's elements. `min` may be null if the format has none.
void UnpackBlocks(BlockType type, const uint8_t* data, int64_t k, int8_t* codes, float* scale,
                  float* min);

// The values of `k` elements at `data`, of any format.
void LoadBlocks(BlockType type, const uint8_t* data, int64_t k, float* out);

// Whether a value among `k` elements is infinite or not a number.
bool HasNonFiniteBlocks(BlockType type, const uint8_t* data, int64_t k);

// A matrix [n, k] in a block format, row after row.
struct BlockWeight {
  const uint8_t* data = nullptr;
  BlockType type = BlockType::kNone;
  int64_t n = 0, k = 0;

  const uint8_t* Row(int64_t row) const { return data + row * BlockBytes(type, k); }
};

}  // namespace dsv4
