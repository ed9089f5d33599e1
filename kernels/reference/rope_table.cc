// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "kernels/reference/launch.h"
#include "kernels/reference/numerics.h"

namespace dsv4::reference {
namespace {

void FillRow(int64_t position, const float* frequencies, float* out) {
  for (int64_t i = 0; i < kRopePairs; ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    out[i] = static_cast<float>(std::cos(double{angle}));
    out[kRopePairs + i] = static_cast<float>(std::sin(double{angle}));
  }
}

}  // namespace

void LaunchRopeTable(const LaunchContext& context, const RopeTableParams& params) {
  const RopeTables& out = params.out;
  StreamOf(context).ParallelFor(params.rows, [&](int64_t t, int) {
    const int64_t position = params.positions[t];
    const int64_t row = t * 2 * kRopePairs;
    const float* compressed = params.frequencies.compressed;
    FillRow(position, params.frequencies.window, out.window + row);
    FillRow(position, compressed, out.compressed + row);
    if ((position + 1) % kCsaRatio == 0) {
      FillRow(position + 1 - kCsaRatio, compressed, out.ratio4 + row);
    }
    if ((position + 1) % kHcaRatio == 0) {
      FillRow(position + 1 - kHcaRatio, compressed, out.ratio128 + row);
    }
  });
}

}  // namespace dsv4::reference
