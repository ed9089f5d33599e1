// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tuning file: what is accepted gives every call one of its kernel's configs, and no
// call two.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/tuning/tuning_file.h"
#include "tests/kernels/fake_kernels.h"

namespace {

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dsv4;
  const absl::string_view json(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<TuningFile> file = ReadTuningFile(json, "fuzz", test::kFakeManifests);
  if (!file.ok()) {
    Require(file.status().message().substr(0, 6) == "fuzz: ");
    return 0;
  }
  Require(file->compute_capability > 0 && file->multiprocessors > 0);
  const TuningTable& table = file->table;
  const auto known = [&](const KernelConfig& config) {
    const auto& configs = table.entry->knobs.configs;
    return configs.empty() ? config == KernelConfig{}
                           : std::find(configs.begin(), configs.end(), config) != configs.end();
  };
  if (file->rev != table.entry->rev) {
    Require(table.buckets.empty());
    return 0;
  }
  Require(known(table.fallback));
  for (const TuningBucket& bucket : table.buckets) {
    Require(known(bucket.config));
    int holding = 0;
    for (const TuningBucket& other : table.buckets) {
      bool inside = true;
      for (size_t d = 0; d < bucket.when.size(); ++d) {
        Require(bucket.when[d].first >= 0 && bucket.when[d].first <= bucket.when[d].last);
        inside = inside && bucket.when[d].first >= other.when[d].first &&
                 bucket.when[d].first <= other.when[d].last;
      }
      holding += inside;
    }
    Require(holding == 1);
  }
  return 0;
}
