// SPDX-License-Identifier: Apache-2.0
#include "kernels/reference/matmul.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/base/config.h"
#include "kernels/reference/numerics.h"
#include "lib/base/checked_math.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/int8_run.h"

#if defined(ABSL_HAVE_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace dsv4::reference {
namespace {

// Tests under AddressSanitizer would spend most of their time in the checks of what follows, so
// that its memory is looked at once a call.
#if defined(ABSL_HAVE_ADDRESS_SANITIZER)
#define DSV4_NOT_INSTRUMENTED __attribute__((no_sanitize("address", "undefined")))
#else
#define DSV4_NOT_INSTRUMENTED
#endif

template <class T>
void ExpectAddressable([[maybe_unused]] T* first, [[maybe_unused]] int64_t count) {
#if defined(ABSL_HAVE_ADDRESS_SANITIZER)
  void* const memory = const_cast<std::remove_const_t<T>*>(first);
  const void* const bad = __asan_region_is_poisoned(memory, static_cast<size_t>(count) * sizeof(T));
  // Whose report it is.
  if (bad != nullptr) static_cast<void>(*static_cast<const volatile char*>(bad));
#endif
}

// What a register of an instruction set holds.
struct Vector128 {
  static constexpr int64_t kLanes = 2;
  typedef double Wide __attribute__((vector_size(16)));
  typedef float Narrow __attribute__((vector_size(8)));
};
struct Vector256 {
  static constexpr int64_t kLanes = 4;
  typedef double Wide __attribute__((vector_size(32)));
  typedef float Narrow __attribute__((vector_size(16)));
};
struct Vector512 {
  static constexpr int64_t kLanes = 8;
  typedef double Wide __attribute__((vector_size(64)));
  typedef float Narrow __attribute__((vector_size(32)));
};

// Columns of `a` at a time, unpacked for all lanes: what level 1 of the caches holds.
constexpr int64_t kUnpacked = 256;

// In blocks of kRows rows and kVectors registers of lanes: sums that stay in registers. The file is
// compiled with contraction: as the products are exact in double, a fused multiply-add rounds what
// a multiplication and an addition do.
template <int kRows, int kVectors, class Vector>
[[gnu::always_inline]] DSV4_NOT_INSTRUMENTED inline void AddBlocks(const float* a, int64_t a_stride,
                                                                   const float* b, int64_t b_stride,
                                                                   int64_t k, int64_t lanes,
                                                                   double* total,
                                                                   int64_t total_stride) {
  constexpr int64_t kLanes = Vector::kLanes;
  typedef typename Vector::Wide Wide;
  Wide sums[kTileRows][kTileLanes / kLanes] = {};
  double weights[kTileRows][kUnpacked];
  for (int64_t begin = 0; begin < k; begin += kUnpacked) {
    const int64_t count = std::min(kUnpacked, k - begin);
    for (int64_t r = 0; r < kTileRows; ++r) {
      for (int64_t i = 0; i < count; ++i) weights[r][i] = a[r * a_stride + begin + i];
    }
    for (int64_t row = 0; row < kTileRows; row += kRows) {
      for (int64_t first = 0; first * kLanes < lanes; first += kVectors) {
        Wide sum[kRows][kVectors];
        for (int r = 0; r < kRows; ++r) {
          for (int64_t v = 0; v < kVectors; ++v) sum[r][v] = sums[row + r][first + v];
        }
        for (int64_t i = 0; i < count; ++i) {
          Wide x[kVectors];
          for (int64_t v = 0; v < kVectors; ++v) {
            typename Vector::Narrow narrow;
            std::memcpy(&narrow, b + (begin + i) * b_stride + (first + v) * kLanes, sizeof narrow);
            x[v] = __builtin_convertvector(narrow, Wide);
          }
          for (int r = 0; r < kRows; ++r) {
            for (int64_t v = 0; v < kVectors; ++v) sum[r][v] += weights[row + r][i] * x[v];
          }
        }
        for (int r = 0; r < kRows; ++r) {
          for (int64_t v = 0; v < kVectors; ++v) sums[row + r][first + v] = sum[r][v];
        }
      }
    }
  }
  for (int64_t r = 0; r < kTileRows; ++r) {
    for (int64_t l = 0; l < lanes; ++l) {
      total[r * total_stride + l] += sums[r][l / kLanes][l % kLanes];
    }
  }
}

using AddProductsFn = void (*)(const float*, int64_t, const float*, int64_t, int64_t, int64_t,
                               double*, int64_t);

DSV4_NOT_INSTRUMENTED void AddProductsPortable(const float* a, int64_t a_stride, const float* b,
                                               int64_t b_stride, int64_t k, int64_t lanes,
                                               double* total, int64_t total_stride) {
  AddBlocks<4, 2, Vector128>(a, a_stride, b, b_stride, k, lanes, total, total_stride);
}

#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] DSV4_NOT_INSTRUMENTED void AddProductsAvx2(
    const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t k, int64_t lanes,
    double* total, int64_t total_stride) {
  AddBlocks<4, 2, Vector256>(a, a_stride, b, b_stride, k, lanes, total, total_stride);
}

