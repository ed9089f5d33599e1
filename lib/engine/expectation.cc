// SPDX-License-Identifier: Apache-2.0
#include "lib/engine/expectation.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace dsv4 {
namespace {

constexpr double kLinkShare = 0.9;  // of the link's rate, when steps of long prompts stream experts

// By a part of the vendor's name: bytes per second of copies, about 0.85 of the data sheet's.
constexpr struct {
  const char* name;
  double memory;
} kGpus[] = {{"H200", 4.0e12},          {"H100", 2.85e12},     {"RTX PRO 6000", 1.52e12},
             {"RTX PRO 5000", 1.14e12}, {"RTX 5090", 1.52e12}, {"RTX 5080", 0.82e12},
             {"RTX 5070 Ti", 0.76e12},  {"RTX 5070", 0.57e12}, {"RTX 5060", 0.38e12}};
constexpr double kUnknownGpu = 0.57e12, kIntegratedGpu = 0.23e12;

// The last number of "fp8+fp4" and the like: bytes of a weight of a routed expert, with scales.
// 0: block formats.
double ExpertWeightBytes(absl::string_view format) {
  if (absl::EndsWith(format, "+nvfp4")) return 9.0 / 16;
  if (absl::EndsWith(format, "+fp4")) return 17.0 / 32;
  if (absl::EndsWith(format, "+fp8")) return 1;
  return 0;
}

// Blocks with routed experts: the layers, and the drafter's.
int64_t BlocksWithExperts(const EngineInfo& info, const ModelConfig& config) {
  const int64_t layers = config.num_hidden_layers;
  switch (info.checkpoint_drafter) {
    case DrafterKind::kMtp:
      return layers + 1;
    case DrafterKind::kDspark:
      return std::max(layers, static_cast<int64_t>(config.compress_ratios.size()));
    default:
      return layers;
  }
}

}  // namespace

DeviceRates RatesOf(Backend backend, const DeviceTraits& traits, bool integrated, int threads) {
  if (backend != Backend::kCuda) {
    // A core reads about 13 GB/s; two channels of DDR5 give 80.
    const double memory = std::min(13e9 * threads, 80e9);
    return {.memory = memory, .host = memory, .layer_seconds = 20e-6};
  }
  DeviceRates rates{.memory = integrated ? kIntegratedGpu : kUnknownGpu,
                    .host = 50e9,  // PCIe 5.0 x16
                    .flops = 1.5e12 * traits.multiprocessors,
                    .layer_seconds = 55e-6,
                    // benchmarks/results/h200/2026-11-28-gguf.txt
                    .block_seconds = 60e-6,
                    .block_flops = 0.4,
                    .exchange_seconds = 22e-6};
  for (const auto& gpu : kGpus) {
    if (!absl::StrContains(traits.name, gpu.name)) continue;
    rates.memory = gpu.memory;
    break;
  }
  if (integrated) rates.host = rates.memory;
  return rates;
}

TokenWork WorkOf(const EngineInfo& info, const ModelConfig& config,
                 const std::string& weight_format) {
  const ResidencyPlan& experts = info.residency;
  const auto number = [](int64_t value) { return static_cast<double>(value); };
  const double weights_of_expert =
      3 * number(config.hidden_size) * number(config.moe_intermediate_size);
  const double all_experts = number(BlocksWithExperts(info, config) * config.n_routed_experts);
  const double all_bytes = number(info.weight_bytes);
  const auto ranks = static_cast<double>(std::max<size_t>(info.devices.size(), 1));
  TokenWork work{.layers = config.num_hidden_layers,
                 .ranks = static_cast<int>(ranks),
                 .chunk_tokens = info.prefill_chunk_tokens};
  const double known = ExpertWeightBytes(weight_format);
  work.blocks = known == 0;
  const double chosen = number(config.num_hidden_layers * config.num_experts_per_tok);
  work.expert_weights = chosen * weights_of_expert;
  double device_experts = 0;  // bytes
  if (experts.all() > 0 && experts.expert_bytes > 0) {
    for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      work.expert_bytes += number(config.num_experts_per_tok * experts.ExpertBytes(layer));
    }
    const double all = number(experts.all_bytes());
    work.all_host_bytes = number(experts.host_expert_bytes());
    work.all_disk_bytes = number(experts.disk_bytes());
    work.host_share = work.all_host_bytes / all;
    // Those that were read last stay on the device.
    work.disk_share = std::max(work.all_disk_bytes - number(experts.guest_bytes()), 0.0) / all;
    device_experts = info.backend == Backend::kCuda ? number(experts.device_bytes()) : all;
  } else {
    device_experts = info.mapped_expert_bytes > 0
                         ? number(info.mapped_expert_bytes)
                         // In other formats nearly all weights are routed experts.
                         : (known > 0 ? all_experts * weights_of_expert * known : 0.95 * all_bytes);
    device_experts = std::min(device_experts, all_bytes);
    work.expert_bytes = all_experts > 0 ? device_experts * chosen / all_experts : 0;
  }
  const double table = 2 * number(config.vocab_size) * number(config.hidden_size);
  // A token reads one row of the embedding, which every device has.
  const double tables = info.backend == Backend::kCuda ? ranks * table : table;
  work.dense_bytes = std::max(all_bytes - device_experts - tables, table);
  work.head_bytes = table;
  return work;
}

Expectation Expect(const TokenWork& work, const DeviceRates& rates) {
  Expectation expected;
  if (rates.memory <= 0 || work.layers == 0) return expected;
  const double device_share = 1 - work.host_share - work.disk_share;
  const double seconds =
      (work.dense_bytes + device_share * work.expert_bytes) / rates.memory / work.ranks +
      work.host_share * work.expert_bytes / rates.host / work.ranks +
      work.disk_share * work.expert_bytes / rates.disk +
      static_cast<double>(work.layers) *
          (rates.layer_seconds + (work.blocks ? rates.block_seconds : 0) +
           (work.ranks > 1 ? rates.exchange_seconds : 0));
  expected.decode = 1 / seconds;
  if (rates.flops <= 0) return expected;
  const double flops = 2 * (work.dense_bytes - work.head_bytes + work.expert_weights);
  const double rate = rates.flops * (work.blocks ? rates.block_flops : 1) * work.ranks;
  const double compute = flops * static_cast<double>(work.chunk_tokens) / rate;
  const double streamed = work.all_host_bytes / (kLinkShare * rates.host) / work.ranks;
  expected.prefill = static_cast<double>(work.chunk_tokens) /
                     (std::max(compute, streamed) + work.all_disk_bytes / rates.disk);
  return expected;
}

}  // namespace dsv4
