// SPDX-License-Identifier: Apache-2.0
// Rows rounded to int8 for weights in block formats (lib/tensor/int8_run.h). Each chunk of 32
// elements is a record: 32 codes in the order of the elements, the f32 scale, the sums of the codes
// of both halves as 16 bits each, and 8 unused bytes. Records are [row][chunk].
#pragma once

#include <cstdint>

#include "kernels/sm12x/bf16.cuh"
#include "kernels/sm12x/block_products.h"

namespace dsv4::sm12x {

struct RoundedChunk {
  uint32_t codes[8];
  float scale;
  uint32_t sums;  // of the first half in the lower 16 bits
};

__device__ __forceinline__ RoundedChunk RoundChunk(const uint4 (&from)[4]) {
  const uint32_t pairs[16] = {from[0].x, from[0].y, from[0].z, from[0].w, from[1].x, from[1].y,
                              from[1].z, from[1].w, from[2].x, from[2].y, from[2].z, from[2].w,
                              from[3].x, from[3].y, from[3].z, from[3].w};
  float largest = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    largest = fmaxf(largest, fmaxf(fabsf(Bf16Low(pairs[i])), fabsf(Bf16High(pairs[i]))));
  }
  // Int8Scale of lib/tensor/int8_run.h.
  const bool tiny = !(largest >= 0x1p-100f);
  const float inverse = tiny ? 0.0f : __fdiv_rn(127.0f, largest);
  RoundedChunk rounded;
  int sums[2] = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const auto code = [&](float x) {
      return static_cast<uint32_t>(__float2int_rn(__fmul_rn(x, inverse))) & 0xff;
    };
    rounded.codes[i] = code(Bf16Low(pairs[2 * i])) | code(Bf16High(pairs[2 * i])) << 8 |
                       code(Bf16Low(pairs[2 * i + 1])) << 16 |
                       code(Bf16High(pairs[2 * i + 1])) << 24;
    sums[i / 4] = __dp4a(static_cast<int>(rounded.codes[i]), 0x01010101, sums[i / 4]);
  }
  rounded.scale = tiny ? 0.0f : __fdiv_rn(largest, 127.0f);
  rounded.sums = (static_cast<uint32_t>(sums[0]) & 0xffff) | static_cast<uint32_t>(sums[1]) << 16;
  return rounded;
}

}  // namespace dsv4::sm12x
