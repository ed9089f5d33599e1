// SPDX-License-Identifier: Apache-2.0
// The tuning files of this build: all are valid, current, and found by the device that they are
// for.
#include <map>
#include <string>

#include "kernels/builtin.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

TEST_CASE("every tuning file of this build is valid and current") {
  for (const EmbeddedTuningFile& embedded : BuiltinTuningFiles()) {
    INFO(embedded.source);
    const auto file = ReadTuningFile(embedded.json, embedded.source, BuiltinManifests());
    REQUIRE_OK(file);
    REQUIRE(file->rev == file->table.entry->rev);
    REQUIRE_FALSE(file->table.entry->knobs.names.empty());
    const std::string name = std::string(OpName(file->table.entry->op)) + ".json";
    const std::string source = embedded.source;
    REQUIRE(source.size() > name.size());
    REQUIRE(source.substr(source.size() - name.size() - 1) == "/" + name);
  }
}

#ifdef DSV4_HAVE_CUDA
TEST_CASE("each device that the kernels are tuned for has a table for each entry with knobs") {
  for (const auto& [capability, multiprocessors] :
       {std::pair{120, 188}, {120, 170}, {121, 48}, {90, 132}}) {
    INFO(capability << ", " << multiprocessors);
    std::map<const KernelEntry*, int> tables;
    for (const EmbeddedTuningFile& embedded : BuiltinTuningFiles()) {
      const auto file = ReadTuningFile(embedded.json, embedded.source, BuiltinManifests());
      REQUIRE_OK(file);
      if (file->compute_capability == capability && file->multiprocessors == multiprocessors) {
        ++tables[file->table.entry];
      }
    }
    for (const Manifest& manifest : BuiltinManifests()) {
      for (const KernelEntry& entry : manifest) {
        INFO(entry.name);
        REQUIRE(tables[&entry] == (entry.knobs.names.empty() ? 0 : 1));
      }
    }
  }
}
#endif

TEST_CASE("knobs of every entry are named, and no config is there twice") {
  for (const Manifest& manifest : BuiltinManifests()) {
    for (const KernelEntry& entry : manifest) {
      INFO(entry.name);
      const KernelKnobs& knobs = entry.knobs;
      REQUIRE(knobs.names.size() <= static_cast<size_t>(kMaxKnobs));
      REQUIRE(knobs.names.empty() == knobs.configs.empty());
      REQUIRE_FALSE(entry.dims(nullptr).all().empty());
      for (size_t i = 0; i < knobs.configs.size(); ++i) {
        for (size_t j = 0; j < i; ++j) REQUIRE_FALSE(knobs.configs[i] == knobs.configs[j]);
        for (size_t k = knobs.names.size(); k < knobs.configs[i].values.size(); ++k) {
          REQUIRE(knobs.configs[i].values[k] == 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace dsv4::test