[[gnu::target("avx512f")]] DSV4_NOT_INSTRUMENTED void AddProductsAvx512(
    const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t k, int64_t lanes,
    double* total, int64_t total_stride) {
  if (lanes <= Vector512::kLanes) {
    AddBlocks<kTileRows, 1, Vector512>(a, a_stride, b, b_stride, k, lanes, total, total_stride);
  } else {
    AddBlocks<kTileRows, 2, Vector512>(a, a_stride, b, b_stride, k, lanes, total, total_stride);
  }
}
#endif

AddProductsFn ChooseAddProducts() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return AddProductsAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return AddProductsAvx2;
#endif
  return AddProductsPortable;
}

}  // namespace

void AddProducts(const float* a, int64_t a_stride, const float* b, int64_t b_stride, int64_t k,
                 double* total, int64_t total_stride, int64_t lanes) {
  for (int64_t r = 0; r < kTileRows; ++r) {
    ExpectAddressable(a + r * a_stride, k);
    ExpectAddressable(total + r * total_stride, lanes);
  }
  if (b_stride == kTileLanes) {
    ExpectAddressable(b, k * kTileLanes);
  } else {
    for (int64_t i = 0; i < k; ++i) ExpectAddressable(b + i * b_stride, kTileLanes);
  }
  static const AddProductsFn chosen = ChooseAddProducts();
  chosen(a, a_stride, b, b_stride, k, lanes, total, total_stride);
}

void TransposeTile(const float* const* rows, int64_t row_count, int64_t k, float* out) {
  if (row_count < kTileLanes) std::fill(out, out + k * kTileLanes, 0.0f);
  constexpr int64_t kColumns = 16;  // so that a few cache lines of each side are in use at a time
  for (int64_t begin = 0; begin < k; begin += kColumns) {
    const int64_t end = std::min(begin + kColumns, k);
    for (int64_t l = 0; l < row_count; ++l) {
      for (int64_t i = begin; i < end; ++i) out[i * kTileLanes + l] = rows[l][i];
    }
  }
}

namespace {

// Rounds the columns of a tile [k, 16].
void RoundTileToInt8(float* tile, int64_t k) {
  for (int64_t lane = 0; lane < kTileLanes; ++lane) {
    for (int64_t begin = 0; begin < k; begin += kInt8Run) {
      float* const run = tile + begin * kTileLanes + lane;
      float largest = 0;
      for (int64_t i = 0; i < kInt8Run; ++i) {
        largest = std::max(largest, std::fabs(run[i * kTileLanes]));
      }
      const Int8Scale scale(largest);
      for (int64_t i = 0; i < kInt8Run; ++i) {
        run[i * kTileLanes] = std::nearbyint(run[i * kTileLanes] * scale.inverse) * scale.scale;
      }
    }
  }
}

bool RoundsInputOf(const LaunchContext& context, BlockType blocks) {
  return context.numerics == Numerics::kPublished && IsQuantised(blocks);
}

}  // namespace

int64_t MatmulWorkspaceFloats(int64_t rows, int64_t k, int threads) {
  const int64_t pass_rows = RoundUp(std::min(rows, kMatmulPassRows), kTileLanes);
  return (pass_rows + threads * kTileRows) * k;
}

void Matmul(const LaunchContext& context, const MatmulParams& params,
            absl::FunctionRef<void(int64_t n, float* out)> load_row, float* workspace) {
  CpuStream& stream = StreamOf(context);
  const int64_t k = params.k;
  for (int64_t first = 0; first < params.rows; first += kMatmulPassRows) {
    const int64_t rows = std::min(params.rows - first, kMatmulPassRows);
    const int64_t tiles = CeilDiv(rows, kTileLanes);
    float* transposed = workspace;  // [tiles, K, 16]
    float* weights = transposed + tiles * kTileLanes * k;
    stream.ParallelFor(tiles, [&](int64_t tile, int) {
      const float* tile_rows[kTileLanes];
      const int64_t count = std::min(rows - tile * kTileLanes, kTileLanes);
      for (int64_t l = 0; l < count; ++l) {
        const int64_t m = first + tile * kTileLanes + l;
        const int64_t row = params.row_of == nullptr ? m : params.row_of[m];
        tile_rows[l] = params.x + row * params.x_stride;
      }
      TransposeTile(tile_rows, count, k, transposed + tile * kTileLanes * k);
      if (params.int8_input) RoundTileToInt8(transposed + tile * kTileLanes * k, k);
    });
    stream.ParallelFor(CeilDiv(params.n, kTileRows), [&](int64_t unit, int worker) {
      float* w = weights + worker * kTileRows * k;
      const int64_t n = unit * kTileRows, count = std::min(params.n - n, kTileRows);
      for (int64_t r = 0; r < count; ++r) load_row(n + r, w + r * k);
      std::fill(w + count * k, w + kTileRows * k, 0.0f);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        double total[kTileRows * kTileLanes] = {};
        const int64_t tile_rows = std::min(rows - tile * kTileLanes, kTileLanes);
        AddProducts(w, k, transposed + tile * kTileLanes * k, kTileLanes, k, total, kTileLanes,
                    tile_rows);
        for (int64_t l = 0; l < tile_rows; ++l) {
          float* y = params.y + (first + tile * kTileLanes + l) * params.y_stride + n;
          for (int64_t r = 0; r < count; ++r) y[r] = static_cast<float>(total[r * kTileLanes + l]);
        }
      }
    });
  }
}

