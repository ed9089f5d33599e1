// SPDX-License-Identifier: Apache-2.0
#include "lib/tensor/block_format.h"

#include <array>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "lib/tensor/dtype.h"

namespace dsv4 {
namespace {

constexpr std::array<BlockInfo, static_cast<size_t>(BlockType::kCount)> kInfos = {{
    {BlockType::kNone, "none", ~uint32_t{0}, 1, 1},
    {BlockType::kF32, "F32", 0, 1, 4},
    {BlockType::kF16, "F16", 1, 1, 2},
    {BlockType::kBf16, "BF16", 30, 1, 2},
    {BlockType::kQ4_0, "Q4_0", 2, 32, 18, 0},
    {BlockType::kQ4_1, "Q4_1", 3, 32, 20, 0, 2},
    {BlockType::kQ5_0, "Q5_0", 6, 32, 22, 0},
    {BlockType::kQ5_1, "Q5_1", 7, 32, 24, 0, 2},
    {BlockType::kQ8_0, "Q8_0", 8, 32, 34, 0},
    {BlockType::kQ2K, "Q2_K", 10, 256, 84, 80, 82},
    {BlockType::kQ3K, "Q3_K", 11, 256, 110, 108},
    {BlockType::kQ4K, "Q4_K", 12, 256, 144, 0, 2},
    {BlockType::kQ5K, "Q5_K", 13, 256, 176, 0, 2},
    {BlockType::kQ6K, "Q6_K", 14, 256, 210, 208},
    {BlockType::kIq2Xxs, "IQ2_XXS", 16, 256, 66, 0},
    {BlockType::kIq2Xs, "IQ2_XS", 17, 256, 74, 0},
    {BlockType::kIq2S, "IQ2_S", 22, 256, 82, 0},
    {BlockType::kIq3Xxs, "IQ3_XXS", 18, 256, 98, 0},
    {BlockType::kIq3S, "IQ3_S", 21, 256, 110, 0},
    {BlockType::kIq1S, "IQ1_S", 19, 256, 50, 0},
    {BlockType::kIq1M, "IQ1_M", 29, 256, 56},
    {BlockType::kIq4Nl, "IQ4_NL", 20, 32, 18, 0},
    {BlockType::kIq4Xs, "IQ4_XS", 23, 256, 136, 0},
    {BlockType::kMxfp4, "MXFP4", 39, 32, 17},
    {BlockType::kNvfp4, "NVFP4", 40, 64, 36},
}};

constexpr bool InEnumOrder() {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    if (static_cast<size_t>(kInfos[i].type) != i) return false;
  }
  return true;
}
static_assert(InEnumOrder());

// Types that ggml and its relatives have, and that are not read.
struct UnreadType {
  uint32_t gguf_id;
  const char* name;
};
constexpr UnreadType kUnread[] = {
    {9, "Q8_1"},
    {15, "Q8_K"},
    {24, "I8"},
    {25, "I16"},
    {26, "I32"},
    {27, "I64"},
    {28, "F64"},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {105, "105 (of Lucebox)"},
    {106, "106 (of Lucebox)"},
    {133, "Q6_0 (of ik_llama.cpp)"},
    {134, "IQ1_BN (of ik_llama.cpp)"},
    {135, "IQ2_BN (of ik_llama.cpp)"},
    {136, "Q8_K64 (of ik_llama.cpp)"},
    {137, "IQ2_K (of ik_llama.cpp)"},
    {138, "IQ3_K (of ik_llama.cpp)"},
    {139, "IQ4_K (of ik_llama.cpp)"},
    {140, "IQ5_K (of ik_llama.cpp)"},
    {141, "IQ6_K (of ik_llama.cpp)"},
    {144, "IQ4_KS (of ik_llama.cpp)"},
    {145, "IQ2_KS (of ik_llama.cpp)"},
    {146, "IQ4_KSS (of ik_llama.cpp)"},
    {152, "IQ5_KS (of ik_llama.cpp)"},
    {153, "IQ2_KT (of ik_llama.cpp)"},
    {154, "IQ3_KT (of ik_llama.cpp)"},
    {155, "IQ4_KT (of ik_llama.cpp)"},
    {156, "IQ3_KS (of ik_llama.cpp)"},
    {157, "IQ2_KL (of ik_llama.cpp)"},
    {158, "IQ1_KT (of ik_llama.cpp)"},
};

// Elements that LoadBlocks unpacks at once: a multiple of every block's.
constexpr int64_t kPiece = 256;

}  // namespace

