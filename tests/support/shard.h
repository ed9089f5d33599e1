// SPDX-License-Identifier: Apache-2.0
// Tests of dozens of cases, in shares: with DSV4_TEST_SHARD = K/N in the environment they take the
// cases K, K + N, K + 2 N, .. alone. For tools under which a step takes a thousand times as long.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "tests/support/catch.h"

namespace dsv4::test {

class Shard {
 public:
  Shard() {
    const char* const text = std::getenv("DSV4_TEST_SHARD");
    if (text == nullptr) return;
    INFO("DSV4_TEST_SHARD is " << text);
    char rest;
    REQUIRE(std::sscanf(text, "%d/%d%c", &first_, &step_, &rest) == 2);
    REQUIRE(first_ >= 0);
    REQUIRE(first_ < step_);
  }
  ~Shard() {
    if (cases_ <= first_) WARN("shard " << first_ << " has none of the " << cases_ << " cases");
  }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Called once for each case of a test: whether this shard has it.
  bool HasNext() { return cases_++ % step_ == first_; }

 private:
  int first_ = 0, step_ = 1;
  int cases_ = 0;
};

}  // namespace dsv4::test
