// SPDX-License-Identifier: Apache-2.0
// A small random model as a GGUF file: three layers (window-only and hash-routed; ratio 4; ratio
// 128), hidden 256, with any block format for each tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "lib/io/gguf.h"
#include "lib/tensor/block_format.h"
#include "tests/support/gguf_image.h"

namespace dsv4::test {

inline constexpr int kGgufVocab = 96, kGgufExperts = 4;

// The keys of llama.cpp's converter, without those of a tokenizer but its tokens.
inline GgufImage GgufModelKeys(int expert_count = kGgufExperts) {
  GgufImage k;
  const std::string p = "deepseek4.";
  k.Key("general.architecture", "deepseek4");
  k.Key(p + "block_count", uint32_t{3});
  k.Key(p + "context_length", uint32_t{4096});
  k.Key(p + "embedding_length", uint32_t{256});
  k.Key(p + "attention.head_count", uint32_t{2});
  k.Key(p + "attention.head_count_kv", uint32_t{1});
  k.Key(p + "attention.key_length", uint32_t{512});
  k.Key(p + "attention.value_length", uint32_t{512});
  k.Key(p + "attention.layer_norm_rms_epsilon", 1e-6f);
  k.Key(p + "attention.q_lora_rank", uint32_t{256});
  k.Key(p + "attention.sliding_window", uint32_t{128});
  k.Key(p + "attention.output_group_count", uint32_t{2});
  k.Key(p + "attention.output_lora_rank", uint32_t{128});
  // Longer than block_count, as in published files.
  k.Array(p + "attention.compress_ratios", GgufImage::kI32, std::vector<int32_t>{0, 4, 128, 0});
  k.Key(p + "attention.compress_rope_freq_base", 160000.0f);
  k.Key(p + "attention.indexer.head_count", uint32_t{2});
  k.Key(p + "attention.indexer.key_length", uint32_t{128});
  k.Key(p + "attention.indexer.top_k", uint32_t{16});
  k.Key(p + "rope.dimension_count", uint32_t{64});
  k.Key(p + "rope.freq_base", 10000.0f);
  k.Key(p + "rope.scaling.type", "yarn");
  k.Key(p + "rope.scaling.factor", 16.0f);
  k.Key(p + "rope.scaling.original_context_length", uint32_t{1024});
  k.Key(p + "rope.scaling.yarn_beta_fast", 32.0f);
  k.Key(p + "rope.scaling.yarn_beta_slow", 1.0f);
  k.Key(p + "expert_count", static_cast<uint32_t>(expert_count));
  k.Key(p + "expert_used_count", uint32_t{2});
  k.Key(p + "expert_shared_count", uint32_t{1});
  k.Key(p + "expert_feed_forward_length", uint32_t{256});
  k.Key(p + "expert_gating_func", uint32_t{4});
  k.Key(p + "expert_weights_scale", 1.5f);
  k.Key(p + "expert_weights_norm", true);
  k.Array(p + "swiglu_clamp_exp", GgufImage::kF32, std::vector<float>{10, 10, 10});
  k.Array(p + "swiglu_clamp_shexp", GgufImage::kF32, std::vector<float>{10, 10, 10});
  k.Key(p + "hash_layer_count", uint32_t{1});
  k.Key(p + "hyper_connection.count", uint32_t{4});
  k.Key(p + "hyper_connection.sinkhorn_iterations", uint32_t{20});
  k.Key(p + "hyper_connection.epsilon", 1e-6f);
  // As ds4's files have it, though there is no such layer.
  k.Key(p + "nextn_predict_layers", uint32_t{1});
  k.Array("tokenizer.ggml.tokens", GgufImage::kString,
          std::vector<std::string>(kGgufVocab, "token"));
  k.Key("tokenizer.ggml.bos_token_id", uint32_t{0});
  k.Key("tokenizer.ggml.eos_token_id", uint32_t{1});
  return k;
}

struct GgufModelTensor {
  std::string name;
  std::vector<uint64_t> dims;
};

// Matrices of the model, which may have any type; the others have their own.
inline std::vector<GgufModelTensor> GgufModelMatrices(int expert_count = kGgufExperts) {
  const auto experts = static_cast<uint64_t>(expert_count);
  std::vector<GgufModelTensor> list = {{"token_embd.weight", {256, kGgufVocab}},
                                       {"output.weight", {256, kGgufVocab}},
                                       {"output_hc_fn.weight", {1024, 4}}};
  for (int layer = 0; layer < 3; ++layer) {
    const auto add = [&](const std::string& name, const std::vector<uint64_t>& dims) {
      list.push_back({"blk." + std::to_string(layer) + "." + name, dims});
    };
    add("attn_q_a.weight", {256, 256});
    add("attn_q_b.weight", {256, 1024});
    add("attn_kv.weight", {256, 512});
    add("attn_output_a.weight", {512, 256});
    add("attn_output_b.weight", {256, 256});
    add("hc_attn_fn.weight", {1024, 24});
    add("hc_ffn_fn.weight", {1024, 24});
    add("ffn_gate_shexp.weight", {256, 256});
    add("ffn_up_shexp.weight", {256, 256});
    add("ffn_down_shexp.weight", {256, 256});
    add("ffn_gate_exps.weight", {256, 256, experts});
    add("ffn_up_exps.weight", {256, 256, experts});
    add("ffn_down_exps.weight", {256, 256, experts});
    if (layer == 0) continue;
    const uint64_t width = layer == 1 ? 1024 : 512;
    add("attn_compressor_kv.weight", {256, width});
    add("attn_compressor_gate.weight", {256, width});
    add("attn_compressor_ape.weight", {width, layer == 1 ? uint64_t{4} : uint64_t{128}});
    if (layer != 1) continue;
    add("indexer.attn_q_b.weight", {256, 256});
    add("indexer.proj.weight", {256, 2});
    add("indexer_compressor_kv.weight", {256, 256});
    add("indexer_compressor_gate.weight", {256, 256});
    add("indexer_compressor_ape.weight", {256, 4});
  }
  return list;
}

// Random blocks whose values are about `size` large.
inline std::string RandomTensorBlocks(BlockType type, int64_t count, float size,
                                      std::mt19937* random) {
  const BlockInfo& info = InfoOf(type);
  std::string data;
  if (type == BlockType::kF32 || type == BlockType::kF16 || type == BlockType::kBf16) {
    for (int64_t i = 0; i < count; ++i) {
      // Few bits, so that every type has the value.
      const auto code = static_cast<float>(static_cast<int>((*random)() % 255) - 127);
      const float value = code * (1.0f / 8192) * (size * 64);
      const auto bits = std::bit_cast<uint32_t>(value);
      if (type == BlockType::kF32) data += Bytes(bits);
      if (type == BlockType::kBf16) data += Bytes(static_cast<uint16_t>(bits >> 16));
      if (type == BlockType::kF16) {
        const uint32_t exponent = bits >> 23 & 255;
        const auto half = static_cast<uint16_t>((bits >> 31 << 15) | (exponent - 112) << 10 |
                                                (bits >> 13 & 1023));
        data += Bytes(exponent <= 112 ? uint16_t{0} : half);
      }
    }
    return data;
  }
  for (int64_t block = 0; block < count / info.elements; ++block) {
    std::string bytes(static_cast<size_t>(info.bytes), '\0');
    for (char& byte : bytes) byte = static_cast<char>((*random)());
    const auto set_half = [&](int at, int exponent) {  // 2^exponent times 1 to 2
      const auto half =
          static_cast<uint16_t>((exponent + 15) << 10 | static_cast<int>((*random)() % 1024));
      std::memcpy(&bytes[static_cast<size_t>(at)], &half, sizeof half);
    };
    const bool wide = info.elements == 256 && type != BlockType::kIq1S;
    if (info.f16_scale_at >= 0) set_half(info.f16_scale_at, wide ? -14 : -11);
    if (info.f16_min_at >= 0) set_half(info.f16_min_at, -13);
    if (type == BlockType::kMxfp4) bytes[0] = static_cast<char>(120 + (*random)() % 3);
    if (type == BlockType::kNvfp4) {
      for (int i = 0; i < 4; ++i) bytes[static_cast<size_t>(i)] = static_cast<char>(16 + i);
    }
    if (type == BlockType::kIq1M) {
      // The words' upper nibbles are the scale: 2^-12.
      for (int word = 0; word < 4; ++word) {
        char& high = bytes[static_cast<size_t>(49 + 2 * word)];
        high = static_cast<char>((high & 15) | (word == 3 ? 0x10 : 0));
      }
    }
    data += bytes;
  }
  return data;
}

// The whole model. `type_of` chooses a matrix's type; `widened`: its values as F32 instead.
inline std::string GgufModelImage(const std::function<BlockType(const std::string&)>& type_of,
                                  bool widened = false, int expert_count = kGgufExperts) {
  GgufImage image = GgufModelKeys(expert_count);
  std::mt19937 random(7);
  const auto add_f32 = [&](const std::string& name, uint64_t n, float middle, float spread) {
    std::string data;
    for (uint64_t i = 0; i < n; ++i) {
      const auto code = static_cast<float>(static_cast<int>(random() % 17) - 8);
      data += Bytes(middle + spread * code / 8);
    }
    image.Tensor(name, 0, {n}, data);
  };
  for (const GgufModelTensor& tensor : GgufModelMatrices(expert_count)) {
    int64_t count = 1;
    for (const uint64_t dim : tensor.dims) count *= static_cast<int64_t>(dim);
    const BlockType type = type_of(tensor.name);
    const std::string data = RandomTensorBlocks(type, count, 0.05f, &random);
    if (!widened) {
      image.Tensor(tensor.name, InfoOf(type).gguf_id, tensor.dims, data);
      continue;
    }
    std::string values(static_cast<size_t>(count) * sizeof(float), '\0');
    LoadBlocks(type, reinterpret_cast<const uint8_t*>(data.data()), count,
               reinterpret_cast<float*>(values.data()));
    image.Tensor(tensor.name, 0, tensor.dims, values);
  }
  add_f32("output_norm.weight", 256, 1, 0.25f);
  add_f32("output_hc_base.weight", 4, 0, 1);
  add_f32("output_hc_scale.weight", 1, 0.5f, 0);
  for (int layer = 0; layer < 3; ++layer) {
    const std::string p = "blk." + std::to_string(layer) + ".";
    for (const char* name : {"attn_norm", "ffn_norm", "attn_q_a_norm"}) {
      add_f32(p + name + ".weight", 256, 1, 0.25f);
    }
    add_f32(p + "attn_kv_a_norm.weight", 512, 1, 0.25f);
    add_f32(p + "attn_sinks.weight", 2, 0, 1);
    for (const char* name : {"hc_attn", "hc_ffn"}) {
      add_f32(p + name + "_base.weight", 24, 0, 1);
      add_f32(p + name + "_scale.weight", 3, 0.5f, 0.25f);
    }
    if (layer > 0) add_f32(p + "attn_compressor_norm.weight", 512, 1, 0.25f);
    if (layer == 1) add_f32(p + "indexer_compressor_norm.weight", 128, 1, 0.25f);
    image.Tensor(p + "ffn_gate_inp.weight", 30, {256, static_cast<uint64_t>(expert_count)},
                 RandomTensorBlocks(BlockType::kBf16, 256 * expert_count, 0.1f, &random));
    if (layer > 0) {
      add_f32(p + "exp_probs_b.bias", static_cast<uint64_t>(expert_count), 0, 0.1f);
      continue;
    }
    std::string experts;
    for (int token = 0; token < kGgufVocab; ++token) {
      experts += Bytes(int32_t{token % expert_count}) + Bytes(int32_t{(token + 1) % expert_count});
    }
    image.Tensor(p + "ffn_gate_tid2eid.weight", kGgufI32, {2, kGgufVocab}, experts);
  }
  return image.Write();
}

}  // namespace dsv4::test