const BlockInfo& InfoOf(BlockType type) { return kInfos[static_cast<size_t>(type)]; }

std::optional<BlockType> BlockTypeOfGguf(uint32_t gguf_id) {
  for (const BlockInfo& info : kInfos) {
    if (info.type != BlockType::kNone && info.gguf_id == gguf_id) return info.type;
  }
  return std::nullopt;
}

std::string GgufTypeName(uint32_t gguf_id) {
  if (const std::optional<BlockType> type = BlockTypeOfGguf(gguf_id)) return InfoOf(*type).name;
  for (const UnreadType& type : kUnread) {
    if (type.gguf_id == gguf_id) return type.name;
  }
  // ik_llama.cpp numbers interleaved variants of its types and of ggml's from 200 on.
  const bool ik = (gguf_id >= 137 && gguf_id <= 158) || (gguf_id >= 200 && gguf_id < 400);
  return absl::StrCat("type ", gguf_id, ik ? " (of ik_llama.cpp)" : "");
}

int64_t BlockBytes(BlockType type, int64_t k) {
  const BlockInfo& info = InfoOf(type);
  return k / info.elements * info.bytes;
}

void LoadBlocks(BlockType type, const uint8_t* data, int64_t k, float* out) {
  switch (type) {
    case BlockType::kNone:
      return;
    case BlockType::kF32:
      std::memcpy(out, data, static_cast<size_t>(k) * sizeof(float));
      return;
    case BlockType::kF16:
    case BlockType::kBf16:
      for (int64_t i = 0; i < k; ++i) {
        uint16_t bits;
        std::memcpy(&bits, data + 2 * i, sizeof bits);
        out[i] = type == BlockType::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
      }
      return;
    default:
      break;
  }
  int8_t codes[kPiece];
  float scale[kPiece / kBlockRun], min[kPiece / kBlockRun];
  const bool has_min = InfoOf(type).has_min();
  for (int64_t begin = 0; begin < k; begin += kPiece) {
    const int64_t count = k - begin < kPiece ? k - begin : kPiece;
    UnpackBlocks(type, data + BlockBytes(type, begin), count, codes, scale, min);
    for (int64_t i = 0; i < count; ++i) {
      const float product = scale[i / kBlockRun] * static_cast<float>(codes[i]);
      out[begin + i] = has_min ? product - min[i / kBlockRun] : product;
    }
  }
}

bool HasNonFiniteBlocks(BlockType type, const uint8_t* data, int64_t k) {
  const BlockInfo& info = InfoOf(type);
  bool bad = false;
  if (!IsQuantised(type)) {
    float values[kPiece];
    for (int64_t begin = 0; begin < k; begin += kPiece) {
      const int64_t count = k - begin < kPiece ? k - begin : kPiece;
      LoadBlocks(type, data + BlockBytes(type, begin), count, values);
      for (int64_t i = 0; i < count; ++i) bad |= !std::isfinite(values[i]);
    }
    return bad;
  }
  // Products of finite f16 scales and codes are finite.
  const auto is_bad = [](const uint8_t* p) { return (p[1] & 0x7c) == 0x7c; };
  for (int64_t i = 0; i < k / info.elements; ++i) {
    const uint8_t* const block = data + i * info.bytes;
    if (info.f16_scale_at >= 0) bad |= is_bad(block + info.f16_scale_at);
    if (info.f16_min_at >= 0) bad |= is_bad(block + info.f16_min_at);
    if (type == BlockType::kMxfp4) bad |= block[0] == 255;
    if (type == BlockType::kIq1M) {
      // The upper byte of the scale lies in the upper nibbles of two words.
      const uint8_t scale[2] = {0, static_cast<uint8_t>(block[53] >> 4 | (block[55] & 0xf0))};
      bad |= is_bad(scale);
    }
  }
  return bad;
}

}  // namespace dsv4
