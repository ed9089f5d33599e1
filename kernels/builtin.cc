// SPDX-License-Identifier: Apache-2.0
#include "kernels/builtin.h"

#include <array>

#include "kernels/cpu/manifest.h"
#include "kernels/reference/manifest.h"

namespace dsv4 {

absl::Span<const Manifest> BuiltinManifests() {
  static const std::array<Manifest, 2> manifests = {CpuManifest(), ReferenceManifest()};
  return manifests;
}

}  // namespace dsv4
