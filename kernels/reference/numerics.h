// SPDX-License-Identifier: Apache-2.0
// The numerics modes in the reference backend: which points are in force, rounding to bf16, the two
// activation quantisers and their encodings. Activations are f32 in memory.
#pragma once

#include <cstdint>

#include "kernels/op/op.h"
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

// e4m3 and e2m1 of `value`: round to nearest even, saturating at 448 and 6. NaN becomes NaN in
// e4m3 and the largest magnitude in e2m1.
uint8_t EncodeE4M3(float value);
uint8_t EncodeE2M1(float value);

// The quantisers' scale of one run: 2^ceil(log2(max(|values|, floor) / limit)), with limit 448 and
// floor 1e-4 for e4m3, 6 and 6 * 2^-126 for e2m1.
float E4M3RunScale(const float* values, int64_t count);
float E2M1RunScale(const float* values, int64_t count);

// Round trips in place; `count` is a multiple of `run`, which is 64 or 128 (32 for fp4).
void ActQuant(float* values, int64_t count, int64_t run);
void Fp4ActQuant(float* values, int64_t count);

// The same where `point` is in force; nothing otherwise.
void ActQuant(const LaunchContext& context, Point point, float* values, int64_t count, int64_t run);
void Fp4ActQuant(const LaunchContext& context, Point point, float* values, int64_t count);

// E4M3ToFloat of all 256 bytes.
const float* E4M3Table();

}  // namespace dsv4::reference
