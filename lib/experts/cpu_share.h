// SPDX-License-Identifier: Apache-2.0
// The CPU's share of the routed experts: kernels of the cpu backend compute the last experts of
// each block while a device computes the others.
//
// A pass waits after each gate until the host has read the chosen experts and their inputs. The
// device computes its experts as a first wave (ExpertWave). The CPU's outputs are then copied to
// the device, which sums them up in the order of each row's experts. Experts on disk are read and
// computed while the CPU computes.
//
// Threads: the thread that runs the passes; any for `traffic`.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op/moe.h"
#include "kernels/registry/dispatch.h"
#include "lib/config/config.h"
#include "lib/device/device.h"
#include "lib/dist/rank_threads.h"
#include "lib/experts/expert_profile.h"
#include "lib/experts/expert_residency.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

// Copies of the experts that the CPU computes, in the checkpoint's layout.
class CpuExperts {
 public:
  CpuExperts() = default;
  // Allocates plan.cpu_bytes of host memory. Errors: OutOfHostMemory.
  static absl::StatusOr<CpuExperts> Allocate(const ResidencyPlan& plan);
  // Bytes of a matrix of that format and size.
  static int64_t BytesOf(ExpertFormat format, BlockType blocks, int64_t n, int64_t k);

  // Copies a matrix of an expert: 0 is w1, 1 w3, 2 w2. REQUIRES: plan.IsCpus(id), and
  // plan.cpu_bytes is the sum of BytesOf.
  void Keep(ExpertId id, int matrix, const ExpertMatrix& from);

  // Bytes of an expert of the block.
  int64_t ExpertBytes(int32_t block) const {
    return bytes_[static_cast<size_t>(block)] / plan_.cpu_experts;
  }

  // [plan.cpu_experts] of a block.
  const ExpertWeights* const* table(int32_t block) const {
    return table_.data() + block * plan_.cpu_experts;
  }

 private:
  const uint8_t* Copy(const uint8_t* from, int64_t bytes);

  ResidencyPlan plan_;
  Buffer memory_;
  int64_t end_ = 0;
  std::vector<int64_t> bytes_;               // of each block
  std::vector<ExpertWeights> experts_;       // [blocks * cpu_experts]
  std::vector<const ExpertWeights*> table_;  // into it
};

class CpuShare {
 public:
  struct Parts {
    const ModelConfig* config = nullptr;
    ResidencyPlan plan{};
    Device* device = nullptr;      // runs the passes
    HostRows rows{};               // of `device`: QuantizedRows::kCodes
    Device* cpu = nullptr;         // computes the share
    Dispatch* dispatch = nullptr;  // of `cpu`
    CpuExperts experts{};
    ExpertUse* use = nullptr;  // counts the experts of the share; null: counted elsewhere
  };

  // Errors: Unsupported, naming the kernel; OutOfHostMemory.
  static absl::StatusOr<std::unique_ptr<CpuShare>> Open(Parts parts);
  // Memory for passes of so many rows. Errors: OutOfHostMemory.
  absl::Status Reserve(int32_t rows);

  // Called after the gate of a block: copies ffn.experts, ffn.weights and ffn.x from the device.
  // Returns whether the rows chose experts of the CPU. Errors: DeviceLost, as below.
  absl::StatusOr<bool> Begin(int32_t block, const ExpertFfnParams& ffn);
  // The device's experts of the block: [rows K], -1 for the CPU's and for none.
  absl::Span<const int32_t> own() const { return own_; }
  // Computes the CPU's experts and copies their outputs to their rows of `outputs`,
  // [rows (K + 1), D] on the device, in stream order. Errors: DeviceLost; the kernel's; that of
  // exhausted memory (lib/base/contained.h).
  absl::Status Compute(void* outputs);
  // Compute on another thread while this one calls `others`, which may use the device but must not
  // touch the CPU's rows. Returns when both are done. If both fail, returns the error of `others`.
  // REQUIRES: some experts lie on disk.
  absl::Status Compute(void* outputs, absl::FunctionRef<absl::Status()> others);

  // The traffic of the CPU alone.
  ExpertTraffic traffic() const {
    return {.cpu_reads = reads_.load(),
            .cpu_bytes = bytes_.load(),
            .cpu_seconds = static_cast<double>(nanoseconds_.load()) * 1e-9};
  }

 private:
  explicit CpuShare(Parts parts);
  absl::Status ComputeAll(void* outputs);
  // Inputs of pairs_[first, first + count).
  void Collect(size_t first, size_t count);
  ExpertFfnParams Params(int32_t block, int32_t rows) const;

  const Parts parts_;
  // Inputs are bf16, in front of experts in block formats. Else they are quantised.
  const bool plain_rows_;
  const int64_t row_bytes_;  // of an input
  Buffer workspace_, staged_, inputs_, outputs_;
  // The launch of the current block.
  ExpertFfnParams ffn_{};
  int32_t block_ = 0;
  const int32_t* chosen_ = nullptr;   // [rows K] in staged_
  const float* weights_ = nullptr;    // [rows K]
  const std::byte* codes_ = nullptr;  // [rows] inputs
  std::vector<int32_t> own_;
  std::vector<int32_t> pairs_;         // the CPU's, by expert
  std::vector<int32_t> pair_experts_;  // of a call, from 0 on
  std::vector<float> pair_weights_;
  std::vector<MemoryPiece> pieces_;
  std::vector<bool> seen_;  // [cpu_experts]
  std::atomic<int64_t> reads_{0}, bytes_{0}, nanoseconds_{0};
  std::unique_ptr<RankThreads> threads_;  // two; null: no expert lies on disk
};

}  // namespace dsv4
