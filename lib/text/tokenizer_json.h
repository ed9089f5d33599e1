// SPDX-License-Identifier: Apache-2.0
// Typed look-ups in a tokenizer.json. `where` names the object in messages ("tokenizer.json:
// model").
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/io/json.h"

namespace dsv4 {

// Highest id of a token, plus one: bounds the memory of tables by id.
inline constexpr int32_t kMaxTokenIds = 1 << 22;

// Corrupt when the key is missing or of another kind.
absl::StatusOr<const std::vector<JsonMember>*> ObjectAt(const JsonValue& object,
                                                        absl::string_view key,
                                                        absl::string_view where);
absl::StatusOr<const std::vector<JsonValue>*> ArrayAt(const JsonValue& object,
                                                      absl::string_view key,
                                                      absl::string_view where);
absl::StatusOr<absl::string_view> StringAt(const JsonValue& object, absl::string_view key,
                                           absl::string_view where);

// `absent` when the key is missing; Corrupt when it is no boolean.
absl::StatusOr<bool> BoolAt(const JsonValue& object, absl::string_view key, bool absent,
                            absl::string_view where);

// Corrupt, naming the token, unless `value` is an integer in [0, kMaxTokenIds).
absl::StatusOr<int32_t> TokenIdOf(const JsonValue& value, absl::string_view token,
                                  absl::string_view where);

// Checks that an unsupported feature is off: OK if the key is missing, null, false or an empty
// string. Otherwise Unsupported, naming key and value.
absl::Status RequireOff(const JsonValue& object, absl::string_view key, absl::string_view where);

}  // namespace dsv4
