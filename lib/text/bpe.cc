// SPDX-License-Identifier: Apache-2.0
#include "lib/text/bpe.h"

#include <algorithm>
#include <optional>

#include "absl/strings/numbers.h"
#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/text/byte_alphabet.h"
#include "lib/text/tokenizer_json.h"

namespace dsv4 {
namespace {

constexpr uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

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
  bpe.merges_.reserve(merges->size());
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
    // A repeated merge counts with its last rank, as in the HF library.
    bpe.merges_[PairKey(ids[0], ids[1])] = {static_cast<uint32_t>(rank), ids[2]};
  }

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
  const auto merge = merges_.find(PairKey(left_id, right_id));
  if (merge == merges_.end()) return;
  scratch.heap.push_back({merge->second.rank, left, left_id, right_id, merge->second.id});
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
