// SPDX-License-Identifier: Apache-2.0
// The communicator of ranks of the cpu backend, whose tensors lie in the memory of one process. In
// an exchange each rank publishes the address of its slice and copies the slices of the others.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "lib/dist/communicator.h"

namespace dsv4 {

// One communicator for each of `ranks` ranks. `limit`: the longest wait for another rank.
std::vector<std::unique_ptr<Communicator>> MemoryCommunicators(int ranks,
                                                               std::chrono::milliseconds limit);

}  // namespace dsv4
