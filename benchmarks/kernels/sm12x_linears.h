// SPDX-License-Identifier: Apache-2.0
// The linears of bench_sm12x_matrix.cc: the calls of the model at Flash's sizes, which a test
// compares with lib/model (tests/tools/tune_test.cc); the calls of a rank of two, which has the
// linears of the hidden state and the indexer whole; and single weights of these.
#pragma once

#include <array>

#include "kernels/op/op.h"

namespace dsv4 {

struct LinearShape {
  const char* name;  // begins with the operator's
  Op op;
  int64_t k;
  std::array<int64_t, 5> n;  // of the parts; 0 behind the last
};

inline constexpr int64_t kIndexerHeads = 64;

inline constexpr LinearShape kLinearShapes[] = {
    {"linear_fp8 wq_a wkv", Op::kLinearFp8, 4096, {1024, 512}},
    {"linear_fp8 wq_b", Op::kLinearFp8, 1024, {32768}},
    {"linear_fp8 wq_b index wq_b", Op::kLinearFp8, 1024, {32768, 8192}},
    {"linear_fp8 wo_b", Op::kLinearFp8, 8192, {4096}},
    {"linear_fp8 index wq_b", Op::kLinearFp8, 1024, {8192}},
    {"linear_bf16 C4 layer", Op::kLinearBf16, 4096, {1024, 1024, 256, 256, kIndexerHeads}},
    {"linear_bf16 C4 compressor", Op::kLinearBf16, 4096, {1024, 1024}},
    {"linear_bf16 C128 compressor", Op::kLinearBf16, 4096, {512, 512}},
    {"linear_bf16 lm_head", Op::kLinearBf16, 4096, {129280}},
    {"linear_fp8 wq_b TP2", Op::kLinearFp8, 1024, {16384}},
    {"linear_fp8 wq_b index wq_b TP2", Op::kLinearFp8, 1024, {16384, 8192}},
    // e_proj and h_proj of the MTP block are of this size, too.
    {"linear_fp8 wo_b TP2", Op::kLinearFp8, 4096, {4096}},
    {"linear_bf16 lm_head TP2", Op::kLinearBf16, 4096, {64640}},
};

}  // namespace dsv4
