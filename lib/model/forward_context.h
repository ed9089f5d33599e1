// SPDX-License-Identifier: Apache-2.0
// What the parts of a forward pass share: the configuration, the buffers, the rows of the step, and
// the way to run an operator. The same code plans and runs: while planning, an operator is only
// prepared for the largest step.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/op/step_rows.h"
#include "kernels/registry/dispatch.h"
#include "lib/device/device.h"
#include "lib/model/activations.h"
#include "lib/model/config.h"

namespace dsv4 {

// A look at a value between operators: `rows` rows of `width` elements. For verification.
using Tap = std::function<void(int64_t layer, absl::string_view what, const void* data, DType dtype,
                               int64_t rows, int64_t width)>;

struct ForwardContext {
  const ModelConfig* config = nullptr;
  Dispatch* dispatch = nullptr;
  bool planning = false;
  LaunchContext launch;
  Activations act;
  StepRows step;
  const int32_t* tokens = nullptr;  // [T]
  const Tap* tap = nullptr;
  Device* device = nullptr;
  std::vector<std::byte>* tap_memory = nullptr;  // what the tap sees of a device's memory

  template <class Params>
  absl::Status Run(const Params& params) const {
    return planning ? dispatch->Prepare(params) : dispatch->Run(launch, params);
  }

  void Show(int64_t layer, absl::string_view what, const void* data, DType dtype,
            int64_t width) const {
    if (tap == nullptr || planning) return;
    if (!device->host_memory()) {
      tap_memory->resize(static_cast<size_t>(step.rows * width * DTypeBytes(dtype)));
      device
          ->Download(tap_memory->data(), static_cast<const std::byte*>(data),
                     static_cast<int64_t>(tap_memory->size()))
          .IgnoreError();  // Finish says it
      data = tap_memory->data();
    }
    (*tap)(layer, what, data, dtype, step.rows, width);
  }
  DType act_dtype() const { return dispatch->activation_dtype(); }
};

}  // namespace dsv4
