// SPDX-License-Identifier: Apache-2.0
// The one list of kernel manifests in this build, in priority order, and the tuning files of their
// entries.
#pragma once

#include "kernels/registry/kernel_entry.h"
#include "kernels/tuning/tuning_file.h"

namespace dsv4 {

absl::Span<const Manifest> BuiltinManifests();
absl::Span<const EmbeddedTuningFile> BuiltinTuningFiles();

}  // namespace dsv4
