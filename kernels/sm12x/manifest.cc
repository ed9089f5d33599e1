// SPDX-License-Identifier: Apache-2.0
#include "kernels/sm12x/manifest.h"

#include <bit>
#include <vector>

#include "kernels/op/quantizers.h"
#include "kernels/sm12x/entries.h"
#include "kernels/sm12x/packed_layout.h"
#include "kernels/sm12x/step_program.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {
namespace {

constexpr int64_t kPiece = 8;  // elements whose codes lie side by side

void Decode(const std::byte* row, int64_t width, uint16_t* to) {
  const auto* const codes = reinterpret_cast<const uint8_t*>(row);
  const float* const decoded = E4M3Table();
  for (int64_t begin = 0; begin < width; begin += kPiece) {
    const uint8_t* const piece = codes + sm12x::QuantizedOffset(begin);
    const float scale = E8M0ToFloat(codes[width + begin / sm12x::kKSlice]);
    for (int64_t i = 0; i < kPiece; ++i) {
      to[begin + i] =
          static_cast<uint16_t>(std::bit_cast<uint32_t>(decoded[piece[i]] * scale) >> 16);
    }
  }
}

void Encode(const float* from, int64_t width, int64_t begin, int64_t count, std::byte* row) {
  auto* const codes = reinterpret_cast<uint8_t*>(row);
  for (int64_t run = 0; run < count; run += sm12x::kKSlice) {
    const float scale = E4M3RunScale(from + run, sm12x::kKSlice);
    codes[width + (begin + run) / sm12x::kKSlice] =
        static_cast<uint8_t>(std::bit_cast<uint32_t>(scale) >> 23);
    for (int64_t i = run; i < run + sm12x::kKSlice; ++i) {
      const int64_t at = begin + i;
      codes[sm12x::QuantizedOffset(at / kPiece * kPiece) + at % kPiece] =
          EncodeE4M3(from[i] / scale);
    }
  }
}

constexpr HostRows kRows = {
    .quantized_bytes = &sm12x::QuantizedRowBytes, .decode = &Decode, .encode = &Encode};

}  // namespace

using sm12x::MakeStepProgram;

Manifest Sm12xManifest() {
  static const KernelEntry entries[] = {
      kSm12xEmbedRows,   kSm12xHcPre,          kSm12xHcPost,          kSm12xHcHead,
      kSm12xMtpCombine,  kSm12xRmsNorm,        kSm12xRopeTable,       kSm12xQkvPrepare,
      kSm12xCompressKv,  kSm12xIndexScoreTopk, kSm12xSparseAttention, kSm12xCopyRows,
      kSm12xPackWeight,  kSm12xLinearFp8,      kSm12xLinearBf16,      kSm12xOutputGroups,
      kSm12xMoeGate,     kSm12xExpertFfn,      kSm12xTokenCandidates, kSm12xGatherColumns,
      kSm12xDraftLogits,
  };
  return {entries, kRows, &MakeStepProgram};
}

Manifest Sm12xSecondManifest() {
  static const std::vector<KernelEntry> entries = [] {
    std::vector<KernelEntry> all;
    for (const KernelEntry& first : Sm12xManifest()) {
      const KernelEntry* entry = &first;
      for (const KernelEntry* const second :
           {&kSm12xSecondPackWeight, &kSm12xSecondLinearFp8, &kSm12xSecondExpertFfn}) {
        if (second->op == first.op) entry = second;
      }
      all.push_back(*entry);
    }
    return all;
  }();
  return {entries, kRows};
}

}  // namespace dsv4
