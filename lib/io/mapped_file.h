// SPDX-License-Identifier: Apache-2.0
// A file mapped read-only into memory, and small whole-file reads.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace dsv4 {

class MappedFile {
 public:
  // NotFound when the file does not exist, IoError (with the system's reason) otherwise. A folder
  // or another thing that is not a regular file is InvalidArgument. An empty file maps to no bytes.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  // random: a page that is touched is read without its neighbours. The system may ignore this.
  void AdviseRandomAccess(bool random) const;

  absl::Span<const uint8_t> bytes() const { return {data_, static_cast<size_t>(size_)}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  std::string path_;
  const uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

// Reads a whole file of at most `max_bytes` (Corrupt beyond it).
absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes);

}  // namespace dsv4
