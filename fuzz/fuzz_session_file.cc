// SPDX-License-Identifier: Apache-2.0
// Damaged saved sessions, loaded into a session of the bundled model: they are refused and change
// nothing, or the session continues from them. The input is a byte of choices and then edits of a
// sound image, 9 bytes each, because images are too long to be made up: a kind, a place and a
// value. Most damage ends at the checksum, so the choices can have it made right again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "lib/engine/engine.h"
#include "lib/io/content_hash.h"
#include "lib/session/session.h"

namespace {

using dsv4::Engine;
using dsv4::Session;
using Image = std::vector<uint8_t>;

// Of lib/step/session_image.h.
constexpr size_t kImageBytesAt = 16, kCountsAt = 72, kCounts = 6, kHeaderBytes = 128;
constexpr size_t kChecksumBytes = 16;

// The choices.
constexpr uint8_t kSeal = 1, kMiddleOfPrompt = 2, kStep = 4;
constexpr int32_t kDrafts = 3;

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

Image Saved(const Session& session) {
  Image image(static_cast<size_t>(session.SaveBytes()));
  Require(session.SaveTo(absl::MakeSpan(image)).ok());
  return image;
}

// One engine with the images that inputs are edits of, and the session that they are loaded into.
struct Target {
  std::shared_ptr<Engine> engine;
  std::unique_ptr<Session> session;
  Image before;  // of that session
  Image computed, middle;

  Target() {
    const auto opened = Engine::Open(
        DSV4_SOURCE_DIR "/models/dsv4-tiny",
        {.context_tokens = 64, .max_sessions = 2, .threads = 1, .max_draft_tokens = kDrafts});
    Require(opened.ok());
    engine = *opened;
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < 20; ++i) prompt.push_back(10 + 7 * i);
    session = Open();
    Require(session->Sync(prompt).ok() && session->Prefill(9, nullptr).ok());
    middle = Saved(*session);
    Require(session->Step().ok() && session->Step().ok());
    Require(session->Prefill(0, nullptr).ok());
    computed = Saved(*session);
    session = Open();
    prompt.resize(5);
    Require(session->Sync(prompt).ok() && session->Prefill(0, nullptr).ok());
    before = Saved(*session);
  }

  std::unique_ptr<Session> Open() {
    auto opened = Session::Open(engine, {.draft_tokens = kDrafts});
    Require(opened.ok());
    return *std::move(opened);
  }
};

Target& TheTarget() {
  static Target target;
  return target;
}

struct Edit {
  uint8_t kind;
  uint32_t place;
  int32_t value;
};

void Apply(const Edit& edit, Image* image) {
  if (image->empty()) return;
  const size_t place = edit.place % image->size();
  switch (edit.kind % 5) {
    case 0:
      (*image)[place] = static_cast<uint8_t>(edit.value);
      break;
    case 1: {  // a count
      const int64_t count = edit.value;
      const size_t at = kCountsAt + edit.place % kCounts * sizeof count;
      if (image->size() >= at + sizeof count) std::memcpy(&(*image)[at], &count, sizeof count);
      break;
    }
    case 2:
      image->resize(edit.place % (2 * image->size()));
      break;
    case 3: {
      const size_t end = std::min(image->size(), place + 64);
      std::fill(image->begin() + static_cast<ptrdiff_t>(place),
                image->begin() + static_cast<ptrdiff_t>(end), static_cast<uint8_t>(edit.value));
      break;
    }
    case 4:  // an aligned word
      if (place / 4 * 4 + 4 <= image->size())
        std::memcpy(&(*image)[place / 4 * 4], &edit.value, sizeof edit.value);
      break;
  }
}

// Length and checksum as they should be.
void Seal(Image* image) {
  if (image->size() < kHeaderBytes + kChecksumBytes) return;
  const uint64_t bytes = image->size();
  std::memcpy(&(*image)[kImageBytesAt], &bytes, sizeof bytes);
  const size_t end = image->size() - kChecksumBytes;
  const dsv4::ContentHash checksum = dsv4::HashOf(absl::MakeConstSpan(*image).subspan(0, end));
  std::memcpy(&(*image)[end], &checksum, sizeof checksum);
}

}  // namespace

// Opens the model: seconds that no input is to be charged with.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  (void)TheTarget();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t choices = data[0];
  Target& target = TheTarget();
  Image image = (choices & kMiddleOfPrompt) != 0 ? target.middle : target.computed;
  constexpr size_t kEditBytes = 9, kMaxEdits = 16;
  for (size_t i = 0; i < kMaxEdits && 1 + (i + 1) * kEditBytes <= size; ++i) {
    const uint8_t* bytes = data + 1 + i * kEditBytes;
    Edit edit{.kind = bytes[0], .place = 0, .value = 0};
    std::memcpy(&edit.place, bytes + 1, sizeof edit.place);
    std::memcpy(&edit.value, bytes + 5, sizeof edit.value);
    Apply(edit, &image);
  }
  if ((choices & kSeal) != 0) Seal(&image);

  Session& session = *target.session;
  const absl::Status loaded = session.Load(image, "fuzz");
  if (!loaded.ok()) {
    Require(Saved(session) == target.before);
    return 0;
  }
  Require(Saved(session).size() == image.size());
  if ((choices & kStep) != 0) {
    // Whatever the numbers in it, a step ends, and chooses a token or says why not.
    const auto step = session.Step();
    if (step.ok()) Require(step->token >= 0 && step->token < target.engine->config().vocab_size);
  }
  Require(session.Load(target.before, "before").ok() && Saved(session) == target.before);
  return 0;
}
