// SPDX-License-Identifier: Apache-2.0
// A forward pass whose every row and state is a hash of what it must depend on: the tokens up to
// its position, the layer, the kind. So whatever a sequence shows can be held against its tokens
// alone, without the code under test. One for each thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "lib/kv/kv_sequence.h"

namespace dsv4::test {

inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9E3779B97F4A7C15u + b + 0x632BE59BD9B4E019u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Tokens, with a hash of each prefix.
class Text {
 public:
  Text() = default;
  explicit Text(const std::vector<int32_t>& tokens) { Append(tokens); }
  void Append(int32_t token) {
    hashes_.push_back(Mix(tokens_.empty() ? 0 : hashes_.back(), static_cast<uint64_t>(token)));
    tokens_.push_back(token);
  }
  void Append(const std::vector<int32_t>& tokens) {
    for (const int32_t token : tokens) Append(token);
  }
  void Cut(int64_t length) {
    tokens_.resize(static_cast<size_t>(length));
    hashes_.resize(static_cast<size_t>(length));
  }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  // Of tokens [0, position].
  uint64_t Until(int64_t position) const { return hashes_[static_cast<size_t>(position)]; }

 private:
  std::vector<int32_t> tokens_;
  std::vector<uint64_t> hashes_;
};

class FakeForward {
 public:
  explicit FakeForward(KvCache* cache) : cache_(cache) {}

  // The main layers' rows and states of a step on `text`. Counts writes to shared blocks.
  void Forward(const SequenceRows& rows, const Text& text) {
    for (int64_t p = rows.first_position; p < rows.first_position + rows.rows; ++p) {
      for (int64_t i = 0; i < main_layers(); ++i) WriteWindow(rows, i, p, text);
      for (int64_t i = 0; i < main_layers(); ++i) {
        const int64_t ratio = cache_->shape().compress_ratios[static_cast<size_t>(i)];
        if (ratio == 0 || (p + 1) % ratio != 0) continue;
        const int32_t block = rows.compressed_kv_blocks[p / kCompressedKvBlockTokens];
        bad_writes += Shared(&KvCache::compressed_pool, block);
        const LayerCache& layer = cache_->layer(i);
        const int64_t slot = p % kCompressedKvBlockTokens / ratio;
        Write(layer.compressed, block, slot, Tag(text, p, i, kCompressed));
        Write(layer.index_keys, block, slot, Tag(text, p, i, kKey));
      }
    }
    for (int32_t i = 0; i < rows.state_write_count; ++i) {
      const StateWrite& write = rows.state_writes[i];
      bad_writes += Shared(&KvCache::state_pool, write.slot);
      const uint64_t tag = StateTag(text, rows.first_position + write.row);
      Put(cache_->state(write.slot), cache_->plan().streams_offset_bytes, tag);
      if (cache_->shape().streams_bytes > 0) {
        Put(cache_->streams().Slot(write.slot), cache_->shape().streams_bytes, tag + 1);
      }
    }
  }

  // The MTP layers' rows of slots; slot s depends on the tokens up to s.
  void ForwardMtp(const SequenceRows& rows, const Text& text) {
    for (int64_t slot = rows.first_position; slot < rows.first_position + rows.rows; ++slot) {
      for (int64_t i = main_layers(); i < layers(); ++i) WriteWindow(rows, i, slot, text);
    }
  }

  // What the next token of a sequence of these tokens would see and is not there.
  int64_t Mismatches(const KvSequence& sequence, const Text& text) const {
    const SequenceRows rows = sequence.Rows(0);
    const int64_t length = sequence.length();
    if (length != text.size()) return 1'000'000;
    int64_t wrong = 0;
    for (int64_t i = 0; i < layers(); ++i) {
      const LayerCache& layer = cache_->layer(i);
      const int64_t first = i < main_layers() ? 0 : 1;
      for (int64_t p = std::max(first, length - 127); p < length; ++p) {
        const int32_t block = rows.window_blocks[p / kWindowBlockTokens];
        wrong += block == kNoBlock ||
                 !Holds(layer.window, block, p % kWindowBlockTokens, Tag(text, p, i, kWindow));
      }
      const int64_t ratio = cache_->shape().compress_ratios[static_cast<size_t>(i)];
      for (int64_t g = 0; ratio > 0 && g < length / ratio; ++g) {
        const int64_t p = (g + 1) * ratio - 1;
        const int32_t block = rows.compressed_kv_blocks[p / kCompressedKvBlockTokens];
        const int64_t slot = p % kCompressedKvBlockTokens / ratio;
        wrong += block == kNoBlock ||
                 !Holds(layer.compressed, block, slot, Tag(text, p, i, kCompressed)) ||
                 !Holds(layer.index_keys, block, slot, Tag(text, p, i, kKey));
      }
    }
    if (length == 0) return wrong;
    const uint64_t tag = StateTag(text, length);
    wrong += !Has(cache_->state(rows.state_slot), cache_->plan().streams_offset_bytes, tag);
    if (cache_->shape().streams_bytes > 0) {
      wrong += !Has(cache_->streams().Slot(sequence.state_slot()), cache_->shape().streams_bytes,
                    tag + 1);
    }
    return wrong;
  }