namespace {

constexpr auto kDecodedE2M1 = [] {
  std::array<float, 16> decoded{};
  for (uint8_t code = 0; code < 16; ++code) decoded[code] = E2M1ToFloat(code);
  return decoded;
}();

}  // namespace

bool RoundsInput(const LaunchContext& context, const Fp8Weight& weight) {
  return RoundsInputOf(context, weight.blocks);
}

bool RoundsInput(const LaunchContext& context, const Bf16Weight& weight) {
  return RoundsInputOf(context, weight.blocks);
}

bool RoundsInput(const LaunchContext& context, const ExpertMatrix& weight) {
  return RoundsInputOf(context, weight.blocks);
}

DSV4_NOT_INSTRUMENTED void LoadRow(const Fp8Weight& weight, int64_t n, float* out) {
  if (weight.in_blocks()) {
    return LoadBlocks(weight.blocks, weight.block_weight().Row(n), weight.k, out);
  }
  const float* decoded = E4M3Table();
  const uint8_t* row = weight.data + n * weight.k;
  const int64_t runs = CeilDiv(weight.k, kFp8Block);
  const int64_t first_run = n / kFp8Block * runs;
  ExpectAddressable(row, weight.k);
  ExpectAddressable(out, weight.k);
  if (weight.f32_scale != nullptr) {
    ExpectAddressable(weight.f32_scale + first_run, runs);
  } else {
    ExpectAddressable(weight.scale + first_run, runs);
  }
  for (int64_t begin = 0; begin < weight.k; begin += kFp8Block) {
    const int64_t run = first_run + begin / kFp8Block;
    const float scale =
        weight.f32_scale != nullptr ? weight.f32_scale[run] : E8M0ToFloat(weight.scale[run]);
    const int64_t end = std::min(begin + kFp8Block, weight.k);
    for (int64_t i = begin; i < end; ++i) out[i] = decoded[row[i]] * scale;
  }
}

// Row n of packed e2m1 [n, k / 2], under a scale for each `run` of K: scale_of(run).
template <class ScaleOf>
DSV4_NOT_INSTRUMENTED void LoadE2M1Row(const uint8_t* data, int64_t n, int64_t k, int64_t run,
                                       const ScaleOf& scale_of, float* out) {
  const uint8_t* row = data + n * (k / 2);
  ExpectAddressable(row, k / 2);
  ExpectAddressable(out, k);
  for (int64_t begin = 0; begin < k; begin += run) {
    const float scale = scale_of(n * (k / run) + begin / run);
    float scaled[16];
    for (int code = 0; code < 16; ++code) scaled[code] = kDecodedE2M1[code] * scale;
    for (int64_t i = begin; i < begin + run; i += 2) {
      out[i] = scaled[row[i / 2] & 15];
      out[i + 1] = scaled[row[i / 2] >> 4];
    }
  }
}

DSV4_NOT_INSTRUMENTED void LoadRow(const Fp4Weight& weight, int64_t n, float* out) {
  ExpectAddressable(weight.scale + n * (weight.k / kFp4Run), weight.k / kFp4Run);
  LoadE2M1Row(
      weight.data, n, weight.k, kFp4Run,
      [&](int64_t run) DSV4_NOT_INSTRUMENTED { return E8M0ToFloat(weight.scale[run]); }, out);
}

DSV4_NOT_INSTRUMENTED void LoadRow(const Nvfp4Weight& weight, int64_t n, float* out) {
  const float* decoded = E4M3Table();
  ExpectAddressable(weight.scale + n * (weight.k / kNvfp4Run), weight.k / kNvfp4Run);
  LoadE2M1Row(
      weight.data, n, weight.k, kNvfp4Run,
      [&](int64_t run)
          DSV4_NOT_INSTRUMENTED { return decoded[weight.scale[run]] * weight.tensor_scale; },
      out);
}

void LoadRow(const ExpertMatrix& weight, int64_t n, float* out) {
  switch (weight.format) {
    case ExpertFormat::kMxfp4:
      return LoadRow(weight.mxfp4(), n, out);
    case ExpertFormat::kNvfp4:
      return LoadRow(weight.nvfp4(), n, out);
    case ExpertFormat::kFp8:
      return LoadRow(weight.fp8(), n, out);
    case ExpertFormat::kBlocks:
      return LoadBlocks(weight.blocks, weight.block_weight().Row(n), weight.k, out);
  }
}

void LoadRow(const Bf16Weight& weight, int64_t n, float* out) {
  if (weight.in_blocks()) {
    return LoadBlocks(weight.blocks, weight.block_weight().Row(n), weight.k, out);
  }
  const uint16_t* row = weight.data + n * weight.k;
  for (int64_t i = 0; i < weight.k; ++i) out[i] = Bf16ToFloat(row[i]);
}

}  // namespace dsv4::reference
