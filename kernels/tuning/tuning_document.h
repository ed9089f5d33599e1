// SPDX-License-Identifier: Apache-2.0
// A tuning file by its schema, tools/tune/tuning.proto, in plain structs: the library reads files
// without protobuf, whose registry does not survive that a host unloads and loads the library
// again.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/tuning_table.h"
#include "lib/io/json.h"

namespace dsv4 {

// The messages of the schema, with its names. Maps are in the order of their keys, so that the
// same fault always reads the same.
struct TuningDocument {
  enum class Basis { kMeasured, kModelled };
  struct Entry {
    std::map<std::string, TuningRange> when;
    std::map<std::string, int32_t> config;
    std::optional<double> median_us, floor_us;
  };
  std::string schema, op, impl;
  int32_t impl_rev = 0;
  struct {
    std::string name, cc;
    int32_t sm_count = 0;
  } device;
  struct {
    std::string cuda;
  } toolchain;
  struct {
    Basis basis = Basis::kMeasured;
    std::optional<std::string> measured_on;
    std::string bench, commit, date, clock;
  } provenance;
  std::map<std::string, int32_t> fallback;  // the key "default"
  std::vector<Entry> entries;
};

// Corrupt, as "SOURCE: KEY REASON" with the key's path ("entries[2].when.rows"): an unknown key, a
// missing required one, a value of another type, a number out of range. Which values go together is
// tuning_file.h's.
absl::StatusOr<TuningDocument> ReadTuningDocument(const JsonValue& value,
                                                  const std::string& source);

}  // namespace dsv4
