// SPDX-License-Identifier: Apache-2.0
// The messages from the leader of a group of processes (lib/dist/process_group.h) to the others:
// the inputs of a pass, and writes to the cache between passes. A message is a sequence of
// commands, each a kind and its fields. All processes run the same build, so fields are sent as raw
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/op/step_rows.h"
#include "lib/base/error.h"

namespace dsv4 {

enum class GroupCommand : int32_t {
  kForward,
  kForwardDraft,
  kStoreStreams,
  kLogits,
  kDraftLogits,
  kCopyWindowBlock,
  kCopyCompressedKvBlock,
  kPutImage,
  kExpertProfile,  // before weights are read
};

class MessageWriter {
 public:
  explicit MessageWriter(GroupCommand command) { Add(command); }
  template <class T>
  MessageWriter& Add(const T& value) {
    return AddAll(&value, 1);
  }
  // Preceded by its length.
  template <class T>
  MessageWriter& AddList(absl::Span<const T> list) {
    Add(static_cast<int64_t>(list.size()));
    return AddAll(list.data(), list.size());
  }
  // A step, its tokens, and the parts of the block tables that it reads.
  MessageWriter& AddStep(const StepRows& step, const int32_t* tokens);
  absl::Span<const std::byte> bytes() const { return bytes_; }

 private:
  template <class T>
  MessageWriter& AddAll(const T* values, size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t begin = bytes_.size(), bytes = count * sizeof(T);
    bytes_.resize(begin + bytes);
    if (bytes > 0) std::memcpy(bytes_.data() + begin, values, bytes);
    return *this;
  }

  std::vector<std::byte> bytes_;
};

// A received step. step() and tokens() are valid as long as this object.
struct ReceivedStep {
  StepRows step;
  std::vector<int32_t> tokens, sequence_of;
  std::vector<int64_t> positions;
  std::vector<SequenceRows> sequences;
  std::vector<std::vector<int32_t>> tables;
  std::vector<std::vector<StateWrite>> state_writes;
};

class MessageReader {
 public:
  explicit MessageReader(absl::Span<const std::byte> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  // DeviceLost if the message is too short.
  template <class T>
  absl::StatusOr<T> Take() {
    T value{};
    if (absl::Status status = TakeAll(&value, 1); !status.ok()) return status;
    return value;
  }
  template <class T>
  absl::StatusOr<std::vector<T>> TakeList() {
    absl::StatusOr<int64_t> count = Take<int64_t>();
    if (!count.ok()) return count.status();
    if (*count < 0 || static_cast<size_t>(*count) > bytes_.size() / sizeof(T)) return Cut();
    std::vector<T> list(static_cast<size_t>(*count));
    if (absl::Status status = TakeAll(list.data(), list.size()); !status.ok()) return status;
    return list;
  }
  absl::Status TakeStep(ReceivedStep* step);

 private:
  static absl::Status Cut() { return DeviceLost("a message of the group's leader is cut short"); }
  template <class T>
  absl::Status TakeAll(T* to, size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t bytes = count * sizeof(T);
    if (bytes > bytes_.size()) return Cut();
    if (bytes > 0) std::memcpy(static_cast<void*>(to), bytes_.data(), bytes);
    bytes_.remove_prefix(bytes);
    return absl::OkStatus();
  }

  absl::Span<const std::byte> bytes_;
};

}  // namespace dsv4
