// SPDX-License-Identifier: Apache-2.0
// Whether the build has a sanitizer, which makes tests ten times slower. Such builds run fewer
// rounds: sanitizers find errors in the first rounds, and other builds test results.
#pragma once

namespace dsv4::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace dsv4::test
