// SPDX-License-Identifier: Apache-2.0
// A file that is written as a whole and appears at its path only when it is complete and on disk:
// whoever opens the path sees the old file or the new one, whatever happens in between.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace dsv4 {

class ReplacedFile {
 public:
  // A new file of `bytes` > 0 bytes next to `path` (or what a symbolic link there points to), named
  // PATH.XXXXXX.tmp, readable by its owner only. Its space on disk is taken at once. Errors:
  // NotFound for a missing folder, InvalidArgument for a path at which there is no regular file but
  // something else, IoError with the system's reason.
  static absl::StatusOr<ReplacedFile> Create(const std::string& path, int64_t bytes);

  ReplacedFile(ReplacedFile&& other) noexcept;
  ReplacedFile& operator=(ReplacedFile&&) = delete;
  // Without Commit, nothing is left of the new file.
  ~ReplacedFile();

  // The content, mapped; zeros at first.
  absl::Span<uint8_t> bytes() { return {data_, static_cast<size_t>(size_)}; }

  // Writes the bytes [begin, end) of the content to the disk before Commit, for progress to be
  // told. `begin` is a multiple of the page size.
  absl::Status Flush(int64_t begin, int64_t end);

  // Writes the content to disk and moves it to `path`, over what was there. Called once; on an
  // error the old file is as it was.
  absl::Status Commit();

 private:
  ReplacedFile() = default;
  std::string path_, temporary_;  // temporary_ is empty when there is nothing to remove
  int fd_ = -1;
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace dsv4
