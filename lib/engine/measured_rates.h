// SPDX-License-Identifier: Apache-2.0
// Measures, when an engine opens, the rates that its predictions depend on and that table values
// cannot know: host memory as the CPU's threads read it, a GPU's link, and the disk of the model.
// Takes less than 0.3 s, measures only what the engine uses, and never fails: what cannot be
// measured keeps its table value. What other programs take of the cores meanwhile, the rate lacks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lib/device/device.h"
#include "lib/engine/expectation.h"
#include "lib/step/engine_facts.h"

namespace dsv4 {

struct MeasuredRates {
  // Bytes per second: of the CPU's threads together, of the GPU's link, of the model's disk.
  std::optional<double> memory{}, link{}, disk{};
};

// `files`: of the checkpoint; empty for random weights. The host's memory is measured once a
// process for each number of threads and size of a token's work. Not while the device computes.
MeasuredRates MeasureRates(const EngineInfo& info, const TokenWork& work, Device* device,
                           const std::vector<std::string>& files);

// The table's rates, with those that were measured in their place.
DeviceRates WithMeasured(DeviceRates rates, Backend backend, const MeasuredRates& measured);

// "rates measured at open: host memory 24.1 GB/s, disk 2.9 GB/s"; "" if none was.
std::string TextOf(const MeasuredRates& measured);

}  // namespace dsv4
