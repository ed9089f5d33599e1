// SPDX-License-Identifier: Apache-2.0
// The formats of quantised weights: what a checkpoint's dtypes say of them, and the changes of
// format that lose nothing, by which weights run on the kernels of fewer formats. Each change is
// checked number by number, and refused where it would change one.
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

const char* ExpertFormatName(ExpertFormat format);  // "fp4", "nvfp4", "fp8"

// The format in which a device runs an expert's matrix, as stored: MXFP4 where its first `rows`
// rows have an MXFP4 weight of the same values; else its own. REQUIRES: k % 128 == 0.
ExpertFormat DeviceFormatOf(const ExpertMatrix& stored, int64_t rows);
// So many rows of 8 KiB at most, which tell the format of nearly all files.
int64_t SampleRows(const ExpertMatrix& stored);

// scale[i] = the E8M0 byte of f32[i]. Returns the first i whose number is no power of two of E8M0's
// range; nullopt when all are.
std::optional<int64_t> ToE8M0(absl::Span<const float> f32, uint8_t* scale);

// scale [n, k / 32]: with them, the weight's data are an MXFP4 weight of the same values. Returns
// the first run of 32 for which no E8M0 scale does that; nullopt when all fold.
std::optional<int64_t> FoldToMxfp4(const Nvfp4Weight& weight, uint8_t* scale);

// data [n, k / 2] and scale [n, k / 32]: an MXFP4 weight of the same values. Returns the first run
// of 32 elements that has none; nullopt when all fold. REQUIRES: no F32 scales; k % 128 == 0.
std::optional<int64_t> FoldToMxfp4(const Fp8Weight& weight, uint8_t* data, uint8_t* scale);

}  // namespace dsv4
