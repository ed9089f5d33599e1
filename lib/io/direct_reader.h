// SPDX-License-Identifier: Apache-2.0
// Reads pieces of files past the page cache (O_DIRECT), many at once by io_uring. Where the kernel
// or the file system has no such thing, by pread, and through the page cache. Used by one thread at
// a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace dsv4 {

// Bytes [offset, offset + bytes) of a file, which come to `memory`: at kReadAlignment, with
// DirectReader::RoomFor(bytes) of room. Once it is read, its bytes begin at data().
struct FilePiece {
  int32_t file = 0;  // which of the reader's
  int64_t offset = 0, bytes = 0;
  std::byte* memory = nullptr;
  const std::byte* data() const;
};

class DirectReader {
 public:
  static constexpr int64_t kReadAlignment = 4096;
  // At most this for a piece, wherever it begins.
  static int64_t RoomFor(int64_t bytes);

  struct Options {
    bool plain = false;  // for verification: pread alone
  };

  // Opens the files, and nothing else of them is read. Errors as MappedFile::Open's.
  static absl::StatusOr<std::unique_ptr<DirectReader>> Open(const std::vector<std::string>& paths,
                                                            const Options& options);
  ~DirectReader();
  DirectReader(const DirectReader&) = delete;
  DirectReader& operator=(const DirectReader&) = delete;

  // Reads all pieces; on return none of them is under way. From a failure of io_uring itself on,
  // reads are by pread. Errors: IoError, with the file, the place and the system's reason; Corrupt
  // for a file that ends before its piece does, as it has become shorter.
  absl::Status Read(absl::Span<const FilePiece> pieces);

  bool uses_ring() const { return ring_ != nullptr; }

 private:
  class Ring;
  struct File {
    std::string path;
    int fd = -1;
  };
  // What is left to read of a piece, in aligned bytes of its file.
  struct Rest {
    const FilePiece* piece;
    int64_t begin, end, needed;  // it suffices to read up to `needed`
    std::byte* to;
  };

  DirectReader() = default;
  // What a read of the rest that gave `result` (bytes, or the negative errno) leaves to do.
  absl::Status Advance(int64_t result, Rest* rest) const;
  absl::Status ReadPlainly();
  absl::Status ReadByRing();
  // Takes the ring's results, and returns their number. `status` keeps the first failure.
  unsigned TakeResults(absl::Status* status);

  std::vector<File> files_;
  std::unique_ptr<Ring> ring_;
  std::vector<Rest> rests_;    // of the current pieces
  std::vector<size_t> ready_;  // those that the ring is to have next, the first last
};

}  // namespace dsv4