  int64_t bad_writes = 0;  // to blocks or states that somebody else holds, too

 private:
  enum Kind : uint64_t { kWindow, kCompressed, kKey, kState };

  int64_t layers() const { return static_cast<int64_t>(cache_->shape().compress_ratios.size()); }
  int64_t main_layers() const { return layers() - cache_->shape().mtp_layers; }

  static uint64_t Tag(const Text& text, int64_t position, int64_t layer, Kind kind) {
    return Mix(text.Until(position), static_cast<uint64_t>(layer * 4) + kind);
  }
  static uint64_t StateTag(const Text& text, int64_t length) {
    return Mix(text.Until(length - 1), kState);
  }

  // At both ends of a run of bytes.
  static void Put(std::byte* to, int64_t bytes, uint64_t tag) {
    if (bytes == 0) return;
    const size_t part = static_cast<size_t>(std::min<int64_t>(bytes, 8));
    std::memcpy(to, &tag, part);
    std::memcpy(to + bytes - part, &tag, part);
  }
  static bool Has(const std::byte* from, int64_t bytes, uint64_t tag) {
    const size_t part = static_cast<size_t>(std::min<int64_t>(bytes, 8));
    return std::memcmp(from, &tag, part) == 0 && std::memcmp(from + bytes - part, &tag, part) == 0;
  }
  static void Write(const RowPool& pool, int32_t block, int64_t slot, uint64_t tag) {
    if (pool.row_bytes == 0) return;
    Put(pool.Row(block, slot), pool.row_bytes, tag);
    Put(pool.Scales(block, slot), RowScaleBytes(pool.format), ~tag);
  }
  static bool Holds(const RowPool& pool, int32_t block, int64_t slot, uint64_t tag) {
    if (pool.row_bytes == 0) return true;
    const int64_t scales = RowScaleBytes(pool.format);
    return Has(pool.Row(block, slot), pool.row_bytes, tag) &&
           (scales == 0 || Has(pool.Scales(block, slot), scales, ~tag));
  }

  bool Shared(BlockPool& (KvCache::*pool)(), int32_t block) const {
    MutexLock lock(cache_->mutex());
    return block == kNoBlock || (cache_->*pool)().shared(block);
  }

  void WriteWindow(const SequenceRows& rows, int64_t layer, int64_t p, const Text& text) {
    const int32_t block = rows.window_blocks[p / kWindowBlockTokens];
    bad_writes += Shared(&KvCache::window_pool, block);
    Write(cache_->layer(layer).window, block, p % kWindowBlockTokens, Tag(text, p, layer, kWindow));
  }

  KvCache* cache_;
};

// A sequence with its tokens, driven by fake steps as the runtime drives it.
struct FakeSession {
  FakeSession(KvSequence sequence, FakeForward* model) : kv(std::move(sequence)), forward(model) {}

  // One step over `added`. The first `kept` rows are committed; the others are rejected drafts.
  // Fills MTP slots up to the new length, and `draft_slots` more with drafts' rows.
  absl::Status Step(const std::vector<int32_t>& added, int64_t kept, bool per_row,
                    int64_t draft_slots = 0, int64_t prompt = 0) {
    const int64_t rows = static_cast<int64_t>(added.size());
    absl::Status reserved = kv.Reserve(rows, draft_slots, per_row);
    if (!reserved.ok()) return reserved;
    wrong += forward->Mismatches(kv, text);  // copies hold what the originals held
    Text tried = text;
    tried.Append(added);
    forward->Forward(kv.Rows(0), tried);
    wrong += forward->Mismatches(kv, text);  // until Commit it is as it was
    kv.Commit(kept);
    if (kept == 0) return absl::OkStatus();
    const int64_t before = text.size();
    tried.Cut(before + kept);
    text = tried;
    // Drafts are some tokens or other.
    for (int64_t i = 0; i < draft_slots; ++i) tried.Append(static_cast<int32_t>(1'000'000 + i));
    forward->ForwardMtp(kv.MtpRows(0, static_cast<int32_t>(kept + draft_slots), before), tried);
    kv.Publish(text.tokens(), prompt);
    return absl::OkStatus();
  }
  absl::Status Extend(const std::vector<int32_t>& added, int64_t prompt = 0) {
    return Step(added, static_cast<int64_t>(added.size()), false, 0, prompt);
  }
  int64_t Rewind(int64_t tokens) {
    const int64_t target = kv.Rewind(tokens);
    text.Cut(target);
    return target;
  }
  PrefixReuse Adopt(const std::vector<int32_t>& tokens, int64_t max_tokens) {
    const int64_t common =
        std::mismatch(tokens.begin(), tokens.end(), text.tokens().begin(), text.tokens().end())
            .first -
        tokens.begin();
    const PrefixReuse reuse = kv.AdoptPrefix(tokens, common, max_tokens);
    text = Text({tokens.begin(), tokens.begin() + reuse.tokens()});
    return reuse;
  }
  int64_t Mismatches() const { return wrong + forward->Mismatches(kv, text); }

  KvSequence kv;
  FakeForward* forward;
  Text text;
  int64_t wrong = 0;
};

}  // namespace dsv4::test
