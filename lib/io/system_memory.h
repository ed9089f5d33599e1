// SPDX-License-Identifier: Apache-2.0
// The machine's memory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dsv4 {

// Bytes that this process can allocate without swapping: the system's available memory, or less if
// a control group limits it. nullopt if the system does not report it. `root`: the root of the file
// system; tests give another one.
std::optional<int64_t> AvailableMemory(const std::string& root = "");

// The system's available memory alone. For integrated GPUs: control groups neither count nor limit
// what their driver allocates. Otherwise as above.
std::optional<int64_t> AvailableSystemMemory(const std::string& root = "");
// All of the system's memory. Otherwise as above.
std::optional<int64_t> TotalSystemMemory(const std::string& root = "");

// Bytes of the system's memory, or the limit of a control group if that is less. nullopt and `root`
// as above.
std::optional<int64_t> TotalMemory(const std::string& root = "");

// The bytes that drivers of GPUs pin at most where Windows manages their memory (WDDM), which it
// does for WSL2 as well: half of all memory, as is reported. nullopt elsewhere: what is available.
std::optional<int64_t> PinnableMemory(const std::string& root = "");

}  // namespace dsv4
