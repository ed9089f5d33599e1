// SPDX-License-Identifier: Apache-2.0
// Operator by operator: what a tested backend makes of the inputs that the same launch of the
// baseline had. Nothing adds up over operators: each output of the tested engine is replaced by the
// baseline's once it is compared.
//
// Both backends' memory is the host's. One launch after the other: recorders are of engines that
// run in turns.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/registry/dispatch.h"

namespace dsv4 {

// One output of one operator, over all launches.
struct OperatorFlips {
  int64_t elements = 0;
  int64_t differing = 0;
  int64_t beyond = 0;    // of these, by more than one step of the output's format
  double distance = 0;   // largest of an output that stays f32: relative L2 of one launch
  int64_t choices = 0;   // rows that chose experts or groups
  int64_t left_out = 0;  // of these, rows that chose others

  double share() const {
    return elements == 0 ? 0 : static_cast<double>(differing) / static_cast<double>(elements);
  }
  // At most one element in 400 differs, by one step; f32 to 1e-5; one choice in 100.
  bool Holds() const;
};

class OperatorComparison {
 public:
  OperatorComparison() : baseline_(this), tested_(this) {}
  OperatorComparison(const OperatorComparison&) = delete;
  OperatorComparison& operator=(const OperatorComparison&) = delete;

  // To be an engine's recorder while it makes the baseline's launches, then the other's while it
  // makes the same ones.
  LaunchRecorder* baseline() { return &baseline_; }
  LaunchRecorder* tested() { return &tested_; }

  // After both: Internal when the launches were not the same. Begins anew, the flips are kept.
  absl::Status Finish();

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

  struct Launch {
    Op op;
    std::vector<std::vector<float>> inputs, outputs;
  };

  void RecordBaseline(const KernelEntry& entry, const void* params,
                      absl::FunctionRef<void()> launch);
  void RecordTested(const KernelEntry& entry, const void* params, absl::FunctionRef<void()> launch);

  Recorder<&OperatorComparison::RecordBaseline> baseline_;
  Recorder<&OperatorComparison::RecordTested> tested_;
  std::vector<Launch> launches_;
  size_t replayed_ = 0;
  absl::Status status_;
  std::map<std::string, OperatorFlips> flips_;
};

}  // namespace dsv4
