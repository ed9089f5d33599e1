// SPDX-License-Identifier: Apache-2.0
// How fast an engine is expected to be, from its plan: the bytes that a token reads from each kind
// of memory, and table values for the rates of a device. The constants are fitted to the records in
// benchmarks/results; tests compare both.
#pragma once

#include <cstdint>
#include <string>

#include "lib/device/device_traits.h"
#include "lib/step/engine_facts.h"

namespace dsv4 {

// Rates of one device.
struct DeviceRates {
  double memory = 0;            // bytes per second
  double host = 0;              // bytes per second from host memory
  double disk = 3e9;            // bytes per second, of the machine
  double flops = 0;             // of long prompts, per second; 0: unknown
  double layer_seconds = 0;     // of a layer of a short step, besides reading
  double block_seconds = 0;     // more, of a layer whose experts are in block formats
  double block_flops = 1;       // share of `flops` that is left with such experts
  double exchange_seconds = 0;  // of the exchanges of a layer between devices
};

// Table values. `threads`: of the CPU.
DeviceRates RatesOf(Backend backend, const DeviceTraits& traits, bool integrated, int threads);

// What a token reads and computes, on all devices together.
struct TokenWork {
  int64_t layers = 0;
  int ranks = 1;
  bool blocks = false;        // the experts are in block formats
  int64_t chunk_tokens = 1;   // of a prompt's step
  double dense_bytes = 0;     // read by every step of one session
  double head_bytes = 0;      // part of dense_bytes that prompts do not read
  double expert_bytes = 0;    // of routed experts that one token chooses
  double expert_weights = 0;  // numbers in them
  double host_share = 0;      // of experts in host memory
  double disk_share = 0;      // of experts on disk
  double all_host_bytes = 0;  // of all experts in host memory
  double all_disk_bytes = 0;  // of all experts on disk
};

// `weight_format`: see Weights::weight_format. Experts are assumed to be chosen equally often.
TokenWork WorkOf(const EngineInfo& info, const ModelConfig& config,
                 const std::string& weight_format);

// Tokens per second of one session without drafts, and of a long prompt; 0: unknown.
struct Expectation {
  double decode = 0, prefill = 0;
};
Expectation Expect(const TokenWork& work, const DeviceRates& rates);

}  // namespace dsv4
