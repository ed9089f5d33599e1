// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding: the tokens of one word, which is a byte string. pre_tokenizer.h cuts texts
// into words.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/hash_table.h"
#include "lib/io/json.h"
#include "lib/text/vocabulary.h"

namespace dsv4 {

class Bpe {
 public:
  // Working memory of Encode, reused from word to word by one thread.
  class Scratch {
    friend class Bpe;
    struct Symbol {
      int32_t id;  // -1 once merged into the symbol before
      int32_t previous;
      int32_t next;
    };
    struct Candidate {
      uint32_t rank;
      int32_t place;  // of the left symbol
      int32_t left_id;
      int32_t right_id;
      int32_t merged_id;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;  // the lowest rank, then the leftmost place, on top
  };

  // Reads the object "model" of a tokenizer.json, whose tokens are `vocabulary`. Errors: Corrupt
  // for a byte without a token and for a merge (named) whose parts or result are not tokens;
  // Unsupported for another type of model and for options other than ignore_merges (named).
  static absl::StatusOr<Bpe> FromJson(const JsonValue& model, const Vocabulary& vocabulary,
                                      absl::string_view where);

  // Appends the ids of `word`: the merges of lowest rank first, of equal rank from the left. Time
  // is O(n log n) for n bytes. REQUIRES: fewer than 2^31 bytes.
  void Encode(absl::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;

 private:
  struct Merge {
    uint32_t rank;
    int32_t id;  // of the result
  };

  void PushCandidate(int32_t left, int32_t right, Scratch& scratch) const;

  std::array<int32_t, 256> byte_ids_{};
  // Sorted by left and right: those of left token i from merges_begin_[i] to merges_begin_[i + 1].
  std::vector<uint32_t> merges_begin_;
  std::vector<int32_t> merge_rights_;
  std::vector<Merge> merges_;
  StringMap<int32_t> whole_words_;  // with ignore_merges: all tokens
};

}  // namespace dsv4
