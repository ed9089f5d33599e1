// SPDX-License-Identifier: Apache-2.0
// Consecutive launches that a backend makes a single one. It takes launches as far as they can
// follow those that it has taken; then they are launched together.
#pragma once

#include "kernels/registry/kernel_entry.h"

namespace dsv4 {

class LaunchProgram {
 public:
  virtual ~LaunchProgram() = default;
  // Takes the launch of `params`, of the entry's operator, and returns true; or returns false: then
  // Launch() must be called, and the launch made, before another is taken. Copies params and
  // context; what they point to outlives the next call of Launch.
  virtual bool Take(const KernelEntry& entry, const LaunchContext& context, const void* params) = 0;
  // Launches what was taken, if anything.
  virtual void Launch() = 0;
};

}  // namespace dsv4
