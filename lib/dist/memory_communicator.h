// SPDX-License-Identifier: Apache-2.0
// The communicator of ranks whose tensors lie in the memory of one process: ranks of the cpu
// backend. An exchange is two copies of nothing: each rank says where its slice lies, and reads the
// slices of the others.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "lib/dist/communicator.h"

namespace dsv4 {

// One communicator for each of `ranks` ranks. `limit`: of one wait.
std::vector<std::unique_ptr<Communicator>> MemoryCommunicators(int ranks,
                                                               std::chrono::milliseconds limit);

}  // namespace dsv4
