// SPDX-License-Identifier: Apache-2.0
// The one list of kernel manifests in this build, in priority order, and the tuning files of their
// entries.
#pragma once

#include <cstdint>

#include "kernels/registry/kernel_entry.h"
#include "kernels/tuning/tuning_file.h"

namespace dsv4 {

// Which kernels a cuda device runs: kSecond leaves out the block-scaled MMA of SM12x. Weights are
// packed for one of the sets.
enum class KernelSet : int32_t { kFirst, kSecond };

absl::Span<const Manifest> BuiltinManifests(KernelSet set = KernelSet::kFirst);
absl::Span<const EmbeddedTuningFile> BuiltinTuningFiles();

}  // namespace dsv4
