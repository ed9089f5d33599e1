// SPDX-License-Identifier: Apache-2.0
// Counts allocations. A test that links allocation_counter.cc has operator new replaced; sanitizers
// replace it, too, so such a test is an executable of its own with the label `allocation`, which
// their runs leave out.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace dsv4::test {

// Runs `f` and returns how often operator new was called meanwhile, on any thread.
int64_t CountAllocations(absl::FunctionRef<void()> f);

}  // namespace dsv4::test
