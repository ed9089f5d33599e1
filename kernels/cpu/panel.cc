// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/panel.h"

#include <algorithm>
#include <array>
#include <bit>

#include "absl/container/inlined_vector.h"
#include "kernels/cpu/block_dot.h"
#include "kernels/cpu/epilogue.h"
#include "lib/base/checked_math.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/int8_run.h"

namespace dsv4 {
namespace {

using Format = WeightView::Format;

// Elements of one scale along K. For formats with E8M0 scales.
int64_t ScaleRun(Format format) { return format == Format::kFp4 ? kFp4Run : kFp8Block; }

bool IsE4M3(Format format) {
  return format == Format::kFp8 || format == Format::kFp8F32 || format == Format::kFp8Rounded;
}

// out[j * stride + i] = element (n0 + j, i) of an NVFP4 weight without the tensor's scale. Codes
// have two significant bits and scales four, so the products are exact in bf16.
void UnpackNvfp4(const WeightView& w, int64_t n0, int64_t n, uint16_t* out, int64_t stride) {
  static const std::array<float, 256> numbers = [] {
    std::array<float, 256> table{};
    for (int code = 0; code < 256; ++code) {
      table[static_cast<size_t>(code)] = E4M3ToFloat(static_cast<uint8_t>(code));
    }
    return table;
  }();
  const uint8_t* data = static_cast<const uint8_t*>(w.data) + n0 * w.k / 2;
  const uint8_t* scales = w.scale + n0 * w.k / kNvfp4Run;
  const int64_t row_runs = w.k / kNvfp4Run;
  for (int64_t run = 0; run < n * row_runs; ++run) {
    if (run > 0 && run % row_runs == 0) out += stride - w.k;
    const float scale = numbers[scales[run]];
    uint16_t scaled[16];
    for (uint8_t code = 0; code < 16; ++code) scaled[code] = FloatToBf16(E2M1ToFloat(code) * scale);
    for (int64_t i = 0; i < kNvfp4Run / 2; ++i) {
      *out++ = scaled[*data & 15];
      *out++ = scaled[*data++ >> 4];
    }
  }
}

// Multiplies unpacked e4m3 rows [n0, n0 + n), all of one block of rows, by their scales, and
// rounds.
void ScaleRounded(const WeightView& w, int64_t n0, int64_t n, uint16_t* unpacked, int64_t stride) {
  const float* scales = w.f32_scale + n0 / kFp8Block * CeilDiv(w.k, kFp8Block);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < w.k; ++i) {
      uint16_t& element = unpacked[j * stride + i];
      element = FloatToBf16(Bf16ToFloat(element) * scales[i / kFp8Block]);
    }
  }
}

// Most bytes of an unpacked panel. Panel and slice fit in L2, which has 2 MB on processors on which
// rows are packed.
int64_t PanelBytes() { return ActiveDotKernels().pack != nullptr ? 512 << 10 : 256 << 10; }

int64_t PowerOfTwoAtMost(int64_t n) {
  return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(n)));
}

// Weight rows of a panel: a power of two, so that no panel crosses an FP8 scale block.
int64_t PanelRows(LinearOutput output, int64_t k) {
  // The quantiser needs whole runs in a panel.
  if (output == LinearOutput::kRoundQuantise) return kPanelRows;
  return std::clamp<int64_t>(PowerOfTwoAtMost(PanelBytes() / (2 * k)), 16, kPanelRows);
}

int64_t ScratchBytes(Format format, LinearOutput output, int64_t k) {
  return UnpackedBytes(format, PanelRows(output, k), k) +
         kSliceRows * kPanelRows * static_cast<int64_t>(sizeof(float));
}

void StoreOutput(const LinearPart& part, const float* sums, int64_t m0, int64_t m, int64_t n0,
                 int64_t n) {
  const int64_t at = m0 * part.y_stride + n0;
  switch (part.output) {
    case LinearOutput::kF32:
      for (int64_t i = 0; i < m; ++i) {
        std::copy_n(sums + i * kPanelRows, n, static_cast<float*>(part.y) + at + i * part.y_stride);
      }
      return;
    case LinearOutput::kRound:
      return RoundRows(sums, kPanelRows, m, n, static_cast<uint16_t*>(part.y) + at, part.y_stride);
    case LinearOutput::kRoundQuantise:
      return RoundQuantiseRows(sums, kPanelRows, m, n, static_cast<uint16_t*>(part.y) + at,
                               part.y_stride);
  }
}

