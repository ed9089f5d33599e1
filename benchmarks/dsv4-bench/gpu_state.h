// SPDX-License-Identifier: Apache-2.0
// Clocks, power and throttling of GPUs while something is measured, read by NVML; no CUDA is needed
// to build this. For dsv4-bench and the other benchmarks.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace bench {

// One device at one time.
struct GpuSample {
  double sm_mhz = 0, memory_mhz = 0, watts = 0;
  uint64_t reasons = 0;  // why the clock is not higher: bits of NVML's clocks-event reasons
};

// Of the samples that were taken while a device was not idle, or of all where it always was.
struct GpuSummary {
  int64_t samples = 0;  // 0: nothing is known
  double sm_mhz = 0, least_sm_mhz = 0, memory_mhz = 0, watts = 0, most_watts = 0;
  // "power cap 12 %, thermal 1 %": shares of the samples; "none". Without what is normal: idle,
  // clocks that somebody set, clocks of other GPUs.
  std::string throttled;

  // "SM 1755 MHz (least 1650), memory 2619 MHz, 412 W (most 690), throttled: none"
  std::string Text() const;
};

GpuSummary Summarize(const std::vector<GpuSample>& samples);

// Samples devices every 20 ms by a thread of its own, until it ends.
class GpuSampler {
 public:
  // CUDA's indices. Where the driver or NVML is missing, or refuses, `unavailable` says so and
  // there are no samples.
  explicit GpuSampler(const std::vector<int32_t>& devices);
  ~GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  const std::string& unavailable() const { return unavailable_; }
  // Ends sampling.
  GpuSummary Stop();
  // Ends sampling and prints "# clocks: " with what is known, or why nothing is.
  void StopAndPrint();

 private:
  struct Nvml;

  std::string unavailable_;
  std::unique_ptr<Nvml> nvml_;
  std::vector<GpuSample> samples_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace bench
