// SPDX-License-Identifier: Apache-2.0
// The machine's free memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dsv4 {

// Bytes that this process can allocate without swapping: the system's available memory, or less if
// a control group limits it. nullopt if the system does not report it. `root`: the root of the file
// system; tests give another one.
std::optional<int64_t> AvailableMemory(const std::string& root = "");

}  // namespace dsv4