void PackInt8Rows(const ActRows& a, int64_t m, int64_t k, uint32_t* packed) {
  for (int64_t i = 0; i < m; ++i) {
    ActiveBlockDotKernels().pack(a.Row(i), k,
                                 reinterpret_cast<std::byte*>(packed) + i * PackedInt8Bytes(k));
  }
}

bool SameRows(const ActRows& a, const ActRows& b) {
  return a.base == b.base && a.stride == b.stride && a.index == b.index;
}

// Appends the rows of each part to `inputs`. Packs them in `workspace` if PacksRows; parts with the
// same rows share them. Returns the bytes used.
int64_t PackInputs(CpuStream& stream, absl::Span<const LinearPart> parts, int64_t rows,
                   std::byte* workspace, absl::InlinedVector<ActRows, 8>* inputs) {
  const bool int8 = parts.front().w.int8_rows();
  const int64_t k = parts.front().w.k, bytes = PackedBytes(rows, k, int8);
  int64_t used = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && SameRows(parts[i].x, parts[i - 1].x)) {
      inputs->push_back(inputs->back());
      continue;
    }
    inputs->push_back(parts[i].x);
    if (bytes == 0) continue;
    inputs->back().packed = reinterpret_cast<uint32_t*>(workspace + used);
    inputs->back().packed_k = int8 ? FilledElements(k) : k;
    inputs->back().int8 = int8;
    used += bytes;
  }
  if (used == 0) return 0;
  const int64_t tiles = CeilDiv(rows, kPackedTileRows);
  ForUnits(stream, tiles * static_cast<int64_t>(parts.size()), used / 16, [&](int64_t unit, int) {
    const auto i = static_cast<size_t>(unit / tiles);
    if (i > 0 && SameRows(parts[i].x, parts[i - 1].x)) return;
    const int64_t begin = unit % tiles * kPackedTileRows;
    const ActRows from = (*inputs)[i].From(begin);
    const int64_t m = std::min(kPackedTileRows, rows - begin);
    uint32_t* const packed = const_cast<uint32_t*>(from.packed);
    int8 ? PackInt8Rows(from, m, k, packed) : ActiveDotKernels().pack(from, m, k, packed);
  });
  return used;
}

}  // namespace

WeightView::WeightView(const ExpertMatrix& w) {
  switch (w.format) {
    case ExpertFormat::kMxfp4:
      *this = w.mxfp4();
      return;
    case ExpertFormat::kNvfp4:
      *this = w.nvfp4();
      return;
    case ExpertFormat::kFp8:
      *this = w.fp8();
      return;
    case ExpertFormat::kBlocks:
      *this = w.block_weight();
      return;
  }
}

int64_t WeightView::bytes_per_row() const {
  if (format == Format::kBlocks) return BlockBytes(blocks, k);
  return format == Format::kBf16 ? 2 * k : IsE4M3(format) ? k : k / 2;
}

int64_t SliceRows(int64_t k) {
  if (PacksRows(kSliceRows, k)) return kSliceRows;
  constexpr int64_t kSliceBytes = 24 << 10;
  constexpr int64_t kMostRows = 48;
  return std::clamp<int64_t>(kSliceBytes / (2 * k) / 6 * 6, 6, kMostRows);
}

bool PacksRows(int64_t rows, int64_t k, bool int8) {
  if (int8) return true;
  const DotKernels& kernels = ActiveDotKernels();
  return kernels.pack != nullptr && rows > kDirectRows && k >= kernels.least_packed_k;
}

