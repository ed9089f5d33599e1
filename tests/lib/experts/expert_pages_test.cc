// SPDX-License-Identifier: Apache-2.0
// Which pages of experts opening reads, and which it locks in memory.
#include "lib/experts/expert_pages.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "lib/io/mapped_file.h"
#include "lib/weights/synthetic.h"
#include "tests/lib/model/small_model.h"

namespace dsv4 {
namespace {

using test::Config;
using test::Loaded;
using test::TempFolder;

// Of a file, those of its pages that the system has in memory.
int64_t PagesInMemory(const std::string& path) {
  const auto file = MappedFile::Open(path);
  REQUIRE_OK(file);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> in_memory((file->bytes().size() + page - 1) / page);
  auto* const data = const_cast<uint8_t*>(file->bytes().data());
  REQUIRE(mincore(data, file->bytes().size(), in_memory.data()) == 0);
  return std::count_if(in_memory.begin(), in_memory.end(), [](unsigned char c) { return c & 1; });
}

TEST_CASE("opening reads no byte of packed experts beyond the budget of host memory") {
  const ModelConfig config = FirstLayers(Config(test::BundledFile("config.json")), 2);
  const TempFolder folder;
  const std::string path = folder.Write("experts", "");
  // Holes: the system has a page of them only after a read.
  std::filesystem::resize_file(path, 64 << 20);
  const auto load = [&](int64_t host_bytes) {
    const Loaded loaded = Weights::Load(
        config, *SyntheticCheckpoint(config, {.file = path}), nullptr,
        {.shards = *Shards::Of(config, 1), .ranks = {}, .budgets = {.host_bytes = host_bytes}});
    REQUIRE_OK(loaded);
    return (*loaded)->residency();
  };
  REQUIRE(PagesInMemory(path) == 0);
  REQUIRE(load(1).on_disk > 0);
  REQUIRE(PagesInMemory(path) == 0);
  REQUIRE(load(0).all() == 0);
  REQUIRE(PagesInMemory(path) > 0);
}

// Of this process, from /proc/self/status.
int64_t LockedBytes() {
  std::ifstream status("/proc/self/status");
  int64_t kilobytes = 0;
  for (std::string line; std::getline(status, line);) {
    if (absl::StartsWith(line, "VmLck:")) kilobytes = std::stoll(line.substr(6));
  }
  return kilobytes * 1024;
}

TEST_CASE("experts within a budget of host memory are locked there") {
  const ModelConfig config = Config(test::BundledFile("config.json"));
  const auto load = [&](const WeightTargets& targets) {
    auto checkpoint = Checkpoint::Open(test::BundledModel());
    REQUIRE_OK(checkpoint);
    Loaded loaded = Weights::Load(config, *std::move(checkpoint), nullptr, targets);
    REQUIRE_OK(loaded);
    return *std::move(loaded);
  };
  const Shards shards = *Shards::Of(config, 1);
  [[maybe_unused]] const int64_t before = LockedBytes();
  const auto some = load({.shards = shards, .ranks = {}, .budgets = {.host_bytes = 1'000'000}});
  REQUIRE(some->residency().on_disk > 0);
  REQUIRE(some->residency().on_host > 0);
  rlimit most{};
  REQUIRE(getrlimit(RLIMIT_MEMLOCK, &most) == 0);
  // Experts share their first and last pages with others.
  if (most.rlim_cur > 4'000'000) {
    REQUIRE(some->experts(0).pages()->locked_bytes() == some->residency().host_bytes());
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // there mlock does nothing
    REQUIRE(LockedBytes() >= before + some->experts(0).pages()->locked_bytes());
#endif
  }
  SECTION("and a machine that does not hold the model locks none, and has some on disk") {
    const int64_t all = some->mapped_bytes() + some->owned_bytes();
    REQUIRE(load({.shards = shards, .ranks = {}, .available = all})->experts(0).pages() == nullptr);
    const auto large = load({.shards = shards, .ranks = {}, .available = all - 1});
    REQUIRE(large->experts(0).pages()->locked_bytes() == 0);
    REQUIRE(large->residency().on_disk > 0);
    REQUIRE(large->residency().on_host > 0);
    REQUIRE(large->residency().host_bytes() < all / 8 * 7);
    REQUIRE(load({.shards = shards, .ranks = {}, .available = 1})->residency().on_host == 0);
  }
}

}  // namespace
}  // namespace dsv4
