// SPDX-License-Identifier: Apache-2.0
#include "lib/weights/synthetic_mix.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"

namespace dsv4 {
namespace {

// As the files' headers have them. Unsloth's files give single layers other types.
struct Mix {
  const char* name;
  BlockType gate_up, down;  // of routed experts
  // Those of the layers from `later_from` on.
  int64_t later_from;
  BlockType later_gate_up;
  // The types of layer kOddLayer; kNone: as all others. There and in kOddLayer2, odd_down.
  BlockType odd_gate_up, odd_down;
  BlockType query_down, shared_gate_up, shared_down, head, embedding;
  BlockType compressor;  // and the indexer's queries
  BlockType small;       // positions, the indexer's weights, hyper-connections
  BlockType router;
};
using enum BlockType;

constexpr int64_t kOddLayer = 26, kOddLayer2 = 42, kNever = INT64_MAX;
constexpr Mix kMixes[] = {
    {"ds4-q2", kIq2Xxs, kQ2K, kNever, kNone, kNone, kNone, kQ8_0, kQ8_0, kQ8_0, kQ8_0, kF16, kF16,
     kF16, kF16},
    {"ud-iq2_xxs", kIq2Xxs, kIq3Xxs, kNever, kNone, kIq2S, kMxfp4, kQ5K, kQ5K, kQ6K, kQ4K, kQ4K,
     kQ8_0, kF32, kBf16},
    {"ud-q2_k_xl", kIq2Xs, kIq3Xxs, kNever, kNone, kIq3Xxs, kMxfp4, kQ5K, kQ5K, kQ6K, kQ4K, kQ5K,
     kQ8_0, kF32, kBf16},
    {"ud-iq3_xxs", kIq2Xs, kIq3Xxs, 25, kIq3Xxs, kIq3S, kMxfp4, kQ6K, kQ6K, kQ6K, kQ6K, kQ6K, kQ8_0,
     kF32, kBf16},
};

int64_t LayerOf(absl::string_view name) {
  int64_t layer = -1;
  if (!absl::ConsumePrefix(&name, "layers.")) return -1;
  return absl::SimpleAtoi(name.substr(0, name.find('.')), &layer) ? layer : -1;
}

// The type of a matrix; kNone: the tensor keeps its type.
BlockType TypeIn(const Mix& mix, absl::string_view name) {
  const int64_t layer = LayerOf(name);
  const auto ends = [name](absl::string_view end) { return absl::EndsWith(name, end); };
  if (absl::StrContains(name, ".ffn.experts.")) {
    if (ends(".w2.weight")) {
      const bool odd = mix.odd_down != kNone && (layer == kOddLayer || layer == kOddLayer2);
      return odd ? mix.odd_down : mix.down;
    }
    if (mix.odd_gate_up != kNone && layer == kOddLayer) return mix.odd_gate_up;
    return layer >= mix.later_from ? mix.later_gate_up : mix.gate_up;
  }
  if (name == "embed.weight") return mix.embedding;
  if (name == "head.weight") return mix.head;
  if (ends(".attn.wq_a.weight")) return mix.query_down;
  if (ends(".shared_experts.w2.weight")) return mix.shared_down;
  if (absl::StrContains(name, ".shared_experts.")) return mix.shared_gate_up;
  if (ends(".ffn.gate.weight")) return mix.router;
  if (ends(".ape") || ends(".weights_proj.weight") || ends("_fn")) return mix.small;
  if (absl::StrContains(name, "compressor.w") || absl::StrContains(name, ".indexer.wq_b")) {
    return mix.compressor;
  }
  if (absl::StrContains(name, ".attn.w")) return kQ8_0;
  return kNone;
}

// The types of kEveryType, one after another.
class EveryType {
 public:
  BlockType Of(const TensorEntry& entry) {
    absl::string_view name = entry.name;
    const size_t expert = name.find(".experts.");
    const bool routed = expert != absl::string_view::npos;
    // "layers.3.ffn" and "w1.weight"
    const std::string key =
        routed ? absl::StrCat(name.substr(0, expert), name.substr(name.find('.', expert + 9)))
               : std::string(name);
    const int64_t k = entry.shape.back() * (entry.dtype == DType::kI8 ? 2 : 1);
    const auto [known, is_new] = types_.try_emplace(key, kNone);
    while (known->second == kNone) {
      const auto type = static_cast<BlockType>(next_);
      next_ = next_ + 1 == static_cast<int>(kCount) ? static_cast<int>(kF32) : next_ + 1;
      if (k % InfoOf(type).elements == 0) known->second = type;
    }
    return known->second;
  }

