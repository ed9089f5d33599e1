// SPDX-License-Identifier: Apache-2.0
// The dot products in portable SIMD, once per Highway target: codes are widened to 16 bits and
// multiplied by pairs. AVX2 and AVX-512 take products of bytes instead (block_avx2.cc,
// block_dot_avx512vnni.cc).
#include "kernels/cpu/block_dot.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lib/tensor/dtype.h"
#include "lib/tensor/int8_run.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/block_dot.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/cpu/quantize-inl.h"

#if defined(__x86_64__) && !defined(DSV4_KERNELS_CPU_BLOCK_DOT_CPUID)
#define DSV4_KERNELS_CPU_BLOCK_DOT_CPUID
#include <cpuid.h>
namespace dsv4 {
namespace {

// Whether a processor with Highway's AVX3 has AVX512-VNNI, and tests allow it.
bool UsesVnni() {
  static const bool has_vnni = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 11 & 1) != 0;
  }();
  return has_vnni && AllowedDotExtensions() != DotExtension::kNone;
}

}  // namespace
}  // namespace dsv4
#endif

HWY_BEFORE_NAMESPACE();
namespace dsv4 {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Calls f<kRows'>() for `count` <= kRows rows.
template <int kRows, class F>
HWY_INLINE void WithRows(int64_t count, const F& f) {
  if (count >= kRows) {
    f.template operator()<kRows>();
  } else if constexpr (kRows > 1) {
    WithRows<kRows - 1>(count, f);
  }
}

constexpr int kTileRows = 4;

#if HWY_TARGET != HWY_AVX2 && HWY_TARGET != HWY_AVX3  // those have block_avx2.cc

void PackInt8(const uint16_t* x, int64_t k, std::byte* packed) {
  int8_t* const codes = reinterpret_cast<int8_t*>(packed);
  float* const scales = reinterpret_cast<float*>(packed + k);
  float* const sums = scales + k / kBlockRun;
  const hn::CappedTag<float, 16> df;
  const hn::Rebind<int8_t, decltype(df)> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  for (int64_t begin = 0; begin < k; begin += kInt8Run) {
    auto largest = hn::Zero(df);
    for (int64_t i = begin; i < begin + kInt8Run; i += lanes) {
      largest = hn::Max(largest, hn::Abs(LoadBf16(df, x + i)));
    }
    const Int8Scale scale(hn::GetLane(hn::MaxOfLanes(df, largest)));
    const auto inverse = hn::Set(df, scale.inverse);
    for (int64_t i = begin; i < begin + kInt8Run; i += lanes) {
      const auto code = hn::NearestInt(hn::Mul(LoadBf16(df, x + i), inverse));
      hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
    }
    for (int64_t run = begin; run < begin + kInt8Run; run += kBlockRun) {
      int32_t sum = 0;
      for (int64_t i = run; i < run + kBlockRun; ++i) sum += codes[i];
      scales[run / kBlockRun] = scale.scale;
      sums[run / kBlockRun] = scale.scale * static_cast<float>(sum);
    }
  }
}

using D16 = hn::CappedTag<int16_t, kBlockRun>;
using D32 = hn::RepartitionToWide<D16>;
using DF = hn::RebindToFloat<D32>;
using V16 = hn::Vec<D16>;
using VF = hn::Vec<DF>;
constexpr int kParts = static_cast<int>(kBlockRun / hn::MaxLanes(D16()));  // vectors of a run

HWY_INLINE VF RunSum(const V16* w, const int8_t* x) {
  const D16 d16;
  const D32 d32;
  const hn::Rebind<int8_t, D16> d8;
  auto even = hn::Zero(d32), odd = hn::Zero(d32);
  for (int part = 0; part < kParts; ++part) {
    const V16 v = hn::PromoteTo(d16, hn::LoadU(d8, x + part * hn::MaxLanes(d16)));
    even = hn::ReorderWidenMulAccumulate(d32, w[part], v, even, odd);
  }
  return hn::ConvertTo(DF(), hn::Add(even, odd));
}

// Sums of minima times the activations' sums.
HWY_INLINE float MinSum(const float* min, const float* sums, int64_t runs) {
  const hn::CappedTag<float, 8> df;
  auto total = hn::Zero(df);
  for (int64_t r = 0; r < runs; r += static_cast<int64_t>(hn::Lanes(df))) {
    total = hn::MulAdd(hn::LoadU(df, min + r), hn::LoadU(df, sums + r), total);
  }
  return hn::GetLane(hn::SumOfLanes(df, total));
}

template <int kRows>
HWY_INLINE void TileInt8(const std::byte* a, const std::byte* w, int64_t k, bool has_min,
                         float* out, int64_t ld) {
  const DF df;
  const D16 d16;
  const hn::Rebind<int8_t, D16> d8;
  const int64_t runs = k / kBlockRun;
  const int8_t* const codes = reinterpret_cast<const int8_t*>(w);
  const float* const scale = reinterpret_cast<const float*>(w + k);
  const int8_t* x[kRows];
  const float* x_scale[kRows];
  VF acc[kRows];
  for (int i = 0; i < kRows; ++i) {
    x[i] = reinterpret_cast<const int8_t*>(a + i * PackedInt8Bytes(k));
    x_scale[i] = reinterpret_cast<const float*>(x[i] + k);
    acc[i] = hn::Zero(df);
  }
  for (int64_t r = 0; r < runs; ++r) {
    V16 v[kParts];
    for (int part = 0; part < kParts; ++part) {
      v[part] = hn::PromoteTo(d16, hn::LoadU(d8, codes + r * kBlockRun + part * hn::MaxLanes(d16)));
    }
    for (int i = 0; i < kRows; ++i) {
      acc[i] = hn::MulAdd(RunSum(v, x[i] + r * kBlockRun), hn::Set(df, scale[r] * x_scale[i][r]),
                          acc[i]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    const float sum = hn::GetLane(hn::SumOfLanes(df, acc[i]));
    out[i * ld] = has_min ? sum - MinSum(scale + runs, x_scale[i] + runs, runs) : sum;
  }
}

void DotInt8(const std::byte* a, int64_t m, const std::byte* w, int64_t n, int64_t k, bool has_min,
             float* out, int64_t ld) {
  for (int64_t j = 0; j < n; ++j) {
    const std::byte* const row = w + j * UnpackedBlockBytes(k);
    for (int64_t i = 0; i < m; i += kTileRows) {
      WithRows<kTileRows>(m - i, [&]<int kRows>() HWY_ATTR {
        TileInt8<kRows>(a + i * PackedInt8Bytes(k), row, k, has_min, out + i * ld + j, ld);
      });
    }
  }
}

#endif

template <int kRows>
HWY_INLINE void TileF32(const ActRows& a, int64_t m, const float* w, int64_t k, float* out,
                        int64_t ld) {
  const hn::CappedTag<float, 16> df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  const uint16_t* x[kRows];
  hn::Vec<decltype(df)> acc[kRows];
  for (int i = 0; i < kRows; ++i) {
    x[i] = a.Row(m + i);
    acc[i] = hn::Zero(df);
  }
  for (int64_t p = 0; p < k; p += lanes) {
    const auto v = hn::LoadU(df, w + p);
    for (int i = 0; i < kRows; ++i) acc[i] = hn::MulAdd(LoadBf16(df, x[i] + p), v, acc[i]);
  }
  for (int i = 0; i < kRows; ++i) {
    out[(m + i) * ld] = hn::GetLane(hn::SumOfLanes(df, acc[i]));
  }
}

void DotF32(const ActRows& a, int64_t m, const float* w, int64_t n, int64_t k, float* out,
            int64_t ld) {
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; i += kTileRows) {
      WithRows<kTileRows>(
          m - i, [&]<int kRows>() HWY_ATTR { TileF32<kRows>(a, i, w + j * k, k, out + j, ld); });
    }
  }
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

template <class D>
HWY_INLINE hn::Vec<D> LoadF16(D df, const uint8_t* p) {
  const hn::Rebind<uint16_t, D> du;
  const auto bits = hn::LoadU(du, reinterpret_cast<const uint16_t*>(p));
  return hn::PromoteTo(df, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
}

// kCols weight rows at a time, so that as many chains of sums run.
template <int kRows, int kCols>
HWY_INLINE void TileF16(const ActRows& a, int64_t m, const uint8_t* w, int64_t k, float* out,
                        int64_t ld) {
  constexpr int64_t kAheadBytes = 4096;  // of prefetches
  const hn::CappedTag<float, 16> df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  hn::Vec<decltype(df)> acc[kRows][kCols];
  for (auto& row : acc) {
    for (auto& sum : row) sum = hn::Zero(df);
  }
  for (int64_t p = 0; p < k; p += lanes) {
    hn::Vec<decltype(df)> v[kCols];
    for (int j = 0; j < kCols; ++j) {
      const uint8_t* const at = w + 2 * (j * k + p);
      if (p % 32 == 0) __builtin_prefetch(at + kAheadBytes);
      v[j] = LoadF16(df, at);
    }
    for (int i = 0; i < kRows; ++i) {
      const auto x = LoadBf16(df, a.Row(m + i) + p);
      for (int j = 0; j < kCols; ++j) acc[i][j] = hn::MulAdd(x, v[j], acc[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    for (int j = 0; j < kCols; ++j) {
      out[(m + i) * ld + j] = hn::GetLane(hn::SumOfLanes(df, acc[i][j]));
    }
  }
}

template <int kCols>
HWY_INLINE void RowsF16(const ActRows& a, int64_t m, const uint8_t* w, int64_t k, float* out,
                        int64_t ld) {
  int64_t i = 0;
  for (; i + 2 <= m; i += 2) TileF16<2, kCols>(a, i, w, k, out, ld);
  if (i < m) TileF16<1, kCols>(a, i, w, k, out, ld);
}

void DotF16(const ActRows& a, int64_t m, const uint8_t* w, int64_t n, int64_t k, float* out,
            int64_t ld) {
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) RowsF16<4>(a, m, w + 2 * j * k, k, out + j, ld);
  for (; j < n; ++j) RowsF16<1>(a, m, w + 2 * j * k, k, out + j, ld);
}

void LoadBlockRow(BlockType type, const uint8_t* data, int64_t k, float* values) {
  if (type != BlockType::kF16) return LoadBlocks(type, data, k, values);
  const hn::CappedTag<float, 16> df;
  for (int64_t i = 0; i < k; i += static_cast<int64_t>(hn::Lanes(df))) {
    hn::StoreU(LoadF16(df, data + 2 * i), df, values + i);
  }
}

#else

BlockDotKernels::Direct NoDirect(BlockType, int64_t) { return nullptr; }

#endif

}  // namespace

const BlockDotKernels* TargetBlockDotKernels() {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  static constexpr BlockDotKernels kKernels = {.name = HWY_STR(HWY_NAMESPACE),
                                               .pack = &PackInt8Avx2,
                                               .int8 = &DotInt8Avx2,
                                               .f32 = &DotF32,
                                               .direct = &DirectAvx2,
                                               .f16 = &DotF16,
                                               .unpack = &UnpackBlockRowAvx2,
                                               .load = &LoadBlockRow,
                                               .interleaved = 128};
#else
  static constexpr BlockDotKernels kKernels = {.name = HWY_STR(HWY_NAMESPACE),
                                               .pack = &PackInt8,
                                               .int8 = &DotInt8,
                                               .f32 = &DotF32,
                                               .direct = &NoDirect,
                                               .f16 = nullptr,
                                               .unpack = &UnpackBlockRow,
                                               .load = &LoadBlocks};
#endif
#if HWY_TARGET == HWY_AVX3
  static constexpr BlockDotKernels kVnni = {.name = "AVX512_VNNI",
                                            .pack = &PackInt8Vnni,
                                            .int8 = &DotInt8Vnni,
                                            .f32 = &DotF32,
                                            .direct = &DirectVnni,
                                            .f16 = &DotF16,
                                            .unpack = &UnpackBlockRowAvx512,
                                            .load = &LoadBlockRow,
                                            .interleaved = 256};
  if (UsesVnni()) return &kVnni;
#endif
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace dsv4
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dsv4 {

HWY_EXPORT(TargetBlockDotKernels);

const BlockDotKernels& ActiveBlockDotKernels() {
  return *HWY_DYNAMIC_DISPATCH(TargetBlockDotKernels)();
}

void UnpackBlockRow(BlockType type, const uint8_t* data, int64_t k, std::byte* unpacked) {
  float* const scale = reinterpret_cast<float*>(unpacked + k);
  UnpackBlocks(type, data, k, reinterpret_cast<int8_t*>(unpacked), scale, scale + k / kBlockRun);
}

}  // namespace dsv4
#endif  // HWY_ONCE
