// SPDX-License-Identifier: Apache-2.0
// One sequence's share of the cache: block tables, compressor states, and one restore point. A step
// goes Reserve, forward, Commit; without Commit the sequence is as it was. Used by one thread at a
// time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/op/step_rows.h"
#include "lib/kv/kv_cache.h"

namespace dsv4 {

class KvSequence {
 public:
  // State slots: before and after the running step, and the restore point's.
  static constexpr int32_t kStateSlots = 3;

  // An empty sequence. OutOfBlocks when max_sequences exist. `cache` must outlive it.
  static absl::StatusOr<KvSequence> Open(KvCache* cache);

  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&&) = delete;
  KvSequence(const KvSequence&) = delete;
  ~KvSequence();

  int64_t length() const { return length_; }  // tokens with rows

  // Takes the blocks for the next `tokens` positions, and window blocks for MTP slots below
  // length() + tokens + extra_slots. On OutOfBlocks what it took is given back.
  absl::Status Reserve(int64_t tokens, int64_t extra_slots = 0);
  // The step's view of this sequence with `rows` rows from length() on. REQUIRES: Reserve(rows).
  SequenceRows Rows(int32_t first_row, int32_t rows);
  // The view of an MTP pass over slots [first_slot, first_slot + rows), which were reserved.
  SequenceRows MtpRows(int32_t first_row, int32_t rows, int64_t first_slot) const;
  // The rows of the last Rows() are part of the sequence; window rows that left every window are
  // freed.
  void Commit(int64_t rows);

  // Remembers the present end, in place of the last restore point.
  void SaveRestorePoint();
  // Position to which the sequence can go back: the last restore point that is <= `tokens`, or 0.
  int64_t RestorablePosition(int64_t tokens) const;
  // Goes back to RestorablePosition(tokens), and returns it.
  int64_t Rewind(int64_t tokens);

  int64_t held_bytes() const;  // blocks and states

 private:
  explicit KvSequence(KvCache* cache);
  void ReleaseWindowBlocks(int64_t begin, int64_t end);  // table entries [begin, end)
  void ReleaseRestoreBlocks();

  KvCache* cache_;
  int64_t length_ = 0;
  std::vector<int32_t> window_blocks_;                            // [context / 64 + 1]
  std::vector<int32_t> group_blocks_;                             // [context / 256 + 1]
  int32_t states_[kStateSlots] = {kNoBlock, kNoBlock, kNoBlock};  // current, next, restore
  StateSave save_;                                                // of the last Rows()
  int64_t restore_length_ = 0;                                    // 0 = no restore point
  std::vector<int32_t> restore_blocks_;  // window blocks from WindowBegin(restore_length_) on
};

}  // namespace dsv4
