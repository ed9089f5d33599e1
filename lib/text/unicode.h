// SPDX-License-Identifier: Apache-2.0
// The code points that the Unicode data of the HF tokenizers library has and PCRE2's lacks.
#pragma once

#include "absl/strings/string_view.h"

namespace dsv4 {

// Code points that Unicode 15.0, 15.1 and 16.0 gave the general category `category` (L, M, N, P or
// S; empty for others), as items of a PCRE2 character class: "\x{1c89}-\x{1c8a}...".
absl::string_view NewCodePointsOfCategory(char category);

}  // namespace dsv4
