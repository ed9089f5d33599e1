// SPDX-License-Identifier: Apache-2.0
// The numerics modes in the reference backend: which points are in force, rounding to bf16, and the
// two activation quantisers. Activations are f32 in memory.
#pragma once

#include <cstdint>

#include "kernels/op/op.h"
#include "kernels/op/quantizers.h"
#include "lib/device/stream.h"
#include "lib/tensor/dtype.h"

namespace dsv4::reference {

inline CpuStream& StreamOf(const LaunchContext& context) {
  return *static_cast<CpuStream*>(context.stream);
}

// Whether the launch rounds or quantises at `point`.
inline bool InForce(const LaunchContext& context, Point point) {
  if ((context.omitted_points & PointBit(point)) != 0) return false;
  switch (context.numerics) {
    case Numerics::kPublished:
      return true;
    case Numerics::kFp32:
      return IsQuantiser(point);
    case Numerics::kExact:
      return false;
  }
  return false;
}

// Rounds `count` values to bf16 in place where `point` is in force.
void Round(const LaunchContext& context, Point point, float* values, int64_t count);

// The quantisers (kernels/op/quantizers.h) where `point` is in force; nothing otherwise.
void ActQuant(const LaunchContext& context, Point point, float* values, int64_t count, int64_t run);
void Fp4ActQuant(const LaunchContext& context, Point point, float* values, int64_t count);

}  // namespace dsv4::reference
