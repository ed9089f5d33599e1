// SPDX-License-Identifier: Apache-2.0
// Matrix products by panels: a range of weight rows times activation rows, for weights of any
// stored format and any scales; and linears that consist of them, on the stream's threads.
//
// With few activation rows, products read the weights directly. With many, a panel is unpacked once
// into scratch that stays in L2 and multiplied with slices of activation rows that stay in L1. Both
// give the same bits.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/cpu/dot.h"
#include "lib/device/stream.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

// A weight [n, k] in its stored format.
struct WeightView {
  enum class Format {
    kBf16,
    kFp8,
    kFp4,
    kNvfp4,
    kFp8F32,      // FP8 with F32 scales; the sum of a run of K is multiplied by its scale
    kFp8Rounded,  // the same; each element is multiplied by its scale and rounded to bf16
    kBlocks,      // `blocks`, any but bf16
  };
  Format format = Format::kBf16;
  const void* data = nullptr;
  const uint8_t* scale = nullptr;
  int64_t n = 0, k = 0;
  const float* f32_scale = nullptr;
  float tensor_scale = 1;  // of kNvfp4
  BlockType blocks = BlockType::kNone;

  WeightView() = default;
  WeightView(const BlockWeight& w)  // NOLINT: a view of any weight
      : format(w.type == BlockType::kBf16 ? Format::kBf16 : Format::kBlocks),
        data(w.data),
        n(w.n),
        k(w.k),
        blocks(w.type) {}
  WeightView(const Bf16Weight& w)  // NOLINT
      : format(Format::kBf16), data(w.data), n(w.n), k(w.k) {
    if (w.in_blocks()) *this = w.block_weight();
  }
  WeightView(const Fp8Weight& w)  // NOLINT
      : format(w.f32_scale != nullptr ? Format::kFp8F32 : Format::kFp8),
        data(w.data),
        scale(w.scale),
        n(w.n),
        k(w.k),
        f32_scale(w.f32_scale) {
    if (w.in_blocks()) *this = w.block_weight();
  }
  WeightView(const Fp4Weight& w)  // NOLINT
      : format(Format::kFp4), data(w.data), scale(w.scale), n(w.n), k(w.k) {}
  WeightView(const Nvfp4Weight& w)  // NOLINT
      : format(Format::kNvfp4),
        data(w.data),
        scale(w.scale),
        n(w.n),
        k(w.k),
        tensor_scale(w.tensor_scale) {}
  WeightView(const ExpertMatrix& w);  // NOLINT

  int64_t bytes_per_row() const;
  // Whether products read activation rows that PackRows has rounded to int8.
  bool int8_rows() const { return format == Format::kBlocks && IsQuantised(blocks); }
};

inline constexpr int64_t kPanelRows = 128;  // most weight rows of a panel
inline constexpr int64_t kSliceRows = 64;   // most activation rows of a slice

// The number of activation rows to multiply at once with an unpacked panel, so that they stay in
// L1, or in L2 if they are packed: then a multiple of kPackedTileRows.
int64_t SliceRows(int64_t k);

// Packing of activation rows of k elements, for callers that multiply the same rows by several
// panels:
// - PacksRows: whether so many rows are packed.
// - PackedBytes: bytes for the packed rows; 0 if they are not packed.
// - PackRows: if m rows are packed, packs them to `packed` and returns rows that refer to it; else
//   returns `a`.
// With `int8`, for weights with int8_rows(): rows are packed whatever their number.
bool PacksRows(int64_t rows, int64_t k, bool int8 = false);
int64_t PackedBytes(int64_t rows, int64_t k, bool int8 = false);
ActRows PackRows(const ActRows& a, int64_t m, int64_t k, uint32_t* packed, bool int8 = false);

// Bytes of scratch to unpack `n` rows of a weight: none for bf16.
int64_t UnpackedBytes(WeightView::Format format, int64_t n, int64_t k);

// Weight rows [n0, n0 + n), ready for dot products. REQUIRES: n <= kPanelRows; rows of an FP8
// weight lie in one block of 128.
class Panel {
 public:
  // For `rows` activation rows in all. `scratch` has UnpackedBytes(format, n, k) and outlives the
  // panel.
  Panel(const WeightView& weight, int64_t n0, int64_t n, int64_t rows, uint16_t* scratch);

  // out[i * ld + j] = a row i . weight row n0 + j, for i < m, j < n, in f32. Of a weight with
  // int8_rows(), `a` is packed.
  void Dot(const ActRows& a, int64_t m, float* out, int64_t ld) const;

 private:
  void Unpack(int64_t j, int64_t n, const uint8_t* scales) const;
  void DotDirect(const ActRows& a, int64_t m, int64_t j, int64_t n, float* out, int64_t ld) const;
  void DotUnfolded(const ActRows& a, int64_t m, int64_t j, float* out, int64_t ld) const;
  void DotByRuns(const ActRows& a, int64_t m, float* out, int64_t ld) const;
  void UnpackBlockRows(int64_t j, int64_t n) const;
  void PrefetchBlockRows(int64_t j, int64_t n) const;
  void DotBlocks(const ActRows& a, int64_t m, float* out, int64_t ld) const;
  bool FoldsExactly(int64_t j, int64_t n) const;
  const uint8_t* RowScales(int64_t j) const;

  const DotKernels& kernels_;
  const WeightView& weight_;
  int64_t n0_, n_;
  uint16_t* scratch_;
  // Rows unpacked_stride_ apart; null: products read the weight itself.
  const uint16_t* unpacked_ = nullptr;
  int64_t unpacked_stride_ = 0;
  decltype(DotKernels::direct_fp8) direct_ = nullptr;
  bool folds_ = true;  // every scale is within kMaxFold
};

// The output format of a linear.
enum class LinearOutput {
  kF32,
  kRound,          // to bf16
  kRoundQuantise,  // to bf16, then the act_quant 128 round trip; n is a multiple of 128
};

struct LinearPart {
  ActRows x;
  WeightView w;
  LinearOutput output = LinearOutput::kRound;
  void* y = nullptr;     // [rows, n], bf16 or f32
  int64_t y_stride = 0;  // elements
};

// Bytes of workspace on a stream of `threads` threads, for parts of this kind with `inputs`
// different x. A launch needs the maximum over its parts.
int64_t LinearWorkspaceBytes(WeightView::Format format, LinearOutput output, int64_t k, int threads,
                             int64_t rows, int64_t inputs = 1);
// The format of `w` instead of `format`, if `w` is in blocks.
template <class Weight>
WeightView::Format FormatOf(const Weight& w, WeightView::Format format) {
  return w.in_blocks() ? WeightView::Format::kBlocks : format;
}

// Computes y = x w^T of every part for `rows` rows. REQUIRES: all parts have the same K, and parts
// with the same x are adjacent. Parts whose weights need rows packed in another way run one after
// the other.
void RunLinear(CpuStream& stream, absl::Span<const LinearPart> parts, int64_t rows,
               std::byte* workspace);

// Runs f(unit, worker) for every unit. Uses only the calling thread if `work` (estimated cycles on
// one thread) is too little to wake others.
template <class F>
void ForUnits(CpuStream& stream, int64_t units, int64_t work, F&& f) {
  constexpr int64_t kWorthWaking = 6000;
  if (work < kWorthWaking) {
    for (int64_t unit = 0; unit < units; ++unit) f(unit, 0);
  } else {
    stream.ParallelFor(units, f);
  }
}

// Estimated cycles on one thread for `rows` activation rows times `n` rows of such a weight.
int64_t DotCycles(const WeightView& weight, int64_t n, int64_t rows);

}  // namespace dsv4
