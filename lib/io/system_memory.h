// SPDX-License-Identifier: Apache-2.0
// What the machine has left of its memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dsv4 {

// Bytes that this process can take without other memory being swapped out: what the system counts
// as available, or less where a control group limits it. None where the system does not say.
// `root`: of the file system, another one for tests.
std::optional<int64_t> AvailableMemory(const std::string& root = "");

}  // namespace dsv4
