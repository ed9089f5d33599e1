// SPDX-License-Identifier: Apache-2.0
// The activations and cache rows that a launch reads and writes, as floats in host memory, wherever
// its device stores them and in whatever format. For verification.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/op/kv_layout.h"
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"

namespace dsv4 {

// What the elements of an output are rounded to last.
enum class OutputFormat {
  kBf16,
  kSum,       // bf16, of terms that are rounded themselves
  kHead,      // bf16; the last 64 are rotated in pairs
  kCodes,     // act_quant 128
  kKvRow,     // act_quant 64 of the first 448; bf16 behind them, which is counted apart
  kFp8Row,    // e4m3 under kFp8RowScale
  kIndexRow,  // fp4_act_quant
  kF32,
  kChoice,  // indices; a row is a set
};

struct LaunchTensor {
  enum class Type { kAct, kQuantized, kF32, kInt32, kCacheRows };
  // A row in a pool of cache rows.
  struct Place {
    int32_t block;
    int64_t slot;
  };
  Type type;
  void* data = nullptr;
  // `width` elements of a row of `stride`, from `column` on. Without rows where the launch has no
  // such tensor.
  int64_t rows = 0, width = 0, stride = 0, column = 0;
  std::vector<int64_t> stored_at{};  // [rows] where each lies; empty: in their order
  RowPool pool{};
  std::vector<Place> places{};
};

struct LaunchOutput {
  const char* name;
  OutputFormat format;
  LaunchTensor tensor;
};

struct LaunchTensors {
  std::vector<LaunchTensor> in;
  std::vector<LaunchOutput> out;
  // How many launches without turns have this one's output at their end, whose inputs earlier turns
  // have read.
  size_t stands_for = 1;
  // Copies other than of embeddings, and answers to questions about logits.
  bool empty() const { return in.empty() && out.empty(); }
};

// `params`: of an operator `op` that runs on `device`.
LaunchTensors TensorsOf(Op op, const void* params, Device& device);

// Where a backend has them. The calls wait for the device; errors: DeviceLost.
class LaunchMemory {
 public:
  LaunchMemory(Device* device, Backend backend) : device_(device), backend_(backend) {}
  absl::StatusOr<std::vector<float>> Read(const LaunchTensor& tensor) const;
  // REQUIRES: the tensor's format holds the values.
  absl::Status Write(const LaunchTensor& tensor, std::vector<float> values) const;

 private:
  int64_t ElementBytes(const LaunchTensor& tensor) const;
  bool StoresCodes(const LaunchTensor& tensor) const;
  // What is stored of a row, and where it begins.
  int64_t RowBytes(const LaunchTensor& tensor) const;
  std::byte* RowOf(const LaunchTensor& tensor, int64_t row) const;

  Device* device_;
  Backend backend_;
};

}  // namespace dsv4
