// SPDX-License-Identifier: Apache-2.0
// The string formats of JSON Schema, as regular expressions.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"

namespace dsv4::grammar {

// The pattern that whole strings of the format match; nullopt if the format is not supported.
std::optional<absl::string_view> PatternOfFormat(absl::string_view format);

// "date, date-time, ...": for messages.
absl::string_view SupportedFormats();

}  // namespace dsv4::grammar
