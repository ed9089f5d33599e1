// SPDX-License-Identifier: Apache-2.0
// A file that appears at its path only when it is complete and on disk. A process that opens the
// path sees the old file or the whole new one, even after a crash.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace dsv4 {

class ReplacedFile {
 public:
  // Creates the file PATH.XXXXXX.tmp of `bytes` > 0 bytes, readable by its owner only, and
  // allocates its space on disk. If `path` is a symbolic link, PATH is its target. Errors: NotFound
  // for a missing folder, InvalidArgument if `path` exists and is not a regular file, IoError with
  // the system's reason.
  static absl::StatusOr<ReplacedFile> Create(const std::string& path, int64_t bytes);

  ReplacedFile(ReplacedFile&& other) noexcept;
  ReplacedFile& operator=(ReplacedFile&&) = delete;
  // Removes the new file unless Commit succeeded.
  ~ReplacedFile();

  // The content, mapped; zeros at first.
  absl::Span<uint8_t> bytes() { return {data_, static_cast<size_t>(size_)}; }

  // Writes the bytes [begin, end) of the content to the disk before Commit, so that the caller can
  // report progress. `begin` is a multiple of the page size.
  absl::Status Flush(int64_t begin, int64_t end);

  // Writes the content to disk and moves it to `path`. Called once. After an error the old file is
  // unchanged.
  absl::Status Commit();

 private:
  ReplacedFile() = default;
  std::string path_, temporary_;  // temporary_ is empty when there is nothing to remove
  intptr_t handle_ = -1;          // the system's, of the new file
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace dsv4
