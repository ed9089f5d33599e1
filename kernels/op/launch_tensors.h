// SPDX-License-Identifier: Apache-2.0
// The activations and cache rows that a launch reads and writes, for code that compares launches.
// Each <operator>.h in this folder has its contract's TensorsOf.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/op/kv_layout.h"

namespace dsv4 {

class Device;

// The last rounding of an output's elements.
enum class OutputFormat {
  kBf16,
  kSum,       // bf16, of terms that are rounded themselves
  kNormed,    // bf16, of a row that is rounded in front of its norm: its step is up to two here
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
  // `width` elements of a row of `stride`, from `column` on. No rows: the launch has no such
  // tensor.
  int64_t rows = 0, width = 0, stride = 0, column = 0;
  std::vector<int64_t> stored_at{};  // [rows] where each lies; empty: in their order
  RowPool pool{};
  std::vector<Place> places{};

  // Nothing where `data` is null.
  static LaunchTensor Act(const void* data, int64_t rows, int64_t width) {
    return Of(Type::kAct, data, rows, width);
  }
  static LaunchTensor Quantized(const void* data, int64_t rows, int64_t width) {
    return Of(Type::kQuantized, data, rows, width);
  }
  static LaunchTensor F32(const float* data, int64_t rows, int64_t width) {
    return Of(Type::kF32, data, rows, width);
  }
  static LaunchTensor Int32(const int32_t* data, int64_t rows, int64_t width) {
    return Of(Type::kInt32, data, rows, width);
  }
  static LaunchTensor CacheRows(const RowPool& pool, int64_t width, std::vector<Place> places) {
    LaunchTensor tensor =
        Of(Type::kCacheRows, pool.base, static_cast<int64_t>(places.size()), width);
    tensor.pool = pool;
    tensor.places = std::move(places);
    return tensor;
  }

 private:
  static LaunchTensor Of(Type type, const void* data, int64_t rows, int64_t width) {
    return {.type = type,
            .data = const_cast<void*>(data),
            .rows = data == nullptr ? 0 : rows,
            .width = width,
            .stride = width};
  }
};

struct LaunchOutput {
  const char* name;
  OutputFormat format;
  LaunchTensor tensor;
};

struct LaunchTensors {
  std::vector<LaunchTensor> in;
  std::vector<LaunchOutput> out;
  // How many launches of a run without waves this launch is compared with. The sum of waves stands
  // for two, the halves of the experts.
  size_t stands_for = 1;
  // True where the contract names none: copies other than of embeddings, token candidates.
  bool empty() const { return in.empty() && out.empty(); }
};

// How many rows `row_of` [rows] in the device's memory reaches. A device that is lost says so when
// they are read.
int64_t RowsReached(const int32_t* row_of, int32_t rows, Device& device);

// The tensors of an operator whose contract names none. Cache rows that are read are not named:
// what wrote them is compared.
template <class Params>
LaunchTensors TensorsOf(const Params&, Device&) {
  return {};
}

}  // namespace dsv4
