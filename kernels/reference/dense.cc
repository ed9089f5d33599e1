// SPDX-License-Identifier: Apache-2.0
// embed_rows, rms_norm and the linears.
#include <algorithm>

#include "kernels/reference/launch.h"
#include "kernels/reference/matmul.h"
#include "kernels/reference/numerics.h"
#include "kernels/reference/row_math.h"
#include "lib/tensor/dtype.h"

namespace dsv4::reference {
namespace {

void RoundRows(const LaunchContext& context, Point point, float* y, int64_t rows, int64_t width) {
  StreamOf(context).ParallelFor(
      rows, [&](int64_t t, int) { Round(context, point, y + t * width, width); });
}

int64_t MatmulWorkspaceBytes(int64_t rows, int64_t k, int threads) {
  return MatmulWorkspaceFloats(rows, k, threads) * static_cast<int64_t>(sizeof(float));
}

}  // namespace

void LaunchEmbedRows(const LaunchContext& context, const EmbedRowsParams& params) {
  const int64_t dim = params.embed.k;
  StreamOf(context).ParallelFor(params.rows, [&](int64_t t, int) {
    float* row = static_cast<float*>(params.out) + t * params.copies * dim;
    LoadRow(params.embed, params.TokenOf(t), row);
    if (params.embed.in_blocks() && context.numerics == Numerics::kPublished) {
      for (int64_t i = 0; i < dim; ++i) row[i] = RoundToBf16(row[i]);
    }
    for (int64_t c = 1; c < params.copies; ++c) std::copy(row, row + dim, row + c * dim);
  });
}

void LaunchCopyRows(const LaunchContext& context, const CopyRowsParams& params) {
  StreamOf(context).ParallelFor(params.rows, [&](int64_t r, int) {
    std::copy_n(params.from[r], params.row_bytes, params.to[r]);
  });
}

void LaunchRmsNorm(const LaunchContext& context, const RmsNormParams& params) {
  const int64_t dim = params.dim;
  StreamOf(context).ParallelFor(params.rows, [&](int64_t t, int) {
    float* normed = static_cast<float*>(params.normed);
    float* quantized = static_cast<float*>(params.quantized);
    float* row = (quantized != nullptr ? quantized : normed) + t * dim;
    RmsNormRow(static_cast<const float*>(params.x) + t * dim, dim, params.weight, params.eps, row);
    Round(context, Point::kRoundRmsNorm, row, dim);
    if (quantized == nullptr) return;
    if (normed != nullptr) std::copy(row, row + dim, normed + t * dim);
    ActQuant(context, Point::kQuantLinearInput, row, dim, kFp8Block);
  });
}

void LaunchLinearFp8(const LaunchContext& context, const LinearFp8Params& params) {
  for (int32_t i = 0; i < params.part_count; ++i) {
    const LinearFp8Params::Part& part = params.parts[i];
    float* y = static_cast<float*>(part.y);
    Linear(context, part.w, static_cast<const float*>(params.x), nullptr, params.rows, y,
           reinterpret_cast<float*>(context.workspace));
    RoundRows(context, Point::kRoundLinear, y, params.rows, part.w.n);
  }
}

int64_t LinearFp8Workspace(const LinearFp8Params& params, int threads) {
  return MatmulWorkspaceBytes(params.rows, params.k, threads);
}

void LaunchLinearBf16(const LaunchContext& context, const LinearBf16Params& params) {
  for (int32_t i = 0; i < params.part_count; ++i) {
    const LinearBf16Params::Part& part = params.parts[i];
    float* y = static_cast<float*>(part.y);
    Linear(context, part.w, static_cast<const float*>(params.x), nullptr, params.rows, y,
           reinterpret_cast<float*>(context.workspace));
    if (part.round_output) RoundRows(context, Point::kRoundLinear, y, params.rows, part.w.n);
  }
}

int64_t LinearBf16Workspace(const LinearBf16Params& params, int threads) {
  return MatmulWorkspaceBytes(params.rows, params.k, threads);
}

void LaunchOutputGroups(const LaunchContext& context, const OutputGroupsParams& params) {
  const int64_t width = params.groups * params.rank;
  float* y = static_cast<float*>(params.y);
  for (int64_t group = 0; group < params.groups; ++group) {
    MatmulParams matmul;
    matmul.rows = params.rows;
    matmul.k = params.group_width;
    matmul.x = static_cast<const float*>(params.o) + group * params.group_width;
    matmul.x_stride = params.groups * params.group_width;
    matmul.n = params.rank;
    matmul.y = y + group * params.rank;
    matmul.y_stride = width;
    matmul.int8_input = RoundsInput(context, params.wo_a);
    Matmul(
        context, matmul,
        [&](int64_t n, float* out) {
          LoadRow(params.wo_a, group * params.rank + n, out);
          // Under powers of two, elements are bf16 numbers as they are.
          if (params.wo_a.f32_scale == nullptr) return;
          for (int64_t i = 0; i < params.group_width; ++i) out[i] = RoundToBf16(out[i]);
        },
        reinterpret_cast<float*>(context.workspace));
  }
  StreamOf(context).ParallelFor(params.rows, [&](int64_t t, int) {
    Round(context, Point::kRoundOutputGroups, y + t * width, width);
    if (params.quantise) {
      ActQuant(context, Point::kQuantOutputGroups, y + t * width, width, kFp8Block);
    }
  });
}

int64_t OutputGroupsWorkspace(const OutputGroupsParams& params, int threads) {
  return MatmulWorkspaceBytes(params.rows, params.group_width, threads);
}

}  // namespace dsv4::reference
