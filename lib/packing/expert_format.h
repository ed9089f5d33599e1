// SPDX-License-Identifier: Apache-2.0
// The formats of quantised weights: the formats of a checkpoint's dtypes, and lossless conversions,
// so that kernels exist for fewer formats. Each value is checked; a conversion that would change
// one is refused.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {

// A routed expert's matrix of this dtype: I8 is MXFP4, U8 NVFP4, F8_E4M3 FP8; nullopt for others.
std::optional<ExpertFormat> ExpertFormatOf(DType dtype);

// Bytes of a matrix as it is stored.
struct StoredBytes {
  int64_t data = 0, scale = 0;
};
StoredBytes StoredBytesOf(const ExpertMatrix& matrix);
// The bytes of its scales, of either kind.
const uint8_t* ScaleBytesOf(const ExpertMatrix& matrix);

const char* ExpertFormatName(ExpertFormat format);  // "fp4", "nvfp4", "fp8", "blocks"

// The format in which a device runs an expert's matrix, as stored: MXFP4 where its first `rows`
// rows have an MXFP4 weight of the same values; else its own. REQUIRES: k % 128 == 0.
ExpertFormat DeviceFormatOf(const ExpertMatrix& stored, int64_t rows);
// The number of rows in 8 KiB: a sample that determines the format of nearly all files.
int64_t SampleRows(const ExpertMatrix& stored);

// scale[i] = the E8M0 byte of f32[i]. Returns the first i for which f32[i] is not a power of two in
// E8M0's range; nullopt if there is none.
std::optional<int64_t> ToE8M0(absl::Span<const float> f32, uint8_t* scale);

// Computes scales [n, k / 32] with which the weight's data are an MXFP4 weight of the same values.
// Returns the first run of 32 for which no E8M0 scale does that; nullopt if there is none.
std::optional<int64_t> FoldToMxfp4(const Nvfp4Weight& weight, uint8_t* scale);

// Computes data [n, k / 2] and scale [n, k / 32] of an MXFP4 weight of the same values. Returns the
// first run of 32 elements that has none; nullopt if all have. REQUIRES: no F32 scales; k % 128 ==
// 0.
std::optional<int64_t> FoldToMxfp4(const Fp8Weight& weight, uint8_t* data, uint8_t* scale);

}  // namespace dsv4
