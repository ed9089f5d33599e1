// SPDX-License-Identifier: Apache-2.0
// The saved form of a session: a versioned header with the identity of model, tokenizer and cache,
// the sections, and a checksum. KvSequence defines the content of the cache section. Images are
// untrusted when they are loaded.
//
// Version 1, little-endian:
//   0    "DSV4SESS"
//   8    u32 version, u32 bytes of this header (128)
//   16   u64 bytes of the whole image
//   24   identity: three hashes of 16 bytes (weights, tokenizer, cache format)
//   72   i64 tokens, delivered, computed and prompt tokens, logits, cache bytes, grammar bytes
//   128  sections: tokens [i32], logits [f32], cache, grammar; each padded with zeros to 8 bytes
//   end - 16  XXH3 (128 bits) of everything before
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lib/io/content_hash.h"

namespace dsv4 {

// The identity that an image and the engine that loads it must share.
struct SessionIdentity {
  ContentHash weights, tokenizer, cache;
};

// SessionIdentity::cache of an engine with another cache format, for error messages.
struct OtherCache {
  const char* format;
  ContentHash cache;
};

struct SessionCounts {
  int64_t tokens = 0;            // of the timeline, those ahead included
  int64_t delivered_tokens = 0;  // of those, the first ones that the caller has seen
  int64_t computed_tokens = 0;   // of those, the first ones whose rows are in the cache section
  int64_t prompt_tokens = 0;     // of the last sync
  int64_t logits = 0;            // of the last computed token: 0 or the vocabulary's size
  int64_t cache_bytes = 0;
  int64_t grammar_bytes = 0;  // 0: no grammar
};

template <class Byte>
struct SessionSections {
  absl::Span<Byte> tokens, logits, cache, grammar;
};

int64_t SessionImageBytes(const SessionCounts& counts);

// The sections of an image with these counts. REQUIRES: the image has SessionImageBytes(counts).
SessionSections<uint8_t> SectionsOf(const SessionCounts& counts, absl::Span<uint8_t> image);

// Writes header and checksum; the sections must be filled, and their padding is zeroed.
void SealSessionImage(const SessionIdentity& identity, const SessionCounts& counts,
                      absl::Span<uint8_t> image);

// Called with the number of bytes that are done, after each kImagePartBytes and at the end. An
// error ends the work and is its result.
using ImageProgress = std::function<absl::Status(int64_t)>;
inline constexpr int64_t kImagePartBytes = int64_t{8} << 20;

struct ParsedSession {
  SessionCounts counts;
  SessionSections<const uint8_t> sections;  // views of the image
};

// Checks all of `image`. `progress` may be empty. Errors, which name `source`: Corrupt (no image,
// cut off, damaged), VersionMismatch (another version of the format; another model, tokenizer or
// cache, with the difference where it is one of `others`); and those of `progress`.
absl::StatusOr<ParsedSession> ParseSessionImage(absl::Span<const uint8_t> image,
                                                const SessionIdentity& expected,
                                                absl::string_view source,
                                                const ImageProgress& progress = {},
                                                absl::Span<const OtherCache> others = {});

}  // namespace dsv4
