// SPDX-License-Identifier: Apache-2.0
// The checkpoint's weight formats as views, and the scalar meaning of their elements. A view never
// owns memory: weights stay where the loader mapped them, in their stored format.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "lib/tensor/block_format.h"

namespace dsv4 {

// ue8m0: byte s means 2^(s - 127); 255 is NaN (refused by the loader). Byte 0 is a subnormal float.
inline float E8M0ToFloat(uint8_t scale) {
  return std::bit_cast<float>(scale == 0 ? 0x00400000u : uint32_t{scale} << 23);
}

// e4m3: sign, 4 exponent bits (bias 7), 3 mantissa bits; 0x7f and 0xff are NaN, there is no
// infinity.
inline float E4M3ToFloat(uint8_t bits) {
  const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                  : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((bits & 0x7f) == 0x7f) magnitude = NAN;
  return bits & 0x80 ? -magnitude : magnitude;
}

// e2m1: the low four bits; sign, then 0, .5, 1, 1.5, 2, 3, 4, 6.
constexpr float E2M1ToFloat(uint8_t bits) {
  constexpr float kMagnitude[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
  return bits & 8 ? -kMagnitude[bits & 7] : kMagnitude[bits & 7];
}

inline constexpr int64_t kFp8Block = 128;  // weight scale blocks are 128 x 128
inline constexpr int64_t kFp4Run = 32;     // one scale per 32 elements along a row
inline constexpr int64_t kNvfp4Run = 16;   // of NVFP4

// Block FP8 weight [n, k]: element (o, i) = e4m3(data[o, i]) * 2^(scale[o / 128, i / 128] - 127),
// or * f32_scale[o / 128, i / 128]. In a GGUF file it may be in any block format instead.
struct Fp8Weight {
  const uint8_t* data = nullptr;   // [n, k] e4m3, row-major, contiguous
  const uint8_t* scale = nullptr;  // [ceil(n / 128), ceil(k / 128)] ue8m0
  int64_t n = 0, k = 0;
  const float* f32_scale = nullptr;     // in place of `scale`, where no power of two does
  BlockType blocks = BlockType::kNone;  // if another: `data` are its blocks, without scales

  constexpr bool in_blocks() const { return blocks != BlockType::kNone; }
  BlockWeight block_weight() const { return {data, blocks, n, k}; }
};

// MXFP4 weight [n, k], k even: byte j of a row holds elements 2j (low nibble) and 2j + 1 (high).
struct Fp4Weight {
  const uint8_t* data = nullptr;   // [n, k / 2] packed e2m1, row-major, contiguous
  const uint8_t* scale = nullptr;  // [n, k / 32] ue8m0
  int64_t n = 0, k = 0;
};

// NVFP4 weight [n, k]: elements as of Fp4Weight, times their run's scale and that of the tensor.
struct Nvfp4Weight {
  const uint8_t* data = nullptr;   // [n, k / 2] packed e2m1, row-major, contiguous
  const uint8_t* scale = nullptr;  // [n, k / 16] e4m3
  int64_t n = 0, k = 0;
  float tensor_scale = 1;
};

// bf16 weight [n, k]. In a GGUF file it may be in any block format instead.
struct Bf16Weight {
  const uint16_t* data = nullptr;  // [n, k] bf16, row-major, contiguous; 2-byte aligned
  int64_t n = 0, k = 0;
  BlockType blocks = BlockType::kNone;  // if another: `data` are its blocks

  constexpr bool in_blocks() const { return blocks != BlockType::kNone; }
  BlockWeight block_weight() const {
    return {reinterpret_cast<const uint8_t*>(data), blocks, n, k};
  }
};

// kBlocks: a block format of a GGUF file.
enum class ExpertFormat : uint8_t { kMxfp4, kNvfp4, kFp8, kBlocks };

// A matrix of a routed expert, in the format in which its file has it: the members of that format's
// view.
struct ExpertMatrix {
  const uint8_t* data = nullptr;
  const uint8_t* scale = nullptr;
  int64_t n = 0, k = 0;
  const float* f32_scale = nullptr;
  float tensor_scale = 1;
  ExpertFormat format = ExpertFormat::kMxfp4;
  BlockType blocks = BlockType::kNone;  // of kBlocks

  ExpertMatrix() = default;
  ExpertMatrix(const Fp4Weight& w)  // NOLINT: a view of any format
      : data(w.data), scale(w.scale), n(w.n), k(w.k) {}
  ExpertMatrix(const Nvfp4Weight& w)  // NOLINT
      : data(w.data),
        scale(w.scale),
        n(w.n),
        k(w.k),
        tensor_scale(w.tensor_scale),
        format(ExpertFormat::kNvfp4) {}
  ExpertMatrix(const Fp8Weight& w)  // NOLINT
      : data(w.data),
        scale(w.scale),
        n(w.n),
        k(w.k),
        f32_scale(w.f32_scale),
        format(ExpertFormat::kFp8) {}
  ExpertMatrix(const BlockWeight& w)  // NOLINT
      : data(w.data), n(w.n), k(w.k), format(ExpertFormat::kBlocks), blocks(w.type) {}

  Fp4Weight mxfp4() const { return {data, scale, n, k}; }
  Nvfp4Weight nvfp4() const { return {data, scale, n, k, tensor_scale}; }
  Fp8Weight fp8() const { return {data, scale, n, k, f32_scale}; }
  BlockWeight block_weight() const { return {data, blocks, n, k}; }
};

// The block types of an expert's matrices.
struct ExpertBlocks {
  BlockType w1 = BlockType::kNone, w3 = BlockType::kNone, w2 = BlockType::kNone;
  bool operator==(const ExpertBlocks&) const = default;
};

// One routed expert. Kernels reach experts through a table of pointers, so that they may live in
// different places (I expert width, D hidden).
struct ExpertWeights {
  ExpertMatrix w1, w3;  // [I, D]
  ExpertMatrix w2;      // [D, I]
};

}  // namespace dsv4
