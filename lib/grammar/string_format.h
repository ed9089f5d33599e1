// SPDX-License-Identifier: Apache-2.0
// The formats of strings that JSON Schema names, as regular expressions.
#pragma once

#include <optional>

#include "absl/strings/string_view.h"

namespace dsv4::grammar {

// The pattern of whole strings of the format; nullopt for one that is not supported.
std::optional<absl::string_view> PatternOfFormat(absl::string_view format);

// "date, date-time, ...": for messages.
absl::string_view SupportedFormats();

}  // namespace dsv4::grammar
