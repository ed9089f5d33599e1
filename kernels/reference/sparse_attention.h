// SPDX-License-Identifier: Apache-2.0
// Attention of up to 16 heads of one token over a list of rows, the inner part of
// sparse_attention. All sums are in double and each output is rounded once to f32.
#pragma once

#include <cstdint>

#include "kernels/reference/matmul.h"
#include "kernels/reference/scratch.h"

namespace dsv4::reference {

// One worker's arrays for at most `max_rows` rows.
struct AttentionPlan {
  AttentionPlan(std::byte* base, int64_t max_rows);
  Scratch scratch;
  int64_t padded_rows;  // a multiple of 8
  float* rows;          // [padded_rows, 512]: the caller's list of keys and values
  float* queries;       // [512, 16]
  double* scores;       // [padded_rows, 16]: q . row
  float* weights;       // [16, padded_rows]: exponentials, rounded to f32
  float* rests;         // [16, padded_rows]: their rounding errors
  double* sums;         // [16, 512]
};

// o[h] = sum_n p_n rows[n] / (sum_n p_n + exp(sink[h] - max)) over the first `row_count` of
// plan.rows, for `heads` <= 16 heads; q and o are [heads, 512], o may be q.
void AttendRows(const AttentionPlan& plan, int64_t row_count, const float* q, int64_t heads,
                const float* sink, float softmax_scale, float* o);

}  // namespace dsv4::reference
