// SPDX-License-Identifier: Apache-2.0
// Tuning tables of measurements, and their text. Measuring is measure.h's.
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
// means. Of configs within a hundredth of the best, the first.
tuning::File MakeTable(const KernelEntry& entry, const std::vector<Timing>& timings,
                       const TuningOrigin& origin);

// The same choices for a device on which nothing was measured.
struct ModelledDevice {
  const char* option;  // "rtx-5090"
  const char* name;
  int32_t compute_capability;
  int32_t multiprocessors;
};
absl::Span<const ModelledDevice> ModelledDevices();
tuning::File ModelTable(const tuning::File& measured, const ModelledDevice& device);

// As JSON, by the schema, a line for each bucket.
std::string TextOf(const tuning::File& file);

}  // namespace dsv4
