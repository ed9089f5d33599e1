// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/op/cache_rows.h"
#include "kernels/reference/launch.h"
#include "kernels/reference/numerics.h"
#include "kernels/reference/row_math.h"

namespace dsv4::reference {
namespace {

constexpr int64_t kChunk = 64;  // dims that one unit of work pools; divides 128 and 512

double ExpOfDifference(float a, float b) { return std::exp(double{a} - b); }

// Online softmax triples of a chunk of dims.
struct Pool {
  float largest[kChunk], weights[kChunk], weighted[kChunk];

  void Clear() {
    std::fill_n(largest, kChunk, -std::numeric_limits<float>::infinity());
    std::fill_n(weights, kChunk, 0.0f);
    std::fill_n(weighted, kChunk, 0.0f);
  }

  // `triple` points to the chunk's first dim in a triple [3][dim] of the state.
  void Load(const float* triple, int64_t dim) {
    std::copy_n(triple, kChunk, largest);
    std::copy_n(triple + dim, kChunk, weights);
    std::copy_n(triple + 2 * dim, kChunk, weighted);
  }
  void Store(float* triple, int64_t dim) const {
    std::copy_n(largest, kChunk, triple);
    std::copy_n(weights, kChunk, triple + dim);
    std::copy_n(weighted, kChunk, triple + 2 * dim);
  }

  void Add(const float* k, const float* z, const float* ape) {
    for (int64_t d = 0; d < kChunk; ++d) {
      const float score = z[d] + ape[d];
      const float top = std::max(largest[d], score);
      const double kept = ExpOfDifference(largest[d], top), added = ExpOfDifference(score, top);
      largest[d] = top;
      weights[d] = static_cast<float>(weights[d] * kept + added);
      weighted[d] = static_cast<float>(weighted[d] * kept + k[d] * added);
    }
  }

  void Average(float* out) const {
    for (int64_t d = 0; d < kChunk; ++d) out[d] = weighted[d] / weights[d];
  }

  // The pool over the entries of both.
  void AverageWith(const Pool& other, float* out) const {
    for (int64_t d = 0; d < kChunk; ++d) {
      const float top = std::max(largest[d], other.largest[d]);
      const double mine = ExpOfDifference(largest[d], top);
      const double others = ExpOfDifference(other.largest[d], top);
      out[d] = static_cast<float>((other.weighted[d] * others + weighted[d] * mine) /
                                  (other.weights[d] * others + weights[d] * mine));
    }
  }
};

// Zeros where there is no pool.
void StoreOrClear(const Pool* pool, float* triple, int64_t dim) {
  if (pool != nullptr) return pool->Store(triple, dim);
  for (int64_t i = 0; i < 3; ++i) std::fill_n(triple + i * dim, kChunk, 0.0f);
}

// Runs dims [first_dim, first_dim + kChunk) of a sequence's rows through the state; the pooled
// value of a compressed block that ends at row t of the step goes to pooled_rows[t].
void PoolSequence(const CompressKvParams& params, const SequenceRows& sequence, int64_t first_dim,
                  float* pooled_rows) {
  const bool overlapping = params.ratio == kCsaRatio;
  const int64_t dim = params.dim(), width = params.width();
  const float* in =
      reinterpret_cast<const float*>(params.states.Slot(sequence.state_slot)) + first_dim;
  const StateWrite* write = sequence.state_writes;

  // Part A of the previous compressed block, part A and part B of the incomplete one. Ratio 128 has
  // one part, which lies where `part_b` is.
  Pool previous, part_a, part_b;
  if (overlapping) {
    previous.Load(in, dim);
    part_a.Load(in + 3 * dim, dim);
    part_b.Load(in + 6 * dim, dim);
  } else {
    part_b.Load(in, dim);
  }
  for (int64_t i = 0; i < sequence.rows; ++i) {
    const int64_t position = sequence.first_position + i;
    const int64_t compressed_block = position / params.ratio, entry = position % params.ratio;
    const int64_t row = (sequence.first_row + i) * width + first_dim;
    const int64_t ape = entry * width + first_dim;
    const int64_t b = overlapping ? dim : 0;
    if (entry == 0) {
      part_a.Clear();
      part_b.Clear();
    }
    if (overlapping) part_a.Add(params.k + row, params.z + row, params.ape + ape);
    part_b.Add(params.k + row + b, params.z + row + b, params.ape + ape + b);
    const bool ends = entry + 1 == params.ratio;
    if (ends) {
      float* pooled = pooled_rows + (sequence.first_row + i) * dim + first_dim;
      if (overlapping && compressed_block > 0) {
        part_b.AverageWith(previous, pooled);
      } else {
        part_b.Average(pooled);
      }
      previous = part_a;
    }
    if (i + 1 != write->row) continue;
    float* out = reinterpret_cast<float*>(params.states.Slot(write++->slot)) + first_dim;
    if (overlapping) {
      StoreOrClear(position + 1 >= params.ratio ? &previous : nullptr, out, dim);
      StoreOrClear(ends ? nullptr : &part_a, out + 3 * dim, dim);
      out += 6 * dim;
    }
    StoreOrClear(ends ? nullptr : &part_b, out, dim);
  }
}

// `row` holds the compressed block's pooled values and is used up.
void StoreCompressedRow(const LaunchContext& context, const CompressKvParams& params,
                        const float* rope, const SequenceRows& sequence, int64_t compressed_block,
                        float* row) {
  const int64_t dim = params.dim(), plain = dim - kKvRopeElements;
  Round(context, Point::kRoundPooling, row, dim);
  RmsNormRow(row, dim, params.norm, params.eps, row);
  Round(context, Point::kRoundRmsNorm, row, dim);
  ApplyRope(row + plain, rope);
  Round(context, Point::kRoundRope, row + plain, kKvRopeElements);
  if (params.index_keys) {
    Hadamard128(row);
    Round(context, Point::kRoundHadamard, row, dim);
  }
  const int64_t per_block = kCompressedKvBlockTokens / params.ratio;
  const Point point = params.index_keys ? Point::kQuantIndexKey : Point::kQuantCompressedRow;
  StoreRow(params.rows, sequence.compressed_kv_blocks[compressed_block / per_block],
           compressed_block % per_block, row, InForce(context, point));
}

}  // namespace

void LaunchCompressKv(const LaunchContext& context, const CompressKvParams& params) {
  CpuStream& stream = StreamOf(context);
  const StepRows& step = *params.step;
  const int64_t chunks = params.dim() / kChunk;
  auto* pooled = reinterpret_cast<float*>(context.workspace);  // [T, dim]
  stream.ParallelFor(step.sequence_count * chunks, [&](int64_t unit, int) {
    PoolSequence(params, step.sequences[unit / chunks], unit % chunks * kChunk, pooled);
  });
  const float* rope = params.ratio == kCsaRatio ? step.rope.ratio4 : step.rope.ratio128;
  stream.ParallelFor(step.rows, [&](int64_t t, int) {
    const int64_t position = step.positions[t];
    if ((position + 1) % params.ratio != 0) return;
    StoreCompressedRow(context, params, rope + t * kKvRopeElements,
                       step.sequences[step.sequence_of[t]], position / params.ratio,
                       pooled + t * params.dim());
  });
}

int64_t CompressKvWorkspace(const CompressKvParams& params, int) {
  return params.step->rows * params.dim() * static_cast<int64_t>(sizeof(float));
}

}  // namespace dsv4::reference
