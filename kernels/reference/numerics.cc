// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/numerics.h"

namespace dsv4::reference {

void Round(const LaunchContext& context, Point point, float* values, int64_t count) {
  if (!InForce(context, point)) return;
  for (int64_t i = 0; i < count; ++i) values[i] = RoundToBf16(values[i]);
}

void ActQuant(const LaunchContext& context, Point point, float* values, int64_t count,
              int64_t run) {
  if (InForce(context, point)) dsv4::ActQuant(values, count, run);
}

void Fp4ActQuant(const LaunchContext& context, Point point, float* values, int64_t count) {
  if (InForce(context, point)) dsv4::Fp4ActQuant(values, count);
}

}  // namespace dsv4::reference
