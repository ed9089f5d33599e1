// SPDX-License-Identifier: Apache-2.0
// The formats of JSON Schema and of OpenAPI: of strings as regular expressions, of integers as
// ranges.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"

namespace dsv4::grammar {

// The pattern that whole strings of the format match; nullopt if the format is not supported.
std::optional<absl::string_view> PatternOfFormat(absl::string_view format);

// The integers of a format such as int32; nullopt for other formats.
struct FormatRange {
  absl::string_view low, high;  // inclusive, as JSON numbers
};
std::optional<FormatRange> RangeOfFormat(absl::string_view format);

// "date, date-time, ...": for messages.
absl::string_view SupportedFormats();

}  // namespace dsv4::grammar
