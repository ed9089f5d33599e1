// SPDX-License-Identifier: Apache-2.0
// A tuning file by its schema, tools/tune/tuning.proto, in plain structs: the library reads files
// without protobuf, whose registry does not survive that a host unloads and loads the library
// again. docs/tuning.md has an example.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/registry/tuning_table.h"
#include "lib/io/json.h"

namespace dsv4 {

inline constexpr char kTuningSchema[] = "dsv4.tuning/1";

// Members have the names of the file's keys, except `op` ("operator") and `fallback` ("default").
// Maps are in the order of their keys, so that the same fault always reads the same. `when`,
// `config`, `fallback` and `entries` may be absent in a file; all others must be there, and no
// other key may be.
struct TuningDocument {
  struct Entry {
    std::map<std::string, TuningRange> when;  // a range is the array [first, last]
    std::map<std::string, int32_t> config;
    double median_us = 0, floor_us = 0;  // of a launch, and of its bytes at copy bandwidth
  };
  struct Device {
    std::string name;
    std::string cc;  // compute capability: "12.0"
    int32_t sm_count = 0;
  };
  struct Toolchain {
    std::string cuda;
  };
  struct Provenance {
    std::string bench, commit, date, clock;
  };
  std::string schema;
  std::string op;
  std::string impl;  // the entry's name
  int32_t impl_rev = 0;
  Device device;
  Toolchain toolchain;
  Provenance provenance;
  std::map<std::string, int32_t> fallback{};  // of calls that are in no entry
  std::vector<Entry> entries{};               // disjoint, ascending
};

// Corrupt, as "SOURCE: KEY REASON" with the key's path ("entries[2].when.rows"): an unknown key, a
// missing required one, a value of another type, a number out of range. Which values go together is
// tuning_file.h's.
absl::StatusOr<TuningDocument> ReadTuningDocument(const JsonValue& value,
                                                  const std::string& source);

}  // namespace dsv4
