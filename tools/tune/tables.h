// SPDX-License-Identifier: Apache-2.0
// Makes tuning tables from measurements (measure.h), and their text.
#pragma once

#include <string>
#include <vector>

#include "kernels/registry/kernel_entry.h"
#include "tools/tune/tuning.pb.h"

namespace dsv4 {

// One case of the benchmarks with every config of an entry.
struct Timing {
  CallDims dims;
  double floor_us = 0;
  std::vector<double> median_us;  // in the order of the entry's configs
};

// A file's part that does not depend on the entry.
struct TuningOrigin {
  DeviceTraits device;
  std::string cuda, commit, date;
};

// The table of an entry with knobs, from timings of at least one case. A bucket of `rows` or
// `context` reaches down to the next smaller one that was measured, the largest up to any; other
// dimensions are those of the case, so that other shapes run the default, which is what does best
// over all cases. Cases of the same dimensions, such as two positions in one longest context or two
// numbers of heads, share a bucket: its config is best for them together, its times are their
// means. Of configs within a hundredth of the best, the first. Buckets that run the default are
// left out.
tuning::File MakeTable(const KernelEntry& entry, const std::vector<Timing>& timings,
                       const TuningOrigin& origin);

// Whether the entry runs alike without the table.
bool IsDefault(const KernelEntry& entry, const tuning::File& table);

// As JSON, by the schema, a line for each bucket.
std::string TextOf(const tuning::File& file);

}  // namespace dsv4