int64_t PackedBytes(int64_t rows, int64_t k, bool int8) {
  constexpr int64_t kBytes = sizeof(uint16_t);
  static_assert(PackedInt8Bytes(kBlockRowElements) == kBlockRowElements * kBytes);
  if (!PacksRows(rows, k, int8)) return 0;
  return RoundUp(rows, kPackedTileRows) * (int8 ? FilledElements(k) : k) * kBytes;
}

ActRows PackRows(const ActRows& a, int64_t m, int64_t k, uint32_t* packed, bool int8) {
  ActRows rows = a;
  if (!PacksRows(m, k, int8)) return rows;
  int8 ? PackInt8Rows(a, m, k, packed) : ActiveDotKernels().pack(a, m, k, packed);
  rows.int8 = int8;
  rows.packed = packed;
  rows.packed_k = int8 ? FilledElements(k) : k;
  return rows;
}

int64_t UnpackedBytes(Format format, int64_t n, int64_t k) {
  // f32, or codes, scales and minima in less.
  if (format == Format::kBlocks) return n * k * static_cast<int64_t>(sizeof(float));
  return format == Format::kBf16
             ? 0
             : n * (k + ActiveDotKernels().row_gap) * static_cast<int64_t>(sizeof(uint16_t));
}

int64_t DotCycles(const WeightView& weight, int64_t n, int64_t rows) {
  return n * weight.bytes_per_row() / 16 + n * weight.k * rows / 64;
}

Panel::Panel(const WeightView& weight, int64_t n0, int64_t n, int64_t rows, uint16_t* scratch)
    : kernels_(ActiveDotKernels()), weight_(weight), n0_(n0), n_(n), scratch_(scratch) {
  if (weight.format == Format::kBf16) {
    unpacked_ = static_cast<const uint16_t*>(weight.data) + n0 * weight.k;
    unpacked_stride_ = weight.k;
    return;
  }
  if (weight.format == Format::kBlocks) {
    if (rows <= kDirectRows) return;
    UnpackBlockRows(0, n);
    unpacked_ = scratch;
    return;
  }
  unpacked_stride_ = weight.k + kernels_.row_gap;
  const uint8_t* data = static_cast<const uint8_t*>(weight.data) + n0 * weight.bytes_per_row();
  // Prefetches the first weights while the scales are checked.
  for (int64_t i = 0; i < std::min<int64_t>(n * weight.bytes_per_row(), 4096); i += 64) {
    __builtin_prefetch(data + i);
  }
  if (weight.format == Format::kNvfp4) {
    UnpackNvfp4(weight, n0, n, scratch, unpacked_stride_);
    unpacked_ = scratch;
    return;
  }
  if (weight.f32_scale != nullptr) {
    Unpack(0, n, nullptr);
    if (weight.format == Format::kFp8Rounded) {
      ScaleRounded(weight, n0, n, scratch, unpacked_stride_);
    }
    unpacked_ = scratch;
    return;
  }
  folds_ = FoldsExactly(0, n);
  if (weight.k <= kDirectMaxK) {
    direct_ = weight.format == Format::kFp8 ? kernels_.direct_fp8 : kernels_.direct_fp4;
  }
  if (!folds_ || (direct_ != nullptr && rows <= kDirectRows)) return;
  Unpack(0, n, RowScales(0));
  unpacked_ = scratch;
}

// Unpacks rows [j, j + n) of an FP8 or FP4 panel to the scratch. `scales`: from row j on; null
// unpacks without scales.
void Panel::Unpack(int64_t j, int64_t n, const uint8_t* scales) const {
  const bool fp4 = weight_.format == Format::kFp4;
  const auto unpack = fp4 ? kernels_.unpack_fp4 : kernels_.unpack_fp8;
  const uint8_t* data =
      static_cast<const uint8_t*>(weight_.data) + (n0_ + j) * weight_.bytes_per_row();
  // Without a gap all rows are unpacked in one call.
  const int64_t at_once = unpacked_stride_ == weight_.k ? n : 1;
  for (int64_t i = 0; i < n; i += at_once) {
    const int64_t first_scale = fp4 ? i * (weight_.k / kFp4Run) : 0;
    unpack(data + i * weight_.bytes_per_row(), scales == nullptr ? nullptr : scales + first_scale,
           at_once, weight_.k, scratch_ + i * unpacked_stride_);
  }
}

