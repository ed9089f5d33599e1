// SPDX-License-Identifier: Apache-2.0
// The products of m16n8 tiles that tensor cores compute, from the fragments that the PTX ISA shows
// for each shape. Sums are exact before they are rounded once, which is more than any GPU promises.
// Not a part of the kernels: their accesses to memory are looked at, those of a product are not.
#pragma once

#include <cstdint>

namespace dsv4::emulation {

// What a lane gives, and what it gets: parts of the tiles as words.
struct MmaGive {
  float d[4] = {};
  uint32_t a[4] = {}, b[2] = {};
  uint32_t a_scale = 0, b_scale = 0;
};
struct MmaGet {
  float d[4];
};

// d = a b + d. kE2M1: a's codes, each in bits 5 .. 2 of its byte; b has e4m3. kInt8: exact.
enum class MmaType { kBf16, kF16, kE4M3, kE2M1, kInt8 };
// With scales of rows and columns for e4m3 and e2m1: byte `a_scale_byte` of a_scale, byte 0 of
// b_scale.
void MultiplyTiles(MmaType type, int a_scale_byte, const MmaGive* give, MmaGet* get);

}  // namespace dsv4::emulation
