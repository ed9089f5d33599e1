// SPDX-License-Identifier: Apache-2.0
// Which token has which id, while a tokenizer.json is read.
#pragma once

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/base/hash_table.h"
#include "lib/io/json.h"

namespace dsv4 {

// Tokens are spelled as in the file and are views into its JSON tree, which must outlive this
// object.
class Vocabulary {
 public:
  // The "vocab" of the object `model`. Corrupt, naming the token, for what Add refuses.
  static absl::StatusOr<Vocabulary> FromJson(const JsonValue& model, absl::string_view where);

  // Corrupt when the token is empty, or when it or the id is already there with another partner.
  absl::Status Add(absl::string_view token, int32_t id, absl::string_view where);

  std::optional<int32_t> Find(absl::string_view token) const;

  // By id; ends with the highest id. Empty for an id without a token.
  const std::vector<absl::string_view>& tokens() const { return tokens_; }

 private:
  std::unique_ptr<std::pmr::monotonic_buffer_resource> memory_ =
      std::make_unique<std::pmr::monotonic_buffer_resource>();
  PooledHashMap<absl::string_view, int32_t> ids_{memory_.get()};
  std::vector<absl::string_view> tokens_;
};

}  // namespace dsv4
