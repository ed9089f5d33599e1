// SPDX-License-Identifier: Apache-2.0
#include "lib/text/bpe.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <tuple>

#include "absl/strings/numbers.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/text/byte_alphabet.h"
#include "lib/text/tokenizer_json.h"

namespace dsv4 {
namespace {

struct MergeParts {
  absl::string_view left;
  absl::string_view right;
};

// "a b" or ["a", "b"].
absl::StatusOr<MergeParts> PartsOf(const JsonValue& merge, size_t rank, absl::string_view where) {
  if (const std::string* text = merge.AsString()) {
    const size_t space = text->find(' ');
    if (space != std::string::npos && text->find(' ', space + 1) == std::string::npos) {
      const absl::string_view parts = *text;
      return MergeParts{parts.substr(0, space), parts.substr(space + 1)};
    }
    return Corrupt(where, ": merge ", rank, " is ", Quoted(*text), ", not two tokens");
  }
  const std::vector<JsonValue>* pair = merge.AsArray();
  if (!pair || pair->size() != 2 || !(*pair)[0].AsString() || !(*pair)[1].AsString()) {
    return Corrupt(where, ": merge ", rank, " is neither \"a b\" nor [\"a\", \"b\"]");
  }
  return MergeParts{*(*pair)[0].AsString(), *(*pair)[1].AsString()};
}

}  // namespace

absl::StatusOr<Bpe> Bpe::FromJson(const JsonValue& model, const Vocabulary& vocabulary,
                                  absl::string_view where) {
  DSV4_ASSIGN_OR_RETURN(const absl::string_view type, StringAt(model, "type", where));
  if (type != "BPE") return Unsupported(where, ": type ", Quoted(type), " is not supported");
  for (const char* option : {"dropout", "unk_token", "continuing_subword_prefix",
                             "end_of_word_suffix", "fuse_unk", "byte_fallback"}) {
    DSV4_RETURN_IF_ERROR(RequireOff(model, option, where));
  }
  Bpe bpe;
  for (int byte = 0; byte < 256; ++byte) {
    const std::string character = AlphabetCharacter(static_cast<uint8_t>(byte));
    const std::optional<int32_t> id = vocabulary.Find(character);
    if (!id) {
      return Corrupt(where, ": byte ", byte, " (", Quoted(character), ") is not in the vocabulary");
    }
    bpe.byte_ids_[byte] = *id;
  }

  DSV4_ASSIGN_OR_RETURN(const std::vector<JsonValue>* merges, ArrayAt(model, "merges", where));
  struct Read {
    int32_t left, right;
    Merge merge;
  };
  std::vector<Read> read;
  read.reserve(merges->size());
  std::string whole;
  for (size_t rank = 0; rank < merges->size(); ++rank) {
    DSV4_ASSIGN_OR_RETURN(const MergeParts parts, PartsOf((*merges)[rank], rank, where));
    whole.assign(parts.left.data(), parts.left.size());
    whole.append(parts.right.data(), parts.right.size());
    std::array<int32_t, 3> ids;
    const std::array<absl::string_view, 3> tokens = {parts.left, parts.right, whole};
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::optional<int32_t> id = vocabulary.Find(tokens[i]);
      if (!id) {
        return Corrupt(where, ": merge ", rank, ", ", Quoted(parts.left), " + ",
                       Quoted(parts.right), ": token ", Quoted(tokens[i]),
                       " is not in the vocabulary");
      }
      ids[i] = *id;
    }
    read.push_back({ids[0], ids[1], {static_cast<uint32_t>(rank), ids[2]}});
  }
  std::sort(read.begin(), read.end(), [](const Read& a, const Read& b) {
    return std::tie(a.left, a.right, a.merge.rank) < std::tie(b.left, b.right, b.merge.rank);
  });
  bpe.merges_begin_.assign(vocabulary.tokens().size() + 1, 0);
  for (size_t i = 0; i < read.size(); ++i) {
    const auto& [left, right, merge] = read[i];
    // A repeated merge counts with its last rank, as in the HF library.
    if (i + 1 < read.size() && read[i + 1].left == left && read[i + 1].right == right) continue;
    ++bpe.merges_begin_[left + 1];
    bpe.merge_rights_.push_back(right);
    bpe.merges_.push_back(merge);
  }
  std::partial_sum(bpe.merges_begin_.begin(), bpe.merges_begin_.end(), bpe.merges_begin_.begin());

  DSV4_ASSIGN_OR_RETURN(const bool ignore_merges, BoolAt(model, "ignore_merges", false, where));
  if (ignore_merges) {
    for (size_t id = 0; id < vocabulary.tokens().size(); ++id) {
      const std::optional<std::string> bytes = AlphabetBytes(vocabulary.tokens()[id]);
      if (bytes) bpe.whole_words_.try_emplace(*bytes, static_cast<int32_t>(id));
    }
  }
  return bpe;
}

void Bpe::PushCandidate(int32_t left, int32_t right, Scratch& scratch) const {
  const int32_t left_id = scratch.symbols[left].id;
  const int32_t right_id = scratch.symbols[right].id;
  const uint32_t begin = merges_begin_[left_id];
  uint32_t count = merges_begin_[left_id + 1] - begin;
  if (count == 0) return;
  // Binary search without branches: which way it goes cannot be foreseen.
  const int32_t* place = merge_rights_.data() + begin;
  while (count > 1) {
    const uint32_t half = count / 2;
    place += place[half] <= right_id ? half : 0;
    count -= half;
  }
  if (*place != right_id) return;
  const Merge& merge = merges_[place - merge_rights_.data()];
  scratch.heap.push_back({merge.rank, left, left_id, right_id, merge.id});
}

void Bpe::Encode(absl::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (!whole_words_.empty()) {
    const auto whole = whole_words_.find(word);
    if (whole != whole_words_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  const auto is_later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
  };
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const int32_t size = static_cast<int32_t>(word.size());
  symbols.clear();
  heap.clear();
  for (int32_t i = 0; i < size; ++i) {
    symbols.push_back({byte_ids_[static_cast<uint8_t>(word[i])], i - 1, i + 1 < size ? i + 1 : -1});
    if (i > 0) PushCandidate(i - 1, i, scratch);
  }
  std::make_heap(heap.begin(), heap.end(), is_later);

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), is_later);
    const Scratch::Candidate top = heap.back();
    heap.pop_back();
    Scratch::Symbol& left = symbols[top.place];
    // Stale: another merge has taken one of the two.
    if (left.id != top.left_id || left.next < 0 || symbols[left.next].id != top.right_id) continue;
    Scratch::Symbol& right = symbols[left.next];
    left.id = top.merged_id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = top.place;
    const size_t before = heap.size();
    if (left.previous >= 0) PushCandidate(left.previous, top.place, scratch);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), is_later);
    const size_t between = heap.size();
    if (left.next >= 0) PushCandidate(top.place, left.next, scratch);
    if (heap.size() > between) std::push_heap(heap.begin(), heap.end(), is_later);
  }
  for (int32_t i = size > 0 ? 0 : -1; i >= 0; i = symbols[i].next) ids.push_back(symbols[i].id);
}

}  // namespace dsv4
