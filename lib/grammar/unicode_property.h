// SPDX-License-Identifier: Apache-2.0
// The characters of Unicode properties, as PCRE2 knows them.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "lib/grammar/text_language.h"

namespace dsv4::grammar {

// The characters with a property in ECMA-262's notation, what stands between the braces of \p{...}:
// "L", "Letter", "gc=Lu", "Script=Greek", "scx=Greek", "Alphabetic". The first use of a property
// takes about 10 ms. Any thread. Unsupported for an unknown one.
absl::StatusOr<CharSet> CharsOfProperty(absl::string_view property);

}  // namespace dsv4::grammar
