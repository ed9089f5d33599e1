// SPDX-License-Identifier: Apache-2.0
// Tests of dozens of cases, in shares: with DSV4_TEST_SHARD = K/N in the environment they take the
// cases K, K + N, K + 2 N, .. alone. For tools under which a step takes a thousand times as long.
#pragma once

#include <cstdlib>
#include <optional>

#include "tests/support/catch.h"
#include "tests/support/share.h"

namespace dsv4::test {

class Shard {
 public:
  Shard() {
    const char* const text = std::getenv("DSV4_TEST_SHARD");
    if (text == nullptr) return;
    INFO("DSV4_TEST_SHARD is " << text);
    const std::optional<Share> share = ParseShare(text);
    REQUIRE(share);
    share_ = *share;
  }
  ~Shard() {
    if (cases_ <= share_.number)
      WARN("shard " << share_.number << " has none of the " << cases_ << " cases");
  }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Called once for each case of a test: whether this shard has it.
  bool HasNext() { return cases_++ % share_.of == share_.number; }

 private:
  Share share_;
  int cases_ = 0;
};

}  // namespace dsv4::test
