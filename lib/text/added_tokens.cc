// SPDX-License-Identifier: Apache-2.0
#include "lib/text/added_tokens.h"

#include <utility>

#include "lib/base/error.h"
#include "lib/base/hash_table.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/text/tokenizer_json.h"

namespace dsv4 {
namespace {

// At each byte of a text the search may look this far ahead.
constexpr size_t kMaxAddedTokenBytes = 1024;

absl::Status SplitBy(const TokenTrie& trie, absl::string_view text,
                     absl::FunctionRef<absl::Status(absl::string_view)> on_text,
                     absl::FunctionRef<void(int32_t)> on_token) {
  size_t done = 0;
  for (size_t i = 0; i < text.size();) {
    const TokenTrie::Match match = trie.LongestAt(text.substr(i));
    if (match.length == 0) {
      ++i;
      continue;
    }
    if (i > done) DSV4_RETURN_IF_ERROR(on_text(text.substr(done, i - done)));
    on_token(match.id);
    i += match.length;
    done = i;
  }
  if (done < text.size()) return on_text(text.substr(done));
  return absl::OkStatus();
}

}  // namespace

void TokenTrie::Insert(absl::string_view token, int32_t id) {
  uint64_t node = 0;
  for (const char c : token) {
    const auto [edge, is_new] =
        edges_.try_emplace(node << 8 | static_cast<uint8_t>(c), static_cast<uint32_t>(ids_.size()));
    if (is_new) ids_.push_back(-1);
    node = edge->second;
  }
  ids_[node] = id;
}

TokenTrie::Match TokenTrie::LongestAt(absl::string_view text) const {
  Match longest;
  uint64_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto edge = edges_.find(node << 8 | static_cast<uint8_t>(text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (ids_[node] >= 0) longest = {i + 1, ids_[node]};
  }
  return longest;
}

absl::StatusOr<AddedTokens> AddedTokens::FromJson(const JsonValue& root, absl::string_view where) {
  AddedTokens result;
  if (!root.Find("added_tokens")) return result;
  DSV4_ASSIGN_OR_RETURN(const std::vector<JsonValue>* items, ArrayAt(root, "added_tokens", where));
  HashSet<absl::string_view> seen;
  for (size_t i = 0; i < items->size(); ++i) {
    const JsonValue& item = (*items)[i];
    const std::string place = absl::StrCat(where, ": added_tokens[", i, "]");
    DSV4_ASSIGN_OR_RETURN(const absl::string_view content, StringAt(item, "content", place));
    const JsonValue* id_value = item.Find("id");
    if (!id_value) return Corrupt(place, ": key \"id\" is missing");
    DSV4_ASSIGN_OR_RETURN(const int32_t id, TokenIdOf(*id_value, content, place));
    if (content.size() > kMaxAddedTokenBytes) {
      return Corrupt(place, ": token ", Quoted(content), " has ", content.size(),
                     " bytes, at most ", kMaxAddedTokenBytes, " allowed");
    }
    if (!seen.insert(content).second) {
      return Corrupt(place, ": token ", Quoted(content), " is listed twice");
    }
    for (const char* option : {"single_word", "lstrip", "rstrip"}) {
      DSV4_RETURN_IF_ERROR(
          RequireOff(item, option, absl::StrCat(place, " (", Quoted(content), ")")));
    }
    DSV4_ASSIGN_OR_RETURN(const bool special, BoolAt(item, "special", false, place));
    DSV4_ASSIGN_OR_RETURN(const bool normalized, BoolAt(item, "normalized", !special, place));
    result.tokens_.push_back({id, std::string(content)});
    if (special) result.special_ids_.insert(id);
    (normalized ? result.normalized_ : result.raw_).Insert(content, id);
  }
  return result;
}

absl::Status AddedTokens::Split(absl::string_view text,
                                absl::FunctionRef<absl::Status(absl::string_view)> on_text,
                                absl::FunctionRef<void(int32_t)> on_token) const {
  return SplitBy(
      raw_, text,
      [&](absl::string_view piece) { return SplitBy(normalized_, piece, on_text, on_token); },
      on_token);
}

}  // namespace dsv4