 private:
  std::map<std::string, BlockType> types_;
  int next_ = static_cast<int>(kQ4_0);
};

void SetType(BlockType type, TensorEntry* entry) {
  if (entry->dtype == DType::kI8) entry->shape.back() *= 2;  // two e2m1 codes a byte
  entry->dtype = type == kF32    ? DType::kF32
                 : type == kF16  ? DType::kF16
                 : type == kBf16 ? DType::kBF16
                                 : DType::kBlocks;
  if (entry->dtype == DType::kBlocks) entry->blocks = type;
  entry->bytes = BlockBytes(type, entry->shape.front() * entry->shape.back());
}

}  // namespace

std::vector<absl::string_view> MixNames() {
  std::vector<absl::string_view> names;
  for (const Mix& mix : kMixes) names.emplace_back(mix.name);
  return names;
}

absl::Status ApplyMix(absl::string_view name, std::vector<TensorEntry>* tensors) {
  const Mix* mix = std::find_if(std::begin(kMixes), std::end(kMixes),
                                [name](const Mix& known) { return known.name == name; });
  const bool every = name == kEveryType;
  if (mix == std::end(kMixes) && !every) {
    return InvalidArgument("mix of types ", Quoted(name), "; expected one of ",
                           absl::StrJoin(MixNames(), ", "));
  }
  if (every) mix = &kMixes[1];  // says which tensors are matrices; no other of them is F32
  EveryType every_type;
  std::vector<TensorEntry> changed;
  for (TensorEntry& entry : *tensors) {
    if (absl::EndsWith(entry.name, ".scale") || absl::StartsWith(entry.name, "mtp.")) continue;
    if (entry.shape.size() == 2) {
      BlockType type = TypeIn(*mix, entry.name);
      if (every && type != kNone && type != mix->small) type = every_type.Of(entry);
      if (type != kNone) SetType(type, &entry);
    } else if (entry.dtype == DType::kBF16) {
      entry.dtype = DType::kF32;
      entry.bytes *= 2;
    }
    changed.push_back(std::move(entry));
  }
  *tensors = std::move(changed);
  return absl::OkStatus();
}

std::vector<uint8_t> RandomBlocks(BlockType type, int64_t bytes) {
  std::mt19937_64 random(static_cast<uint64_t>(type));
  std::vector<uint8_t> memory(static_cast<size_t>(bytes));
  for (size_t at = 0; at < memory.size(); at += sizeof(uint64_t)) {
    const uint64_t bits = random();
    std::memcpy(memory.data() + at, &bits, std::min(sizeof bits, memory.size() - at));
  }
  const BlockInfo& info = InfoOf(type);
  // Blocks of 256 elements have integer scales below their own.
  const int exponent = type == kQ8_0 ? -14 : info.elements == 256 && type != kIq1S ? -15 : -11;
  for (uint8_t* block = memory.data(); block < memory.data() + memory.size(); block += info.bytes) {
    // 2^e times 1 to 2 as an f16.
    const auto set_half = [block](int at, int e) {
      const uint16_t half = static_cast<uint16_t>((block[at] | (block[at + 1] << 8)) & 0x3ff) |
                            static_cast<uint16_t>((e + 15) << 10);
      std::memcpy(block + at, &half, sizeof half);
    };
    if (info.f16_scale_at >= 0) set_half(info.f16_scale_at, std::max(exponent, -14));
    if (info.f16_min_at >= 0) set_half(info.f16_min_at, std::max(exponent, -14));
    if (type == kMxfp4) block[0] = 118;  // 2^-9
    if (type == kNvfp4) std::fill_n(block, 4, uint8_t{16});
    // Each word's upper four bits are a quarter of the scale, an f16 of about 2^-12.
    for (int word = 0; type == kIq1M && word < 4; ++word) {
      uint8_t& high = block[49 + 2 * word];
      high = static_cast<uint8_t>((high & 15) | (word == 3 ? 0x10 : 0));
    }
  }
  return memory;
}

}  // namespace dsv4