void Panel::Dot(const ActRows& a, int64_t m, float* out, int64_t ld) const {
  if (a.int8 != weight_.int8_rows()) {
    ActRows rows = a;
    rows.packed = nullptr;
    rows.int8 = weight_.int8_rows();
    return Dot(rows, m, out, ld);
  }
  if (weight_.format == Format::kBlocks) {
    DotBlocks(a, m, out, ld);
  } else if (weight_.format == Format::kFp8F32) {
    DotByRuns(a, m, out, ld);
  } else if (unpacked_ != nullptr) {
    kernels_.bf16(a, m, unpacked_, unpacked_stride_, n_, weight_.k, out, ld);
    if (weight_.format != Format::kNvfp4) return;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n_; ++j) out[i * ld + j] *= weight_.tensor_scale;
    }
  } else if (folds_) {
    DotDirect(a, m, 0, n_, out, ld);
  } else {
    for (int64_t j = 0; j < n_; ++j) {
      if (FoldsExactly(j, 1)) {
        DotDirect(a, m, j, 1, out + j, ld);
      } else {
        DotUnfolded(a, m, j, out + j, ld);
      }
    }
  }
}

// Dot for rows [j, j + n) of the panel, whose scales fold.
void Panel::DotDirect(const ActRows& a, int64_t m, int64_t j, int64_t n, float* out,
                      int64_t ld) const {
  const uint8_t* data =
      static_cast<const uint8_t*>(weight_.data) + (n0_ + j) * weight_.bytes_per_row();
  if (direct_ == nullptr) {
    Unpack(j, n, RowScales(j));
    kernels_.bf16(a, m, scratch_, unpacked_stride_, n, weight_.k, out, ld);
    return;
  }
  for (int64_t i = 0; i < m; i += kDirectRows) {
    direct_(a.From(i), std::min<int64_t>(kDirectRows, m - i), data, RowScales(j), n, weight_.k,
            out + i * ld, ld);
  }
}

// Dot for row j of the panel, which has a scale that does not fold: sums each run of K under one
// scale without it, and applies the scale in double. Slow, but no trained weights have such scales.
void Panel::DotUnfolded(const ActRows& a, int64_t m, int64_t j, float* out, int64_t ld) const {
  const uint8_t* scales = RowScales(j);
  const int64_t run = ScaleRun(weight_.format);
  Unpack(j, 1, nullptr);
  for (int64_t i = 0; i < m; ++i) {
    const ActRows row = a.From(i);
    double total = 0;
    for (int64_t p = 0; p < weight_.k; p += run) {
      float sum = 0;
      kernels_.bf16({row.Row(0) + p, 0, nullptr}, 1, scratch_ + p, weight_.k, 1, run, &sum, 1);
      total += double{sum} * E8M0ToFloat(scales[p / run]);
    }
    out[i * ld] = static_cast<float>(total);
  }
}

// Dot for F32 scales: sums each run of K under one scale without it, then applies the scale.
void Panel::DotByRuns(const ActRows& a, int64_t m, float* out, int64_t ld) const {
  constexpr int64_t kRows = 6;
  const float* scales = weight_.f32_scale + n0_ / kFp8Block * CeilDiv(weight_.k, kFp8Block);
  float sums[kRows * kPanelRows];
  double totals[kRows * kPanelRows];
  for (int64_t begin = 0; begin < m; begin += kRows) {
    const int64_t rows = std::min(kRows, m - begin);
    std::fill_n(totals, rows * kPanelRows, 0.);
    for (int64_t p = 0; p < weight_.k; p += kFp8Block) {
      ActRows part = ActRows{a.base, a.stride, a.index}.From(begin);
      part.base += p;
      kernels_.bf16(part, rows, unpacked_ + p, unpacked_stride_, n_, kFp8Block, sums, kPanelRows);
      const double scale = scales[p / kFp8Block];
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < n_; ++j) {
          totals[i * kPanelRows + j] += scale * double{sums[i * kPanelRows + j]};
        }
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < n_; ++j) {
        out[(begin + i) * ld + j] = static_cast<float>(totals[i * kPanelRows + j]);
      }
    }
  }
}

