// SPDX-License-Identifier: Apache-2.0
#include "lib/model/step_upload.h"

#include <algorithm>
#include <cstring>

#include "lib/base/checked_math.h"
#include "lib/base/status_macros.h"
#include "lib/kv/window_reach.h"

namespace dsv4 {
namespace {

constexpr int64_t kAlignment = 64;

int64_t Bytes(int64_t count, size_t size) {
  return RoundUp<int64_t>(count * static_cast<int64_t>(size), kAlignment);
}

// The most that one step's image takes: a save or window block for every row and some more for each
// sequence, and the group blocks of the longest sequences.
int64_t ImageBytes(const StepLimits& limits) {
  const int64_t rows = limits.rows, sequences = limits.sequences;
  const int64_t window_entries = 4;  // of a sequence, beside those of its rows
  const int64_t group_entries = limits.positions / kGroupBlockTokens + 2;
  return 2 * Bytes(rows, sizeof(int32_t)) + 2 * Bytes(rows, sizeof(int64_t)) +
         Bytes(sequences, sizeof(SequenceRows)) + Bytes(rows, sizeof(StateSave)) +
         sequences * kAlignment + Bytes(rows / kWindowBlockTokens, sizeof(int32_t)) +
         sequences *
             (Bytes(window_entries + 1, sizeof(int32_t)) + Bytes(group_entries, sizeof(int32_t)));
}

int64_t PointerBytes(const StepLimits& limits) { return Bytes(limits.rows, 2 * sizeof(void*)); }
int64_t RowBytes(const StepLimits& limits) { return Bytes(limits.logit_rows, sizeof(int32_t)); }

}  // namespace

int64_t StepUpload::DeviceBytes(const Device& device, const StepLimits& limits) {
  if (device.host_memory()) return 0;
  return ImageBytes(limits) + PointerBytes(limits) + RowBytes(limits);
}

void StepUpload::Place(Device* device, const StepLimits& limits, std::byte* memory) {
  if (device->host_memory()) return;
  device_ = device;
  image_ = memory;
  pointers_ = image_ + ImageBytes(limits);
  rows_ = pointers_ + PointerBytes(limits);
  host_.reserve(static_cast<size_t>(ImageBytes(limits)));
  host_sequences_.reserve(static_cast<size_t>(limits.sequences));
  list_.reserve(2 * static_cast<size_t>(limits.rows));
}

template <class T>
size_t StepUpload::Append(const T* from, int64_t count) {
  const size_t place = host_.size(), bytes = static_cast<size_t>(count) * sizeof(T);
  host_.resize(static_cast<size_t>(RoundUp(static_cast<int64_t>(place + bytes), kAlignment)));
  if (from != nullptr) std::memcpy(host_.data() + place, from, bytes);
  return place;
}

// Kernels index a table by the whole position: the part of it that they read is sent.
SequenceRows StepUpload::AppendTables(SequenceRows rows) {
  const int64_t end = rows.first_position + rows.rows;
  const int64_t first_window =
      std::max(rows.window_begin, rows.first_position - (kWindowTokens - 1));
  const int64_t window_entry = std::max<int64_t>(first_window, 0) / kWindowBlockTokens;
  const int64_t window_entries = CeilDiv(end, kWindowBlockTokens) - window_entry;
  rows.window_blocks =
      DeviceOf<int32_t>(Append(rows.window_blocks + window_entry, window_entries)) - window_entry;
  if (rows.group_blocks != nullptr) {
    rows.group_blocks =
        DeviceOf<int32_t>(Append(rows.group_blocks, CeilDiv(end, kGroupBlockTokens)));
  }
  if (rows.saves != nullptr) {
    rows.saves = DeviceOf<StateSave>(Append(rows.saves, rows.save_count));
  }
  return rows;
}

absl::Status StepUpload::Step(int32_t rows, int32_t sequences, StepRows* step,
                              const int32_t** tokens, const int64_t** rope_positions) {
  if (device_ == nullptr) return absl::OkStatus();
  host_.clear();
  const auto padded = [&](const auto* from, auto padding) {
    using T = decltype(padding);
    const size_t place = Append<T>(nullptr, rows);
    T* to = reinterpret_cast<T*>(host_.data() + place);
    std::fill(std::copy_n(from, step->rows, to), to + rows, padding);
    return DeviceOf<T>(place);
  };
  StepRows out{.rows = rows, .sequence_count = sequences, .max_position = step->max_position};
  out.rope = step->rope;
  out.sequence_of = padded(step->sequence_of, int32_t{-1});
  out.positions = padded(step->positions, int64_t{0});
  *rope_positions = padded(*rope_positions, int64_t{0});
  *tokens = padded(*tokens, int32_t{0});
  const size_t list = Append<SequenceRows>(nullptr, sequences);
  out.sequences = DeviceOf<SequenceRows>(list);
  host_sequences_.assign(step->sequences, step->sequences + step->sequence_count);
  host_sequences_.resize(static_cast<size_t>(sequences));
  out.host_sequences = host_sequences_.data();
  for (size_t i = 0; i < host_sequences_.size(); ++i) {
    const SequenceRows& host = host_sequences_[i];
    const SequenceRows device = host.rows > 0 ? AppendTables(host) : SequenceRows{};
    std::memcpy(host_.data() + list + i * sizeof device, &device, sizeof device);
  }
  *step = out;
  return device_->Upload(image_, host_.data(), static_cast<int64_t>(host_.size()));
}

absl::Status StepUpload::Pointers(int32_t count, const std::byte* const** from,
                                  std::byte* const** to) {
  if (device_ == nullptr) return absl::OkStatus();
  list_.assign(*from, *from + count);
  list_.insert(list_.end(), *to, *to + count);
  DSV4_RETURN_IF_ERROR(device_->Upload(pointers_, reinterpret_cast<const std::byte*>(list_.data()),
                                       static_cast<int64_t>(list_.size() * sizeof(void*))));
  *from = reinterpret_cast<const std::byte* const*>(pointers_);
  *to = reinterpret_cast<std::byte* const*>(pointers_) + count;
  return absl::OkStatus();
}

absl::Status StepUpload::Rows(int32_t count, const int32_t** rows) {
  if (device_ == nullptr) return absl::OkStatus();
  DSV4_RETURN_IF_ERROR(device_->Upload(rows_, reinterpret_cast<const std::byte*>(*rows),
                                       count * static_cast<int64_t>(sizeof(int32_t))));
  *rows = reinterpret_cast<const int32_t*>(rows_);
  return absl::OkStatus();
}

}  // namespace dsv4
