// SPDX-License-Identifier: Apache-2.0
#include <windows.h>

#include <algorithm>

#include "lib/io/system_memory.h"

namespace dsv4 {
namespace {

std::optional<MEMORYSTATUSEX> Memory() {
  MEMORYSTATUSEX memory{};
  memory.dwLength = sizeof memory;
  if (!GlobalMemoryStatusEx(&memory)) return std::nullopt;
  return memory;
}

}  // namespace

// The page file may lend less than is free: what is allocated counts against memory and page file.
std::optional<int64_t> AvailableMemory(const std::string&) {
  const std::optional<MEMORYSTATUSEX> memory = Memory();
  if (!memory) return std::nullopt;
  return static_cast<int64_t>(std::min(memory->ullAvailPhys, memory->ullAvailPageFile));
}

std::optional<int64_t> AvailableSystemMemory(const std::string& root) {
  return AvailableMemory(root);
}

std::optional<int64_t> TotalSystemMemory(const std::string&) {
  const std::optional<MEMORYSTATUSEX> memory = Memory();
  if (!memory) return std::nullopt;
  return static_cast<int64_t>(memory->ullTotalPhys);
}

std::optional<int64_t> TotalMemory(const std::string& root) { return TotalSystemMemory(root); }

std::optional<int64_t> PinnableMemory(const std::string& root) {
  const std::optional<int64_t> total = TotalSystemMemory(root);
  if (!total) return std::nullopt;
  return *total / 2;
}

}  // namespace dsv4