// Unpacks rows [j, j + n) of a panel in blocks to the beginning of the scratch.
void Panel::UnpackBlockRows(int64_t j, int64_t n) const {
  const int64_t k = weight_.k;
  const BlockDotKernels& kernels = ActiveBlockDotKernels();
  const auto* data =
      static_cast<const uint8_t*>(weight_.data) + (n0_ + j) * weight_.bytes_per_row();
  for (int64_t i = 0; i < n; ++i, data += weight_.bytes_per_row()) {
    if (weight_.int8_rows()) {
      kernels.unpack(weight_.blocks, data, k,
                     reinterpret_cast<std::byte*>(scratch_) + i * UnpackedBlockBytes(k));
    } else {
      kernels.load(weight_.blocks, data, k, reinterpret_cast<float*>(scratch_) + i * k);
    }
  }
}

// Asks for rows [j, j + n), which are read from memory while others are multiplied.
void Panel::PrefetchBlockRows(int64_t j, int64_t n) const {
  constexpr int64_t kLine = 64;
  const auto* const data =
      static_cast<const uint8_t*>(weight_.data) + (n0_ + j) * weight_.bytes_per_row();
  for (int64_t at = 0; at < n * weight_.bytes_per_row(); at += kLine) {
    __builtin_prefetch(data + at, 0, 2);
  }
}

// Few activation rows: weight rows are read as they are, or a few are unpacked at a time and stay
// in L1.
void Panel::DotBlocks(const ActRows& a, int64_t m, float* out, int64_t ld) const {
  const BlockDotKernels& kernels = ActiveBlockDotKernels();
  const int64_t k = weight_.k, at_once = unpacked_ != nullptr ? n_ : 4;
  if (unpacked_ == nullptr) {
    const auto* const data =
        static_cast<const uint8_t*>(weight_.data) + n0_ * weight_.bytes_per_row();
    const BlockDotKernels::Direct direct =
        weight_.int8_rows() ? kernels.direct(weight_.blocks, k) : nullptr;
    if (direct != nullptr) {
      return direct(reinterpret_cast<const std::byte*>(a.packed), m, data, n_, k, out, ld);
    }
    if (weight_.blocks == BlockType::kF16 && kernels.f16 != nullptr) {
      return kernels.f16(a, m, data, n_, k, out, ld);
    }
  }
  for (int64_t j = 0; j < n_; j += at_once) {
    const int64_t n = std::min(at_once, n_ - j);
    if (unpacked_ == nullptr) {
      UnpackBlockRows(j, n);
      PrefetchBlockRows(j + n, std::min(n, n_ - j - n));
    }
    if (weight_.int8_rows()) {
      kernels.int8(reinterpret_cast<const std::byte*>(a.packed), m,
                   reinterpret_cast<const std::byte*>(scratch_), n, k,
                   InfoOf(weight_.blocks).has_min(), out + j, ld);
    } else {
      kernels.f32(a, m, reinterpret_cast<const float*>(scratch_), n, k, out + j, ld);
    }
  }
}

// The scales of row j of the panel.
const uint8_t* Panel::RowScales(int64_t j) const {
  const int64_t runs = CeilDiv(weight_.k, ScaleRun(weight_.format));
  return weight_.scale + (weight_.format == Format::kFp4 ? n0_ + j : (n0_ + j) / kFp8Block) * runs;
}

bool Panel::FoldsExactly(int64_t j, int64_t n) const {
  const int64_t runs = CeilDiv(weight_.k, ScaleRun(weight_.format));
  const int64_t count = weight_.format == Format::kFp4 ? n * runs : runs;
  const uint8_t* scales = RowScales(j);
  uint8_t outside = 0;
  for (int64_t i = 0; i < count; ++i) {
    outside |= static_cast<uint8_t>(scales[i] - (127 - kMaxFold)) > 2 * kMaxFold;
  }
  return outside == 0;
}

