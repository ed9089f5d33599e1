// SPDX-License-Identifier: Apache-2.0
// The safetensors container: an 8-byte little-endian header length, a JSON header, then the data.
// Headers are untrusted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/tensor/block_format.h"
#include "lib/tensor/dtype.h"

namespace dsv4 {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::string other_dtype;  // of DType::kOther: its name in the file
  std::vector<int64_t> shape;
  const uint8_t* data = nullptr;  // in the mapped file; may be unaligned for dtype
  int64_t bytes = 0;
  int32_t file = 0;                     // index of the shard, set by Checkpoint
  BlockType blocks = BlockType::kNone;  // of DType::kBlocks
  std::string stored_name{};            // in a GGUF file
  bool in_gguf = false;                 // set by Checkpoint

  // As messages should say it.
  const std::string& shown_name() const { return stored_name.empty() ? name : stored_name; }
  absl::string_view dtype_name() const {
    if (dtype == DType::kBlocks) return InfoOf(blocks).name;
    return dtype == DType::kOther ? absl::string_view(other_dtype) : DTypeName(dtype);
  }
};

inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Parses the file image `bytes` (header and data) and returns its tensors, in file order. Corrupt,
// naming `source` and the tensor, for: a header longer than the file or 100 MB, invalid JSON,
// negative or overflowing shapes, data_offsets that do not fit shape and dtype, that overlap, leave
// holes, or end before or after the end of the file, a duplicate name; a git-lfs pointer. A tensor
// of an unknown dtype has as many bytes as its data_offsets say.
absl::StatusOr<std::vector<TensorEntry>> ParseSafetensors(absl::Span<const uint8_t> bytes,
                                                          absl::string_view source);

// Length field and header of a file image that ParseSafetensors accepted.
absl::Span<const uint8_t> SafetensorsHeader(absl::Span<const uint8_t> bytes);

}  // namespace dsv4
