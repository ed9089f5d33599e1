// SPDX-License-Identifier: Apache-2.0
// The added tokens of a tokenizer: strings that become one id wherever they occur in a text, before
// any other rule applies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/hash_table.h"
#include "lib/io/json.h"

namespace dsv4 {

struct AddedToken {
  int32_t id;
  std::string content;
};

// Finds the longest of a set of strings at the start of a text.
class TokenTrie {
 public:
  void Insert(absl::string_view token, int32_t id);

  struct Match {
    size_t length = 0;  // 0 when no token is there
    int32_t id = -1;
  };
  Match LongestAt(absl::string_view text) const;

 private:
  HashMap<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node; 0 is the root
  std::vector<int32_t> ids_ = {-1};    // by node; -1 where no token ends
};

class AddedTokens {
 public:
  // Reads the array "added_tokens" of the document `root`, which may be missing. Errors: Corrupt,
  // naming the token, for a repeated or an overlong one; Unsupported for single_word, lstrip and
  // rstrip.
  static absl::StatusOr<AddedTokens> FromJson(const JsonValue& root, absl::string_view where);

  // In the order of the file.
  const std::vector<AddedToken>& tokens() const { return tokens_; }
  bool IsSpecial(int32_t id) const { return special_ids_.contains(id); }

  // Cuts `text` at the added tokens in it: the leftmost first, the longest at each place. Calls
  // `on_text` (with a text that is not empty; an error ends the walk) and `on_token` in order.
  absl::Status Split(absl::string_view text,
                     absl::FunctionRef<absl::Status(absl::string_view)> on_text,
                     absl::FunctionRef<void(int32_t)> on_token) const;

 private:
  std::vector<AddedToken> tokens_;
  HashSet<int32_t> special_ids_;
  // Tokens with `normalized: false` are cut out first. Nothing is normalised in this family, so the
  // two differ only where tokens of both kinds overlap.
  TokenTrie raw_;
  TokenTrie normalized_;
};

}  // namespace dsv4