int64_t LinearWorkspaceBytes(Format format, LinearOutput output, int64_t k, int threads,
                             int64_t rows, int64_t inputs) {
  return threads * ScratchBytes(format, output, k) +
         inputs * PackedBytes(rows, k, format == Format::kBlocks);
}

namespace {

// RunLinear for parts whose activation rows are packed alike.
void RunAlike(CpuStream& stream, absl::Span<const LinearPart> parts, int64_t rows,
              std::byte* workspace) {
  constexpr int64_t kUnitsPerThread = 4;
  int64_t work = 0, scratch_bytes = 0, weight_rows = 0;
  for (const LinearPart& part : parts) {
    work += DotCycles(part.w, part.w.n, rows);
    weight_rows += part.w.n;
    scratch_bytes = std::max(scratch_bytes, ScratchBytes(part.w.format, part.output, part.w.k));
  }
  const int64_t wanted = kUnitsPerThread * stream.threads();
  // Few rows: a unit is a short stretch of weight rows. Many rows: a unit is a whole panel, times a
  // block of rows if there are fewer panels than threads need.
  const int64_t stretch =
      rows <= kDirectRows
          ? std::clamp<int64_t>(PowerOfTwoAtMost(CeilDiv(weight_rows, wanted)), 16, kPanelRows)
          : kPanelRows;
  const auto unit_rows = [&](const LinearPart& part) {
    const int64_t panel = PanelRows(part.output, part.w.k);
    return part.output == LinearOutput::kRoundQuantise ? panel : std::min(panel, stretch);
  };
  int64_t panels = 0;
  for (const LinearPart& part : parts) panels += CeilDiv(part.w.n, unit_rows(part));
  const int64_t row_blocks =
      std::clamp<int64_t>(CeilDiv(wanted, panels), 1, CeilDiv(rows, kSliceRows));
  const bool packs = PacksRows(rows, parts.front().w.k, parts.front().w.int8_rows());
  const int64_t block_rows = RoundUp<int64_t>(CeilDiv(rows, row_blocks), packs ? kSliceRows : 6);

  absl::InlinedVector<ActRows, 8> inputs;
  std::byte* const scratch_begin = workspace + PackInputs(stream, parts, rows, workspace, &inputs);

  ForUnits(stream, panels * row_blocks, work, [&](int64_t unit, int worker) {
    int64_t panel = unit % panels;
    const LinearPart* part = parts.data();
    while (panel >= CeilDiv(part->w.n, unit_rows(*part))) {
      panel -= CeilDiv(part->w.n, unit_rows(*part));
      ++part;
    }
    std::byte* scratch = scratch_begin + worker * scratch_bytes;
    float* sums = reinterpret_cast<float*>(scratch);
    uint16_t* unpacked = reinterpret_cast<uint16_t*>(sums + kSliceRows * kPanelRows);
    const int64_t n0 = panel * unit_rows(*part), n = std::min(unit_rows(*part), part->w.n - n0);
    const int64_t begin = unit / panels * block_rows, end = std::min(rows, begin + block_rows);
    if (begin >= end) return;
    const Panel weights(part->w, n0, n, end - begin, unpacked);
    const int64_t slice = SliceRows(part->w.k);
    for (int64_t m0 = begin; m0 < end; m0 += slice) {
      const int64_t m = std::min(slice, end - m0);
      weights.Dot(inputs[part - parts.data()].From(m0), m, sums, kPanelRows);
      StoreOutput(*part, sums, m0, m, n0, n);
    }
  });
}

}  // namespace

void RunLinear(CpuStream& stream, absl::Span<const LinearPart> parts, int64_t rows,
               std::byte* workspace) {
  for (size_t begin = 0; begin < parts.size();) {
    const bool int8 = parts[begin].w.int8_rows();
    size_t end = begin + 1;
    while (end < parts.size() && parts[end].w.int8_rows() == int8) ++end;
    RunAlike(stream, parts.subspan(begin, end - begin), rows, workspace);
    begin = end;
  }
}

}  // namespace dsv4
