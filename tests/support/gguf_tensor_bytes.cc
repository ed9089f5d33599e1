// SPDX-License-Identifier: Apache-2.0
#include "tests/support/gguf_tensor_bytes.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/io/gguf.h"
#include "lib/tensor/block_format.h"
#include "lib/tensor/dtype.h"
#include "tests/support/gguf_image.h"

namespace dsv4::test {
namespace {

float OfE4m3(uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(1 + static_cast<float>(mantissa) / 8, exponent - 7);
  return (code & 0x80) != 0 ? -size : size;
}

float OfE2m1(int code) {
  constexpr float kSizes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (code & 8) != 0 ? -kSizes[code & 7] : kSizes[code & 7];
}

// The nearest half, of two equally near the even one. REQUIRES: a finite half.
uint16_t HalfOf(float value) {
  const auto sign = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16 & 0x8000);
  const float size = std::fabs(value);
  if (size < 0x1p-14f) {  // a multiple of 2^-24; the default rounding is to nearest even
    return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::nearbyint(size * 0x1p24f)));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(size) - (112u << 23);
  return static_cast<uint16_t>(sign | (bits + 0xfff + (bits >> 13 & 1)) >> 13);
}

std::string Q8_0Bytes(const std::vector<float>& values) {
  std::string bytes;
  for (size_t block = 0; block < values.size(); block += 32) {
    float most = 0;
    for (size_t i = 0; i < 32; ++i) most = std::max(most, std::fabs(values[block + i]));
    const float scale = most / 127, inverse = scale == 0 ? 0 : 1 / scale;
    bytes += Bytes(HalfOf(scale));
    // Halves away from zero.
    for (size_t i = 0; i < 32; ++i) {
      bytes += static_cast<char>(static_cast<int>(std::round(values[block + i] * inverse)));
    }
  }
  return bytes;
}

// Pairs (2j, 2j + 1) become (j, j + 16), behind the scale.
std::string Mxfp4Bytes(const TensorEntry& packed, const TensorEntry& scale) {
  std::string bytes;
  for (int64_t run = 0; run < scale.bytes; ++run) {
    const uint8_t* const pairs = packed.data + 16 * run;
    const auto code = [&](int i) { return pairs[i / 2] >> (i % 2 * 4) & 15; };
    bytes += static_cast<char>(scale.data[run]);
    for (int j = 0; j < 16; ++j) bytes += static_cast<char>(code(j) | code(j + 16) << 4);
  }
  return bytes;
}

// The name in checkpoints, "" for names of no tensor. Of experts "layers.N.ffn.experts.", and their
// matrix in `expert_matrix`.
std::string CheckpointName(absl::string_view name, std::string* expert_matrix) {
  for (const auto& [own, gguf] : GgufTopNames()) {
    if (gguf == name) return own;
  }
  if (!absl::ConsumePrefix(&name, "blk.")) return "";
  const size_t dot = name.find('.');
  if (dot == absl::string_view::npos) return "";
  const std::string layer = absl::StrCat("layers.", name.substr(0, dot + 1));
  name.remove_prefix(dot + 1);
  for (const auto& [own, gguf] : GgufBlockNames()) {
    if (gguf == name) return layer + own;
  }
  absl::ConsumeSuffix(&name, ".weight");
  for (const auto& [own, gguf] : GgufExpertNames()) {
    if (gguf != name) continue;
    *expert_matrix = own;
    return layer + "ffn.experts.";
  }
  return "";
}

}  // namespace

const std::map<std::string, std::string>& GgufTopNames() {
  static const auto* const names = new std::map<std::string, std::string>{
      {"embed.weight", "token_embd.weight"},     {"head.weight", "output.weight"},
      {"norm.weight", "output_norm.weight"},     {"hc_head_fn", "output_hc_fn.weight"},
      {"hc_head_base", "output_hc_base.weight"}, {"hc_head_scale", "output_hc_scale.weight"},
  };
  return *names;
}

