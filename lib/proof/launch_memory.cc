// SPDX-License-Identifier: Apache-2.0
#include "lib/proof/launch_memory.h"

#include <algorithm>

#include "kernels/op/cache_rows.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

// A pool of one row, outside the pool: the row's data, then its scales.
RowPool PoolOfOne(const RowPool& pool, std::vector<std::byte>* memory) {
  memory->resize(static_cast<size_t>(pool.row_bytes + RowScaleBytes(pool.format)));
  RowPool one = pool;
  one.base = memory->data();
  one.rows_per_block = 1;
  return one;
}

}  // namespace

bool LaunchMemory::StoresCodes(const LaunchTensor& tensor) const {
  return tensor.type == LaunchTensor::Type::kQuantized &&
         rows_.quantized() == QuantizedRows::kCodes;
}

int64_t LaunchMemory::ElementBytes(const LaunchTensor& tensor) const {
  const bool activation =
      tensor.type == LaunchTensor::Type::kAct || tensor.type == LaunchTensor::Type::kQuantized;
  return activation ? DTypeBytes(rows_.activations) : 4;
}

// Bytes of a row; of codes, those of the whole row.
int64_t LaunchMemory::RowBytes(const LaunchTensor& tensor) const {
  return StoresCodes(tensor) ? rows_.quantized_bytes(tensor.stride)
                             : tensor.width * ElementBytes(tensor);
}

std::byte* LaunchMemory::RowOf(const LaunchTensor& tensor, int64_t row) const {
  auto* const data = static_cast<std::byte*>(tensor.data);
  if (!tensor.stored_at.empty()) row = tensor.stored_at[static_cast<size_t>(row)];
  return StoresCodes(tensor) ? data + row * RowBytes(tensor)
                             : data + (row * tensor.stride + tensor.column) * ElementBytes(tensor);
}

// Copies, not Download and Upload: a device writes some of it to pinned memory of the host.
absl::StatusOr<std::vector<float>> LaunchMemory::Read(const LaunchTensor& t) const {
  std::vector<float> values(static_cast<size_t>(t.rows * t.width));
  if (t.rows == 0) return values;
  std::vector<std::byte> stored;
  if (t.type == LaunchTensor::Type::kCacheRows) {
    const RowPool one = PoolOfOne(t.pool, &stored);
    for (int64_t r = 0; r < t.rows; ++r) {
      const auto [block, slot] = t.places[static_cast<size_t>(r)];
      DSV4_RETURN_IF_ERROR(device_->Download(one.base, t.pool.Row(block, slot), t.pool.row_bytes));
      DSV4_RETURN_IF_ERROR(device_->Download(one.Scales(0, 0), t.pool.Scales(block, slot),
                                             RowScaleBytes(t.pool.format)));
      LoadRow(one, 0, 0, values.data() + r * t.width);
    }
    return values;
  }
  const int64_t row_bytes = RowBytes(t);
  stored.resize(static_cast<size_t>(t.rows * row_bytes));
  for (int64_t r = 0; r < t.rows; ++r) {
    DSV4_RETURN_IF_ERROR(device_->Copy(stored.data() + r * row_bytes, RowOf(t, r), row_bytes));
  }
  DSV4_RETURN_IF_ERROR(device_->Synchronize());
  std::vector<uint16_t> decoded(static_cast<size_t>(t.stride));
  for (int64_t r = 0; r < t.rows; ++r) {
    const std::byte* const row = stored.data() + r * row_bytes;
    float* const to = values.data() + r * t.width;
    if (StoresCodes(t)) {
      rows_.decode(row, t.stride, decoded.data());
      std::transform(decoded.begin() + t.column, decoded.begin() + t.column + t.width, to,
                     Bf16ToFloat);
    } else if (t.type == LaunchTensor::Type::kInt32) {
      std::copy_n(reinterpret_cast<const int32_t*>(row), t.width, to);
    } else if (ElementBytes(t) == 4) {
      std::copy_n(reinterpret_cast<const float*>(row), t.width, to);
    } else {
      std::transform(reinterpret_cast<const uint16_t*>(row),
                     reinterpret_cast<const uint16_t*>(row) + t.width, to, Bf16ToFloat);
    }
  }
  return values;
}

absl::Status LaunchMemory::Write(const LaunchTensor& t, std::vector<float> values) const {
  if (t.rows == 0) return absl::OkStatus();
  std::vector<std::byte> stored;
  if (t.type == LaunchTensor::Type::kCacheRows) {
    const RowPool one = PoolOfOne(t.pool, &stored);
    for (int64_t r = 0; r < t.rows; ++r) {
      const auto [block, slot] = t.places[static_cast<size_t>(r)];
      StoreRow(one, 0, 0, values.data() + r * t.width);
      DSV4_RETURN_IF_ERROR(device_->Upload(t.pool.Row(block, slot), one.base, t.pool.row_bytes));
      DSV4_RETURN_IF_ERROR(device_->Upload(t.pool.Scales(block, slot), one.Scales(0, 0),
                                           RowScaleBytes(t.pool.format)));
    }
    return absl::OkStatus();
  }
  const int64_t row_bytes = RowBytes(t);
  stored.resize(static_cast<size_t>(t.rows * row_bytes));
  // Codes of other columns stay.
  for (int64_t r = 0; StoresCodes(t) && t.width != t.stride && r < t.rows; ++r) {
    DSV4_RETURN_IF_ERROR(device_->Copy(stored.data() + r * row_bytes, RowOf(t, r), row_bytes));
  }
  DSV4_RETURN_IF_ERROR(device_->Synchronize());
  for (int64_t r = 0; r < t.rows; ++r) {
    const float* const from = values.data() + r * t.width;
    std::byte* const row = stored.data() + r * row_bytes;
    if (StoresCodes(t)) {
      rows_.encode(from, t.stride, t.column, t.width, row);
    } else if (t.type == LaunchTensor::Type::kInt32) {
      std::copy_n(from, t.width, reinterpret_cast<int32_t*>(row));
    } else if (ElementBytes(t) == 4) {
      std::copy_n(from, t.width, reinterpret_cast<float*>(row));
    } else {
      std::transform(from, from + t.width, reinterpret_cast<uint16_t*>(row), FloatToBf16);
    }
    DSV4_RETURN_IF_ERROR(device_->Copy(RowOf(t, r), row, row_bytes));
  }
  return device_->Synchronize();
}

}  // namespace dsv4
