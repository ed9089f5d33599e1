// SPDX-License-Identifier: Apache-2.0
// The one list of kernel manifests in this build, in priority order.
#pragma once

#include "kernels/registry/kernel_entry.h"

namespace dsv4 {

absl::Span<const Manifest> BuiltinManifests();

}  // namespace dsv4
