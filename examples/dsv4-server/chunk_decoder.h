// SPDX-License-Identifier: Apache-2.0
// A body in chunks, from bytes in pieces of any size. Strict: a line ends with CR LF alone,
// extensions and trailers have the bytes of RFC 9112 and are bounded. They mean nothing here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace server {

class ChunkDecoder {
 public:
  enum class State {
    kMore,      // the body is incomplete
    kDone,      // the last chunk and its trailer are complete
    kBad,       // the bytes are no chunks
    kTooLarge,  // the body is longer than its limit
    kTooLong,   // a chunk's header, the trailer, or all framing is
  };

  // Of a chunk's header with its extensions, and of the trailer.
  static constexpr size_t kMostLine = 8 << 10;
  // Bytes besides those of the body.
  static constexpr size_t kMostFraming = 4 << 20;

  explicit ChunkDecoder(size_t body_limit) : limit_(body_limit) {}

  // Appends the body's bytes to `body`, which is empty before the first call and changed by this
  // alone. Returns how many of `bytes` belong to the chunks.
  size_t Feed(std::string_view bytes, std::string* body);
  State state() const { return state_; }

 private:
  enum class At {
    kSize,
    kExtension,
    kQuoted,   // within a quoted string of an extension
    kEscaped,  // after a backslash in it
    kSizeLf,
    kData,
    kDataCr,
    kDataLf,
    kTrailer,      // at the beginning of a line
    kTrailerName,  // a line's name
    kTrailerValue,
    kTrailerLf,
    kEndLf,
  };

  // One byte of the framing.
  void Take(char c);
  void TakeSize(char c);
  void BeginChunk();

  const size_t limit_;
  State state_ = State::kMore;
  At at_ = At::kSize;
  uint64_t size_ = 0;  // of the chunk; then what is left of it
  size_t digits_ = 0;
  size_t line_ = 0, framing_ = 0;  // bytes
  size_t body_bytes_ = 0;
};

}  // namespace server
