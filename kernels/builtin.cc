// SPDX-License-Identifier: Apache-2.0
#include "kernels/builtin.h"

#include "kernels/cpu/manifest.h"
#include "kernels/reference/manifest.h"
#ifdef DSV4_HAVE_CUDA
#include "kernels/sm12x/manifest.h"
#endif

namespace dsv4 {

absl::Span<const Manifest> BuiltinManifests(KernelSet set) {
  static const Manifest manifests[] = {
#ifdef DSV4_HAVE_CUDA
      Sm12xManifest(),
#endif
      CpuManifest(),
      ReferenceManifest(),
  };
#ifdef DSV4_HAVE_CUDA
  static const Manifest second[] = {Sm12xSecondManifest(), CpuManifest(), ReferenceManifest()};
  if (set == KernelSet::kSecond) return second;
#else
  static_cast<void>(set);
#endif
  return manifests;
}

}  // namespace dsv4
