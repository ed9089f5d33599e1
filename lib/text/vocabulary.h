// SPDX-License-Identifier: Apache-2.0
// The tokens and ids of a tokenizer.json while it is read.
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

// Tokens are spelled as in the file. They are views into its JSON tree, which must outlive this
// object.
class Vocabulary {
 public:
  // Adds the "vocab" of the object `model`. Errors: those of Add, naming the token.
  static absl::StatusOr<Vocabulary> FromJson(const JsonValue& model, absl::string_view where);

  // Errors: Corrupt if the token is empty, has another id already, or the id has another token.
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
