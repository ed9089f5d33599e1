// SPDX-License-Identifier: Apache-2.0
#include "lib/io/system_memory.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace dsv4 {
namespace {

// The first word of the file, as a number; none for another word ("max").
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::string word;
  int64_t number = 0;
  if (!(file >> word) || !absl::SimpleAtoi(word, &number)) return std::nullopt;
  return number;
}

// The bytes of a line of /proc/meminfo, such as "MemAvailable:".
std::optional<int64_t> MeminfoBytes(const std::string& root, const std::string& wanted) {
  std::ifstream file(root + "/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kilobytes = 0;
    if (words >> name >> kilobytes && name == wanted) return kilobytes * 1024;
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> AvailableMemory(const std::string& root) {
  const std::optional<int64_t> available = MeminfoBytes(root, "MemAvailable:");
  // The group that a container has as its root; what its page cache holds can be had, too, and is
  // counted in memory.current.
  const std::string group = root + "/sys/fs/cgroup/";
  const std::optional<int64_t> limit = NumberIn(group + "memory.max");
  const std::optional<int64_t> used = NumberIn(group + "memory.current");
  if (!limit || !used) return available;
  int64_t cached = 0;
  std::ifstream counts(group + "memory.stat");
  for (std::string name; counts >> name;) {
    int64_t bytes = 0;
    if (!(counts >> bytes)) break;
    if (name == "inactive_file" || name == "active_file") cached += bytes;
  }
  const int64_t left = std::max<int64_t>(*limit - *used + cached, 0);
  return available ? std::min(*available, left) : left;
}

std::optional<int64_t> AvailableSystemMemory(const std::string& root) {
  return MeminfoBytes(root, "MemAvailable:");
}

std::optional<int64_t> TotalSystemMemory(const std::string& root) {
  return MeminfoBytes(root, "MemTotal:");
}

std::optional<int64_t> TotalMemory(const std::string& root) {
  const std::optional<int64_t> total = MeminfoBytes(root, "MemTotal:");
  const std::optional<int64_t> limit = NumberIn(root + "/sys/fs/cgroup/memory.max");
  if (!limit) return total;
  return total ? std::min(*total, *limit) : *limit;
}

std::optional<int64_t> PinnableMemory(const std::string& root) {
  // WSL2's kernels alone have that word in their release.
  std::ifstream file(root + "/proc/sys/kernel/osrelease");
  std::string release;
  if (!(file >> release) || !absl::StrContains(release, "microsoft")) return std::nullopt;
  const std::optional<int64_t> total = TotalMemory(root);
  if (!total) return std::nullopt;
  return *total / 2;
}

}  // namespace dsv4
