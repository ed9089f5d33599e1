// SPDX-License-Identifier: Apache-2.0
// The shared state of a forward pass: the configuration, the buffers, the rows of the step, and the
// function that runs an operator. The same code plans and runs: while planning, it only prepares
// each operator for the largest step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/op/step_rows.h"
#include "kernels/registry/dispatch.h"
#include "lib/config/config.h"
#include "lib/config/shard.h"
#include "lib/device/device.h"
#include "lib/dist/communicator.h"
#include "lib/experts/expert_store.h"
#include "lib/model/activations.h"

namespace dsv4 {

// Observes a tensor between operators: `rows` rows of `width` elements. For verification.
using Tap = std::function<void(int64_t layer, absl::string_view what, const void* data, DType dtype,
                               int64_t rows, int64_t width)>;

struct ForwardContext {
  const ModelConfig* config = nullptr;
  const Shards* shards = nullptr;
  int rank = 0;
  Communicator* communicator = nullptr;  // null: one rank
  Dispatch* dispatch = nullptr;
  bool planning = false;
  StreamRole planned_stream = StreamRole::kMain;
  LaunchContext launch;
  LaunchContext side;  // of the device's second stream; its stream is null if there is none
  Activations act;
  StepRows step;
  int32_t block_rows = 0;           // SparseAttentionParams::block_rows
  const int32_t* tokens = nullptr;  // [T]
  const int32_t* chosen = nullptr;  // TokenCandidatesParams::chosen, for negative tokens of drafts
  ExpertStore* experts = nullptr;   // the rank's
  bool loading = false;             // launches only load their kernels
  const Tap* tap = nullptr;
  Device* device = nullptr;
  std::vector<std::byte>* tap_memory = nullptr;  // copies of device memory for the tap

  template <class Params>
  absl::Status Run(const Params& params) const {
    return planning ? dispatch->Prepare(params, planned_stream) : dispatch->Run(launch, params);
  }

  // Runs `first` and `second`; with few rows and a second stream concurrently, since each of their
  // kernels leaves most of the device idle. `first` gets this context. REQUIRES: neither reads or
  // writes what the other writes; they use no tap.
  absl::Status RunConcurrently(absl::FunctionRef<absl::Status(const ForwardContext&)> first,
                               absl::FunctionRef<absl::Status(const ForwardContext&)> second) const;

  bool alone() const { return shards->ranks == 1; }
  const Slice& own(const Slices& slices) const { return slices[rank]; }
  // Gathers `part` [rows, own elements] of all ranks into `whole` [rows, all elements]. An element
  // of `slices` is `bytes` bytes of a row. With one rank both are the same memory: no operation.
  absl::Status Gather(int64_t rows, const Slices& slices, int64_t bytes, const void* part,
                      void* whole) const;
  // Gather for quantised activations. An element of `slices` is `width` of them, a multiple of
  // 128.
  absl::Status GatherQuantized(int64_t rows, const Slices& slices, int64_t width, const void* part,
                               void* whole) const;
  absl::Status Exchange(int64_t rows, const ColumnShares& shares, const void* part,
                        void* whole) const;

  void Show(int64_t layer, absl::string_view what, const void* data, DType dtype,
            int64_t width) const {
    if (tap == nullptr || planning) return;
    if (!device->host_memory()) {
      tap_memory->resize(static_cast<size_t>(step.rows * width * DTypeBytes(dtype)));
      device
          ->Download(tap_memory->data(), static_cast<const std::byte*>(data),
                     static_cast<int64_t>(tap_memory->size()))
          .IgnoreError();  // Synchronize says it
      data = tap_memory->data();
    }
    (*tap)(layer, what, data, dtype, step.rows, width);
  }
  DType act_dtype() const { return dispatch->rows().activations; }
};

}  // namespace dsv4
