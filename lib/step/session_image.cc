// SPDX-License-Identifier: Apache-2.0
#include "lib/step/session_image.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "lib/base/checked_math.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

static_assert(std::endian::native == std::endian::little, "images are little-endian");

constexpr char kMagic[] = {'D', 'S', 'V', '4', 'S', 'E', 'S', 'S'};
constexpr uint32_t kVersion = 1;
constexpr int64_t kSectionAlignment = 8;  // bytes

struct Header {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  int64_t image_bytes;
  SessionIdentity identity;
  SessionCounts counts;
};
static_assert(sizeof(Header) == 128 && std::has_unique_object_representations_v<Header>);

struct Layout {
  int64_t logits, cache, grammar, checksum, end;  // offsets; the tokens follow the header
};

Layout LayoutOf(const SessionCounts& counts) {
  Layout layout;
  layout.logits = sizeof(Header) + RoundUp(counts.tokens * 4, kSectionAlignment);
  layout.cache = layout.logits + RoundUp(counts.logits * 4, kSectionAlignment);
  layout.grammar = layout.cache + RoundUp(counts.cache_bytes, kSectionAlignment);
  layout.checksum = layout.grammar + RoundUp(counts.grammar_bytes, kSectionAlignment);
  layout.end = layout.checksum + static_cast<int64_t>(sizeof(ContentHash));
  return layout;
}

template <class Byte>
SessionSections<Byte> Sections(const SessionCounts& counts, absl::Span<Byte> image) {
  const Layout layout = LayoutOf(counts);
  const auto part = [&](int64_t begin, int64_t bytes) {
    return image.subspan(static_cast<size_t>(begin), static_cast<size_t>(bytes));
  };
  return {.tokens = part(sizeof(Header), counts.tokens * 4),
          .logits = part(layout.logits, counts.logits * 4),
          .cache = part(layout.cache, counts.cache_bytes),
          .grammar = part(layout.grammar, counts.grammar_bytes)};
}

// The counts of an image that this library wrote are consistent. Those of a forged one may not be.
bool Plausible(const SessionCounts& counts, int64_t image_bytes) {
  for (const int64_t count :
       {counts.tokens, counts.delivered_tokens, counts.computed_tokens, counts.prompt_tokens,
        counts.logits, counts.cache_bytes, counts.grammar_bytes}) {
    if (count < 0 || count > image_bytes) return false;
  }
  return counts.computed_tokens <= counts.tokens && counts.delivered_tokens <= counts.tokens &&
         counts.prompt_tokens <= counts.delivered_tokens &&
         SessionImageBytes(counts) == image_bytes;
}

// The hash of all of `image` but the checksum at its end.
absl::StatusOr<ContentHash> ChecksumOf(absl::Span<const uint8_t> image,
                                       const ImageProgress& progress) {
  const size_t hashed = image.size() - sizeof(ContentHash);
  ContentHasher hasher;
  for (size_t begin = 0; begin < hashed; begin += kImagePartBytes) {
    const size_t end = std::min(begin + size_t{kImagePartBytes}, hashed);
    hasher.Add(image.subspan(begin, end - begin));
    if (progress) {
      DSV4_RETURN_IF_ERROR(progress(static_cast<int64_t>(end == hashed ? image.size() : end)));
    }
  }
  return hasher.hash();
}

}  // namespace

int64_t SessionImageBytes(const SessionCounts& counts) { return LayoutOf(counts).end; }

SessionSections<uint8_t> SectionsOf(const SessionCounts& counts, absl::Span<uint8_t> image) {
  return Sections(counts, image);
}

void SealSessionImage(const SessionIdentity& identity, const SessionCounts& counts,
                      absl::Span<uint8_t> image) {
  const Layout layout = LayoutOf(counts);
  Header header{.magic = {},
                .version = kVersion,
                .header_bytes = sizeof(Header),
                .image_bytes = layout.end,
                .identity = identity,
                .counts = counts};
  std::copy(std::begin(kMagic), std::end(kMagic), header.magic);
  std::memcpy(image.data(), &header, sizeof header);
  const SessionSections<uint8_t> sections = Sections(counts, image);
  const auto pad = [&](absl::Span<uint8_t> section, int64_t end) {
    std::fill(section.data() + section.size(), image.data() + end, uint8_t{0});
  };
  pad(sections.tokens, layout.logits);
  pad(sections.logits, layout.cache);
  pad(sections.cache, layout.grammar);
  pad(sections.grammar, layout.checksum);
  const ContentHash checksum = HashOf(image.subspan(0, static_cast<size_t>(layout.checksum)));
  std::memcpy(image.data() + layout.checksum, &checksum, sizeof checksum);
}

absl::StatusOr<ParsedSession> ParseSessionImage(absl::Span<const uint8_t> image,
                                                const SessionIdentity& expected,
                                                absl::string_view source,
                                                const ImageProgress& progress,
                                                absl::Span<const OtherCache> others) {
  const int64_t bytes = static_cast<int64_t>(image.size());
  constexpr int64_t kSmallest = sizeof(Header) + sizeof(ContentHash);
  Header header;
  if (bytes < kSmallest) {
    return Corrupt(source, ": ", bytes, " bytes are too few for a saved session");
  }
  std::memcpy(&header, image.data(), sizeof header);
  if (!std::equal(std::begin(kMagic), std::end(kMagic), header.magic)) {
    return Corrupt(source, ": not a saved session");
  }
  if (header.version != kVersion) {
    return VersionMismatch(source, ": a saved session of format ", header.version,
                           "; this library reads format ", kVersion);
  }
  if (header.image_bytes != bytes || header.header_bytes != sizeof header) {
    return Corrupt(source, ": holds ", bytes, " bytes of a saved session of ", header.image_bytes);
  }
  ContentHash checksum;
  std::memcpy(&checksum, image.data() + image.size() - sizeof checksum, sizeof checksum);
  DSV4_ASSIGN_OR_RETURN(const ContentHash actual, ChecksumOf(image, progress));
  if (actual != checksum) {
    return Corrupt(source, ": the saved session is damaged: its checksum does not match");
  }
  if (header.identity.weights != expected.weights) {
    return VersionMismatch(source, ": was saved with another model's weights");
  }
  if (header.identity.tokenizer != expected.tokenizer) {
    return VersionMismatch(source, ": was saved with another tokenizer");
  }
  for (const OtherCache& other : others) {
    if (header.identity.cache != other.cache) continue;
    return VersionMismatch(source, ": was saved with rows in cache format ", other.format,
                           ", which is not the engine's");
  }
  if (header.identity.cache != expected.cache) {
    return VersionMismatch(source,
                           ": was saved by an engine with other numerics, cache_format, drafter or "
                           "max_draft_tokens, or with an option that this library does not have");
  }
  if (!Plausible(header.counts, bytes)) {
    return Corrupt(source, ": the saved session is inconsistent: its counts do not fit its ", bytes,
                   " bytes");
  }
  return ParsedSession{header.counts, Sections(header.counts, image)};
}

}  // namespace dsv4
