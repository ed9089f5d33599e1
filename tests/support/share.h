// SPDX-License-Identifier: Apache-2.0
// K/N, as environments of tests have it: of N processes of the same test, the share of one.
#pragma once

#include <cstdio>
#include <optional>

namespace dsv4::test {

struct Share {
  int number = 0, of = 1;
};

// None where `text` is not K/N with 0 <= K < N.
inline std::optional<Share> ParseShare(const char* text) {
  Share share;
  char rest;
  if (std::sscanf(text, "%d/%d%c", &share.number, &share.of, &rest) != 2) return std::nullopt;
  if (share.number < 0 || share.number >= share.of) return std::nullopt;
  return share;
}

}  // namespace dsv4::test
