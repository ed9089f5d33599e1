// SPDX-License-Identifier: Apache-2.0
#include "lib/text/vocabulary.h"

#include "lib/base/error.h"
#include "lib/base/quoted.h"
#include "lib/base/status_macros.h"
#include "lib/text/tokenizer_json.h"

namespace dsv4 {

absl::StatusOr<Vocabulary> Vocabulary::FromJson(const JsonValue& model, absl::string_view where) {
  DSV4_ASSIGN_OR_RETURN(const std::vector<JsonMember>* members, ObjectAt(model, "vocab", where));
  Vocabulary vocabulary;
  vocabulary.ids_.reserve(members->size());
  vocabulary.tokens_.reserve(members->size());
  for (const auto& [token, value] : *members) {
    DSV4_ASSIGN_OR_RETURN(const int32_t id, TokenIdOf(value, token, where));
    DSV4_RETURN_IF_ERROR(vocabulary.Add(token, id, where));
  }
  return vocabulary;
}

absl::Status Vocabulary::Add(absl::string_view token, int32_t id, absl::string_view where) {
  if (token.empty()) return Corrupt(where, ": the token with id ", id, " is empty");
  const auto [place, is_new] = ids_.try_emplace(token, id);
  if (place->second != id) {
    return Corrupt(where, ": token ", Quoted(token), " has two ids, ", place->second, " and ", id);
  }
  if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(id + 1);
  if (is_new && !tokens_[id].empty()) {
    return Corrupt(where, ": id ", id, " has two tokens, ", Quoted(tokens_[id]), " and ",
                   Quoted(token));
  }
  tokens_[id] = token;
  return absl::OkStatus();
}

std::optional<int32_t> Vocabulary::Find(absl::string_view token) const {
  const auto it = ids_.find(token);
  return it == ids_.end() ? std::nullopt : std::optional<int32_t>(it->second);
}

}  // namespace dsv4
