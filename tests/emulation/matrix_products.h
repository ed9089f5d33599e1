// SPDX-License-Identifier: Apache-2.0
// The products of m16n8 tiles that tensor cores compute, from the fragments that the PTX ISA shows
// for each shape. Not a part of the kernels: their accesses to memory are looked at, those of a
// product are not.
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

// Wrong readings of the block-scaled products, one of which kernels and emulation might share.
enum class MmaFault {
  kNone,
  kSwappedRowScales,        // of rows g and g + 8
  kIgnoredScaleByte,        // byte 0 always
  kNeighboursColumnScales,  // of columns n and n ^ 1
  kLowE2M1,                 // codes in bits 3 .. 0
  kSwappedRegisters,        // a[1] and a[2]
};

// How tensor cores sum the products of a row and d.
struct MmaModel {
  // The bits behind the binary point to which each of them is cut, as a multiple of the largest
  // one's power of 2; the sum is then cut to f32. 0: the sum is exact before it is rounded once,
  // which is more than any GPU promises.
  int fraction_bits = 0;
  // The same for e4m3 and e2m1.
  int scaled_fraction_bits = 0;
  MmaFault fault = MmaFault::kNone;
};
// MMA-Sim (arXiv 2511.10909), which its authors found equal to the card bit for bit.
inline constexpr MmaModel kRtxBlackwell = {.fraction_bits = 25, .scaled_fraction_bits = 25};

// While no kernel runs.
void SetMmaModel(const MmaModel& model);

}  // namespace dsv4::emulation
