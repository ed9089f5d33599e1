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
  sequences_.reserve(static_cast<size_t>(limits.sequences));
  list_.reserve(2 * static_cast<size_t>(limits.rows));
}

// Where on the device the elements will be.
template <class T>
T* StepUpload::Append(const T* from, int64_t count) {
  const size_t at = host_.size(), bytes = static_cast<size_t>(count) * sizeof(T);
  host_.resize(static_cast<size_t>(RoundUp<int64_t>(static_cast<int64_t>(at + bytes), kAlignment)));
  std::memcpy(host_.data() + at, from, bytes);
  return reinterpret_cast<T*>(image_ + at);
}

absl::Status StepUpload::SendImage() {
  return device_->Upload(image_, host_.data(), static_cast<int64_t>(host_.size()));
}

absl::Status StepUpload::Step(StepRows* step, const int32_t** tokens,
                              const int64_t** rope_positions) {
  if (device_ == nullptr) return absl::OkStatus();
  host_.clear();
  sequences_.clear();
  const int64_t* const positions = step->positions;
  for (int32_t i = 0; i < step->sequence_count; ++i) {
    SequenceRows rows = step->sequences[i];
    const int64_t end = rows.first_position + rows.rows;
    // Kernels index a table by the whole position: the part of it that they read is sent.
    const int64_t first_window =
        std::max(rows.window_begin, rows.first_position - (kWindowTokens - 1));
    const int64_t window_entry = std::max<int64_t>(first_window, 0) / kWindowBlockTokens;
    rows.window_blocks =
        Append(rows.window_blocks + window_entry, CeilDiv(end, kWindowBlockTokens) - window_entry) -
        window_entry;
    if (rows.group_blocks != nullptr) {
      rows.group_blocks = Append(rows.group_blocks, CeilDiv(end, kGroupBlockTokens));
    }
    if (rows.saves != nullptr) rows.saves = Append(rows.saves, rows.save_count);
    sequences_.push_back(rows);
  }
  step->host_sequences = step->sequences;
  step->sequences = Append(sequences_.data(), step->sequence_count);
  step->sequence_of = Append(step->sequence_of, step->rows);
  step->positions = Append(positions, step->rows);
  *rope_positions =
      *rope_positions == positions ? step->positions : Append(*rope_positions, step->rows);
  *tokens = Append(*tokens, step->rows);
  return SendImage();
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
