// SPDX-License-Identifier: Apache-2.0
// Whether a sanitizer watches, which makes tests ten times slower: it sees what code does in the
// first few rounds, and what results depend on is for the other builds.
#pragma once

namespace dsv4::test {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace dsv4::test
