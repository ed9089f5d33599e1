// SPDX-License-Identifier: Apache-2.0
// The tuning files of this build: all are valid, current, and differ from the defaults.
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

TEST_CASE("the tuning files of this build say only what differs from the defaults") {
  for (const EmbeddedTuningFile& embedded : BuiltinTuningFiles()) {
    INFO(embedded.source);
    const auto file = ReadTuningFile(embedded.json, embedded.source, BuiltinManifests());
    REQUIRE_OK(file);
    const TuningTable& table = file->table;
    REQUIRE((!table.buckets.empty() || table.fallback != table.entry->knobs.configs[0]));
    for (const TuningBucket& bucket : table.buckets) REQUIRE(bucket.config != table.fallback);
  }
}

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
