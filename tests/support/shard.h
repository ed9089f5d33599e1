// SPDX-License-Identifier: Apache-2.0
// A part of a test of dozens of cases: with DSV4_TEST_SHARD = K/N in the environment only the cases
// K, K + N, K + 2 N, .. run. For the emulated GPU, on which a case takes minutes.
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
    INFO("DSV4_TEST_SHARD is " << text << "; K/N with 0 <= K < N expected");
    char rest;
    REQUIRE(std::sscanf(text, "%d/%d%c", &number_, &of_, &rest) == 2);
    REQUIRE((0 <= number_ && number_ < of_));
  }
  ~Shard() {
    if (cases_ <= number_) WARN("shard " << number_ << " has none of the " << cases_ << " cases");
  }
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Called once for each case of a test: whether this shard has it.
  bool HasNext() { return cases_++ % of_ == number_; }

 private:
  int number_ = 0, of_ = 1;
  int cases_ = 0;
};

}  // namespace dsv4::test
