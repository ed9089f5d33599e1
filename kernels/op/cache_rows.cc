// SPDX-License-Identifier: Apache-2.0
#include "kernels/op/cache_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/op/quantizers.h"
#include "lib/tensor/dtype.h"
#include "lib/tensor/quant_format.h"

namespace dsv4 {
namespace {

constexpr int64_t kPlainElements = kKvRowElements - kKvRopeElements;

int64_t ElementsOf(const RowPool& pool) {
  switch (pool.format) {
    case RowFormat::kBf16:
      return pool.row_bytes / 2;
    case RowFormat::kF32:
      return pool.row_bytes / 4;
    case RowFormat::kIndexFp4:
      return kIndexKeyElements;
    case RowFormat::kPacked:
    case RowFormat::kFp8PerTensor:
      return kKvRowElements;
  }
  return 0;
}

void StoreBf16(const float* values, int64_t count, std::byte* out) {
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t bits = FloatToBf16(values[i]);
    std::memcpy(out + 2 * i, &bits, sizeof bits);
  }
}

void LoadBf16(const std::byte* data, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, data + 2 * i, sizeof bits);
    out[i] = Bf16ToFloat(bits);
  }
}

// The ue8m0 byte of a power of two in the normal range.
std::byte E8M0OfScale(float scale) {
  return static_cast<std::byte>(std::bit_cast<uint32_t>(scale) >> 23);
}

void StorePacked(const float* row, std::byte* data, std::byte* scales) {
  for (int64_t begin = 0; begin < kPlainElements; begin += kKvQuantRun) {
    const float scale = E4M3RunScale(row + begin, kKvQuantRun);
    *scales++ = E8M0OfScale(scale);
    for (int64_t i = begin; i < begin + kKvQuantRun; ++i) {
      data[i] = std::byte{EncodeE4M3(row[i] / scale)};
    }
  }
  *scales = std::byte{0};
  StoreBf16(row + kPlainElements, kKvRopeElements, data + kPlainElements);
}

void LoadPacked(const std::byte* data, const std::byte* scales, float* out) {
  const float* decoded = E4M3Table();
  for (int64_t i = 0; i < kPlainElements; ++i) {
    out[i] = decoded[static_cast<uint8_t>(data[i])] *
             E8M0ToFloat(static_cast<uint8_t>(scales[i / kKvQuantRun]));
  }
  LoadBf16(data + kPlainElements, kKvRopeElements, out + kPlainElements);
}

void StoreFp8(const float* row, std::byte* data) {
  const bool broken =
      !std::all_of(row, row + kKvRowElements, [](float value) { return std::isfinite(value); });
  for (int64_t i = 0; i < kKvRowElements; ++i) {
    data[i] = broken ? std::byte{0x7f} : std::byte{EncodeE4M3(row[i] / kFp8RowScale)};
  }
}

void LoadFp8(const std::byte* data, float* out) {
  const float* decoded = E4M3Table();
  for (int64_t i = 0; i < kKvRowElements; ++i) {
    out[i] = decoded[static_cast<uint8_t>(data[i])] * kFp8RowScale;
  }
}

void StoreIndexFp4(const float* row, std::byte* data, std::byte* scales) {
  for (int64_t begin = 0; begin < kIndexKeyElements; begin += kFp4Run) {
    const float scale = E2M1RunScale(row + begin, kFp4Run);
    *scales++ = E8M0OfScale(scale);
    for (int64_t i = begin; i < begin + kFp4Run; i += 2) {
      const int even = EncodeE2M1(row[i] / scale), odd = EncodeE2M1(row[i + 1] / scale);
      data[i / 2] = static_cast<std::byte>(even | odd << 4);
    }
  }
}

void LoadIndexFp4(const std::byte* data, const std::byte* scales, float* out) {
  for (int64_t i = 0; i < kIndexKeyElements; ++i) {
    const int code = static_cast<uint8_t>(data[i / 2]) >> (i % 2 * 4) & 15;
    out[i] = E2M1ToFloat(static_cast<uint8_t>(code)) *
             E8M0ToFloat(static_cast<uint8_t>(scales[i / kFp4Run]));
  }
}

}  // namespace

void StoreRow(const RowPool& pool, int32_t block, int64_t slot, float* row, bool quantise) {
  std::byte* data = pool.Row(block, slot);
  if (pool.format == RowFormat::kPacked) {
    return StorePacked(row, data, pool.Scales(block, slot));
  }
  if (pool.format == RowFormat::kIndexFp4) {
    return StoreIndexFp4(row, data, pool.Scales(block, slot));
  }
  if (pool.format == RowFormat::kFp8PerTensor) return StoreFp8(row, data);
  const int64_t elements = ElementsOf(pool);
  if (quantise && elements == kIndexKeyElements) {
    Fp4ActQuant(row, elements);
  } else if (quantise) {
    ActQuant(row, kPlainElements, kKvQuantRun);
  }
  if (pool.format == RowFormat::kBf16) {
    StoreBf16(row, elements, data);
  } else {
    std::memcpy(data, row, static_cast<size_t>(pool.row_bytes));
  }
}

void LoadRow(const RowPool& pool, int32_t block, int64_t slot, float* row) {
  const std::byte* data = pool.Row(block, slot);
  switch (pool.format) {
    case RowFormat::kBf16:
      return LoadBf16(data, ElementsOf(pool), row);
    case RowFormat::kF32:
      std::memcpy(row, data, static_cast<size_t>(pool.row_bytes));
      return;
    case RowFormat::kPacked:
      return LoadPacked(data, pool.Scales(block, slot), row);
    case RowFormat::kFp8PerTensor:
      return LoadFp8(data, row);
    case RowFormat::kIndexFp4:
      return LoadIndexFp4(data, pool.Scales(block, slot), row);
  }
}

void QuantiseQuery(float* query) {
  const float* decoded = E4M3Table();
  for (int64_t i = 0; i < kKvRowElements; ++i) {
    query[i] = decoded[EncodeE4M3(query[i] / kFp8RowScale)] * kFp8RowScale;
  }
}

}  // namespace dsv4
