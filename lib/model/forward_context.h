// SPDX-License-Identifier: Apache-2.0
// What the parts of a forward pass share: the configuration, the buffers, the rows of the step, and
// the way to run an operator. The same code plans and runs: while planning, an operator is only
// prepared for the largest step.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/op/step_rows.h"
#include "kernels/registry/dispatch.h"
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

  template <class Params>
  absl::Status Run(const Params& params) const {
    return planning ? dispatch->Prepare(params) : dispatch->Run(launch, params);
  }

  void Show(int64_t layer, absl::string_view what, const void* data, DType dtype,
            int64_t width) const {
    if (tap != nullptr && !planning) (*tap)(layer, what, data, dtype, step.rows, width);
  }
  DType act_dtype() const { return dispatch->activation_dtype(); }
};

}  // namespace dsv4
