// SPDX-License-Identifier: Apache-2.0
// Reads pieces of files past the page cache, many at once. Linux: O_DIRECT and io_uring; if the
// kernel has no io_uring, by pread; if the file system has no O_DIRECT, through the page cache.
// Windows: FILE_FLAG_NO_BUFFERING and overlapped reads. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace dsv4 {

// Bytes [offset, offset + bytes) of a file, and the memory to read them to. `memory` is aligned to
// kReadAlignment and has DirectReader::RoomFor(bytes) bytes. After the read, the bytes begin at
// data().
struct FilePiece {
  int32_t file = 0;  // index in the paths of DirectReader::Open
  int64_t offset = 0, bytes = 0;
  std::byte* memory = nullptr;
  const std::byte* data() const;
};

class DirectReader {
 public:
  static constexpr int64_t kReadAlignment = 4096;
  // Bytes of memory for a piece of `bytes`, at any offset.
  static int64_t RoomFor(int64_t bytes);
  // Where the read of a piece at `offset` begins.
  static int64_t AlignedDown(int64_t offset);

  struct Options {
    bool plain = false;  // for verification: one read at a time
  };

  // Opens the files without reading them. Errors: those of MappedFile::Open.
  static absl::StatusOr<std::unique_ptr<DirectReader>> Open(const std::vector<std::string>& paths,
                                                            const Options& options);
  ~DirectReader();
  DirectReader(const DirectReader&) = delete;
  DirectReader& operator=(const DirectReader&) = delete;

  // Reads all pieces. On return no read is under way. After a failure of io_uring itself, all reads
  // are by pread. Errors: IoError, with the file, the offset and the system's reason; Corrupt if a
  // file has become shorter and ends before its piece.
  absl::Status Read(absl::Span<const FilePiece> pieces);

  // Whether reads are under way at once.
  bool uses_ring() const { return ring_ != nullptr && !plain_; }

 private:
  class Ring;
  struct File {
    std::string path;
    intptr_t handle = -1;  // the system's
  };
  // The part of a piece that is left to read, in aligned bytes of its file.
  struct Rest {
    const FilePiece* piece;
    int64_t begin, end, needed;  // it suffices to read up to `needed`
    std::byte* to;
  };

  DirectReader() = default;
  // Updates *rest after a read that returned `result` (bytes, or the negative number of the
  // system's error).
  absl::Status Advance(int64_t result, Rest* rest) const;
  absl::Status ReadRests();
  absl::Status ReadPlainly();
  absl::Status ReadByRing();
  // Takes the ring's results, and returns their number. `status` keeps the first failure.
  unsigned TakeResults(absl::Status* status);

  std::vector<File> files_;
  bool plain_ = false;
  std::unique_ptr<Ring> ring_;
  std::vector<Rest> rests_;    // of the current pieces
  std::vector<size_t> ready_;  // the rests to submit to the ring next, in reverse order
};

}  // namespace dsv4
