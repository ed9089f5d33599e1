// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/chunk_decoder.h"

#include <algorithm>

#include "examples/dsv4-server/http_message.h"

namespace server {
namespace {

bool IsToken(char c) { return IsHttpToken({&c, 1}); }

// Of quoted strings and the values of trailers.
bool IsText(char c) { return c == '\t' || (static_cast<unsigned char>(c) >= 0x20 && c != 0x7f); }

// The value of a hexadecimal digit; -1 for another character.
int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

size_t ChunkDecoder::Feed(std::string_view bytes, std::string* body) {
  size_t i = 0;
  while (i < bytes.size() && state_ == State::kMore) {
    if (at_ == At::kData) {
      const size_t count = static_cast<size_t>(std::min<uint64_t>(size_, bytes.size() - i));
      body->append(bytes.substr(i, count));
      body_bytes_ += count;
      size_ -= count;
      i += count;
      if (size_ == 0) at_ = At::kDataCr;
      continue;
    }
    Take(bytes[i++]);
    if (state_ == State::kMore && (++line_ > kMostLine || ++framing_ > kMostFraming))
      state_ = State::kTooLong;
  }
  return i;
}

void ChunkDecoder::BeginChunk() {
  at_ = size_ > 0 ? At::kData : At::kTrailer;
  line_ = digits_ = 0;
}

void ChunkDecoder::TakeSize(char c) {
  if (const int digit = DigitOf(c); digit >= 0) {
    size_ = 16 * size_ + static_cast<uint64_t>(digit);
    ++digits_;
    // So `size_` never overflows.
    if (size_ > limit_ - body_bytes_) state_ = State::kTooLarge;
  } else if (digits_ == 0 || (c != '\r' && c != ';')) {
    state_ = State::kBad;
  } else {
    at_ = c == '\r' ? At::kSizeLf : At::kExtension;
  }
}

void ChunkDecoder::Take(char c) {
  const auto expect = [&](bool holds, At next) {
    at_ = next;
    if (!holds) state_ = State::kBad;
  };
  switch (at_) {
    case At::kSize:
      return TakeSize(c);
    case At::kExtension:
      if (c == '"') return expect(true, At::kQuoted);
      if (c == '\r') return expect(true, At::kSizeLf);
      return expect(IsToken(c) || c == ';' || c == '=' || c == ' ' || c == '\t', At::kExtension);
    case At::kQuoted:
      if (c == '"') return expect(true, At::kExtension);
      if (c == '\\') return expect(true, At::kEscaped);
      return expect(IsText(c), At::kQuoted);
    case At::kEscaped:
      return expect(IsText(c), At::kQuoted);
    case At::kSizeLf:
      expect(c == '\n', At::kSizeLf);
      return BeginChunk();
    case At::kData:
      return;
    case At::kDataCr:
      return expect(c == '\r', At::kDataLf);
    case At::kDataLf:
      expect(c == '\n', At::kSize);
      line_ = 0;
      return;
    case At::kTrailer:
      if (c == '\r') return expect(true, At::kEndLf);
      return expect(IsToken(c), At::kTrailerName);
    case At::kTrailerName:
      if (c == ':') return expect(true, At::kTrailerValue);
      return expect(IsToken(c), At::kTrailerName);
    case At::kTrailerValue:
      if (c == '\r') return expect(true, At::kTrailerLf);
      return expect(IsText(c), At::kTrailerValue);
    case At::kTrailerLf:
      return expect(c == '\n', At::kTrailer);
    case At::kEndLf:
      state_ = c == '\n' ? State::kDone : State::kBad;
  }
}

}  // namespace server
