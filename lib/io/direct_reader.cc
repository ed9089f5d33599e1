// SPDX-License-Identifier: Apache-2.0
#include "lib/io/direct_reader.h"

#include "absl/strings/str_cat.h"
#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/io/system_error.h"

namespace dsv4 {

int64_t DirectReader::AlignedDown(int64_t offset) { return offset - offset % kReadAlignment; }

const std::byte* FilePiece::data() const {
  return memory + (offset - DirectReader::AlignedDown(offset));
}

int64_t DirectReader::RoomFor(int64_t bytes) {
  return RoundUp(bytes, kReadAlignment) + kReadAlignment;
}

absl::Status DirectReader::Read(absl::Span<const FilePiece> pieces) {
  rests_.clear();
  for (const FilePiece& piece : pieces) {
    const int64_t begin = AlignedDown(piece.offset), needed = piece.offset + piece.bytes;
    if (piece.bytes == 0) continue;
    rests_.push_back({&piece, begin, RoundUp(needed, kReadAlignment), needed, piece.memory});
  }
  return ReadRests();
}

absl::Status DirectReader::Advance(int64_t result, Rest* rest) const {
  const std::string& path = files_[static_cast<size_t>(rest->piece->file)].path;
  if (result < 0) {
    return SystemError(path, absl::StrCat("read bytes ", rest->begin, " to ", rest->end),
                       static_cast<int>(-result));
  }
  if (result == 0) {
    return Corrupt(path, ": ends before byte ", rest->needed,
                   "; it has become shorter since it was opened");
  }
  // An end that is not aligned is the file's.
  rest->begin += result;
  rest->to += result;
  if (rest->begin >= rest->needed) rest->begin = rest->end;
  return absl::OkStatus();
}

}  // namespace dsv4