const std::map<std::string, std::string>& GgufBlockNames() {
  static const auto* const names = new std::map<std::string, std::string>{
      {"attn_norm.weight", "attn_norm.weight"},
      {"ffn_norm.weight", "ffn_norm.weight"},
      {"attn.attn_sink", "attn_sinks.weight"},
      {"attn.wq_a.weight", "attn_q_a.weight"},
      {"attn.q_norm.weight", "attn_q_a_norm.weight"},
      {"attn.wq_b.weight", "attn_q_b.weight"},
      {"attn.wkv.weight", "attn_kv.weight"},
      {"attn.kv_norm.weight", "attn_kv_a_norm.weight"},
      {"attn.wo_a.weight", "attn_output_a.weight"},
      {"attn.wo_b.weight", "attn_output_b.weight"},
      {"attn.compressor.ape", "attn_compressor_ape.weight"},
      {"attn.compressor.wkv.weight", "attn_compressor_kv.weight"},
      {"attn.compressor.wgate.weight", "attn_compressor_gate.weight"},
      {"attn.compressor.norm.weight", "attn_compressor_norm.weight"},
      {"attn.indexer.wq_b.weight", "indexer.attn_q_b.weight"},
      {"attn.indexer.weights_proj.weight", "indexer.proj.weight"},
      {"attn.indexer.compressor.ape", "indexer_compressor_ape.weight"},
      {"attn.indexer.compressor.wkv.weight", "indexer_compressor_kv.weight"},
      {"attn.indexer.compressor.wgate.weight", "indexer_compressor_gate.weight"},
      {"attn.indexer.compressor.norm.weight", "indexer_compressor_norm.weight"},
      {"ffn.gate.weight", "ffn_gate_inp.weight"},
      {"ffn.gate.bias", "exp_probs_b.bias"},
      {"ffn.gate.tid2eid", "ffn_gate_tid2eid.weight"},
      {"ffn.shared_experts.w1.weight", "ffn_gate_shexp.weight"},
      {"ffn.shared_experts.w3.weight", "ffn_up_shexp.weight"},
      {"ffn.shared_experts.w2.weight", "ffn_down_shexp.weight"},
      {"hc_attn_fn", "hc_attn_fn.weight"},
      {"hc_attn_base", "hc_attn_base.weight"},
      {"hc_attn_scale", "hc_attn_scale.weight"},
      {"hc_ffn_fn", "hc_ffn_fn.weight"},
      {"hc_ffn_base", "hc_ffn_base.weight"},
      {"hc_ffn_scale", "hc_ffn_scale.weight"},
  };
  return *names;
}

const std::map<std::string, std::string>& GgufExpertNames() {
  static const auto* const names = new std::map<std::string, std::string>{
      {"w1", "ffn_gate_exps"}, {"w3", "ffn_up_exps"}, {"w2", "ffn_down_exps"}};
  return *names;
}

std::vector<float> ValuesOf(const Checkpoint& checkpoint, const std::string& name) {
  const TensorEntry& entry = *checkpoint.Find(name);
  std::vector<float> values;
  if (entry.dtype == DType::kF32) {
    values.resize(static_cast<size_t>(entry.bytes) / sizeof(float));
    std::memcpy(values.data(), entry.data, static_cast<size_t>(entry.bytes));
    return values;
  }
  if (entry.dtype == DType::kBF16) {
    for (int64_t i = 0; i < entry.bytes; i += 2) {
      values.push_back(std::bit_cast<float>(
          static_cast<uint32_t>(entry.data[i] | entry.data[i + 1] << 8) << 16));
    }
    return values;
  }
  const TensorEntry& scale =
      *checkpoint.Find(absl::StrCat(absl::StripSuffix(name, "weight"), "scale"));
  const bool fp8 = entry.dtype == DType::kF8E4M3;
  const int64_t rows = entry.shape[0], k = entry.shape[1] * (fp8 ? 1 : 2);
  const int64_t scales = scale.shape[1];
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t at = fp8 ? row / 128 * scales + i / 128 : row * scales + i / 32;
      const float value = fp8 ? OfE4m3(entry.data[row * k + i])
                              : OfE2m1(entry.data[(row * k + i) / 2] >> (i % 2 * 4) & 15);
      values.push_back(std::ldexp(value, scale.data[at] - 127));
    }
  }
  return values;
}

std::optional<std::string> GgufTensorBytes(const Checkpoint& checkpoint, absl::string_view name,
                                           uint32_t type) {
  std::string matrix, bytes;
  const std::string own = CheckpointName(name, &matrix);
  const std::optional<BlockType> block = BlockTypeOfGguf(type);
  if (!matrix.empty()) {
    if (block != BlockType::kMxfp4) return std::nullopt;
    for (int expert = 0;; ++expert) {
      const std::string stem = absl::StrCat(own, expert, ".", matrix);
      const TensorEntry* const packed = checkpoint.Find(stem + ".weight");
      const TensorEntry* const scale = checkpoint.Find(stem + ".scale");
      if (packed == nullptr || scale == nullptr) break;
      bytes += Mxfp4Bytes(*packed, *scale);
    }
    if (bytes.empty()) return std::nullopt;
    return bytes;
  }
  const TensorEntry* const entry = checkpoint.Find(own);
  if (entry == nullptr) return std::nullopt;
  if (entry->dtype == DType::kI64) {
    if (type != kGgufI32) return std::nullopt;
    for (int64_t i = 0; i < entry->bytes; i += 8) {
      bytes.append(reinterpret_cast<const char*>(entry->data + i), 4);
    }
    return bytes;
  }
  if (!block) return std::nullopt;
  if (block == BlockType::kQ8_0) return Q8_0Bytes(ValuesOf(checkpoint, own));
  if (block != BlockType::kF32 && block != BlockType::kF16 && block != BlockType::kBf16) {
    return std::nullopt;
  }
  for (const float value : ValuesOf(checkpoint, own)) {
    bytes += block == BlockType::kF32   ? Bytes(value)
             : block == BlockType::kF16 ? Bytes(HalfOf(value))
                                        : Bytes(FloatToBf16(value));
  }
  return bytes;
}

}  // namespace dsv4::test
