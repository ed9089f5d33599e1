// SPDX-License-Identifier: Apache-2.0
// A directory of tuning tables for a device, in which every kernel's default is its `index`-th
// config, its last where it has fewer. Removed at the end.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/builtin.h"
#include "lib/device/device_traits.h"
#include "tests/support/checkpoint_files.h"

namespace dsv4::test {

class TuningTables {
 public:
  TuningTables(const DeviceTraits& device, size_t index) {
    for (const Manifest& manifest : BuiltinManifests()) {
      for (const KernelEntry& entry : manifest) {
        if (!entry.knobs.names.empty()) Write(entry, device, index);
      }
    }
  }
  const std::string& path() const { return folder_.path(); }
  int count() const { return count_; }

  // The most configs that any kernel has.
  static size_t Configs() {
    size_t configs = 0;
    for (const Manifest& manifest : BuiltinManifests()) {
      for (const KernelEntry& entry : manifest) {
        configs = std::max(configs, entry.knobs.configs.size());
      }
    }
    return configs;
  }

 private:
  void Write(const KernelEntry& entry, const DeviceTraits& device, size_t index) {
    const KernelKnobs& knobs = entry.knobs;
    const KernelConfig& config = knobs.configs[std::min(index, knobs.configs.size() - 1)];
    std::vector<std::string> values;
    for (size_t i = 0; i < knobs.names.size(); ++i) {
      values.push_back(absl::StrCat("\"", knobs.names[i], "\": ", config.values[i]));
    }
    folder_.Write(
        absl::StrCat(entry.name, ".json"),
        absl::StrCat(
            "{\"schema\": \"dsv4.tuning/1\", \"operator\": \"", OpName(entry.op),
            "\", \"impl\": \"", entry.name, "\", \"impl_rev\": ", entry.rev,
            ", \"device\": {\"name\": \"this one\", \"cc\": \"",
            ComputeCapabilityName(device.compute_capability),
            "\", \"sm_count\": ", device.multiprocessors,
            "}, \"toolchain\": {\"cuda\": \"any\"}, \"provenance\": {"
            "\"bench\": \"none\", \"commit\": \"none\", \"date\": \"none\", \"clock\": \"none\"}, "
            "\"default\": {",
            absl::StrJoin(values, ", "), "}, \"entries\": []}"));
    ++count_;
  }

  TempFolder folder_;
  int count_ = 0;
};

}  // namespace dsv4::test
