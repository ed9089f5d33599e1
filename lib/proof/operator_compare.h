// SPDX-License-Identifier: Apache-2.0
// Compares a tested backend with a baseline operator by operator: each launch receives the inputs
// of the baseline's launch. Errors do not accumulate: after the comparison, each output is replaced
// by the baseline's. The two engines run one after the other, each on one device.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/registry/dispatch.h"
#include "lib/proof/launch_memory.h"

namespace dsv4 {

// |actual - expected| / |expected| over all vectors that were added.
class RelativeL2 {
 public:
  // REQUIRES: the same size.
  void Add(const std::vector<float>& actual, const std::vector<float>& expected) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const double e = expected[i], d = actual[i] - e;
      difference_ += d * d;
      norm_ += e * e;
    }
  }
  double distance() const {
    if (difference_ == 0) return 0;
    const double distance = std::sqrt(difference_ / norm_);
    return std::isnan(distance) ? INFINITY : distance;
  }

 private:
  double difference_ = 0, norm_ = 0;
};

// One output of one operator, over all launches.
struct OperatorFlips {
  int64_t elements = 0;
  int64_t differing = 0;
  int64_t beyond = 0;    // of these, by more than one step of the output's format
  double distance = 0;   // largest of an output that stays f32: relative L2 of one launch
  int64_t choices = 0;   // rows that chose experts or compressed blocks
  int64_t left_out = 0;  // of these, rows that chose others
  std::string shape{};   // of the launch that differs most: "rows 7, n 512, k 256"

  double share() const {
    return elements == 0 ? 0 : static_cast<double>(differing) / static_cast<double>(elements);
  }
  // At most one element in 400 differs, and one of fewer, by one step; f32 to 1e-5; one choice in
  // 100.
  bool Holds() const;
  void Add(const OperatorFlips& launch, const std::string& of_shape);
  // "3 of 8192 differ, 1 by more than a step"
  std::string Describe() const;

 private:
  std::tuple<int64_t, int64_t, double, double> worst_{};
};

// The inputs and outputs of a launch of the baseline, in the order of LaunchTensors. Without
// inputs, the tested launch uses what its earlier launches left, which equals the baseline's.
struct LaunchRecord {
  Op op;
  std::vector<std::vector<float>> inputs, outputs;
};

class OperatorComparison {
 public:
  OperatorComparison() : baseline_(this), tested_(this) {}
  OperatorComparison(const OperatorComparison&) = delete;
  OperatorComparison& operator=(const OperatorComparison&) = delete;

  // The recorder for the baseline's engine, then for the tested engine, which makes the same
  // launches. `memory`: of the engine's device.
  LaunchRecorder* baseline(const LaunchMemory& memory) {
    memory_ = memory;
    return &baseline_;
  }
  LaunchRecorder* tested(const LaunchMemory& memory) {
    memory_ = memory;
    return &tested_;
  }
  // The baseline's launches so far, and a baseline that was recorded before.
  const std::vector<LaunchRecord>& launches() const { return launches_; }
  // The status of reading and writing them so far.
  const absl::Status& status() const { return status_; }
  void set_launches(std::vector<LaunchRecord> launches) { launches_ = std::move(launches); }

  // Called after both engines ran. Errors: Internal if the launches were not the same, DeviceLost.
  // Then starts over; the flips are kept.
  absl::Status Complete();

  // By operator and output: "hc_pre.normed"; the last 64 elements of rows: "compress_kv.rows.rope".
  const std::map<std::string, OperatorFlips>& flips() const { return flips_; }
  bool Holds() const;

 private:
  using OnLaunch = void (OperatorComparison::*)(const KernelEntry&, const void*,
                                                absl::FunctionRef<void()>);
  template <OnLaunch kOnLaunch>
  class Recorder final : public LaunchRecorder {
   public:
    explicit Recorder(OperatorComparison* owner) : owner_(owner) {}
    void Record(const KernelEntry& entry, const void* params, const Cost&,
                absl::FunctionRef<void()> launch) override {
      (owner_->*kOnLaunch)(entry, params, launch);
    }

   private:
    OperatorComparison* owner_;
  };

  void RecordBaseline(const KernelEntry& entry, const void* params,
                      absl::FunctionRef<void()> launch);
  void RecordTested(const KernelEntry& entry, const void* params, absl::FunctionRef<void()> launch);
  absl::Status Compare(const KernelEntry& entry, const void* params, const LaunchTensors& tensors,
                       LaunchRecord* record, absl::FunctionRef<void()> launch);

  Recorder<&OperatorComparison::RecordBaseline> baseline_;
  Recorder<&OperatorComparison::RecordTested> tested_;
  std::optional<LaunchMemory> memory_;
  std::vector<LaunchRecord> launches_;
  size_t replayed_ = 0;
  absl::Status status_;
  std::map<std::string, OperatorFlips> flips_;
};

}  // namespace dsv4
