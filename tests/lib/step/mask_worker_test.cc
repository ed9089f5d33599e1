// SPDX-License-Identifier: Apache-2.0
#include "lib/step/mask_worker.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/status_test_macros.h"

namespace dsv4 {
namespace {

using grammar::Grammar;
using grammar::Matcher;
using grammar::Vocabulary;

// Single bytes, and long tokens that lead to as many states.
std::shared_ptr<const Vocabulary> Tokens() {
  std::vector<std::string> bytes = {""};
  for (int byte = 0; byte < 256; ++byte) bytes.push_back(std::string(1, static_cast<char>(byte)));
  for (int token = 0; token < 4096; ++token) {
    std::string letters;
    for (int i = 0; i < 12; ++i) letters += (token >> i & 1) != 0 ? 'a' : 'b';
    bytes.push_back(std::move(letters));
  }
  return std::make_shared<Vocabulary>(std::move(bytes));
}

std::shared_ptr<MaskJob> JobOf(const char* pattern, int slice = 0) {
  Matcher matcher;
  matcher.Reset(Grammar::OfRegex(pattern, Tokens()).value(), Matcher::Start::kContent);
  return std::make_shared<MaskJob>(std::move(matcher), slice);
}

constexpr char kHard[] = "(?=.*a.{40})(?=.*b.{41}).*";

TEST_CASE("a job that needs little comes before those that need much") {
  MaskWorker masks;
  std::vector<std::shared_ptr<MaskJob>> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(JobOf(kHard));
    masks.Start(slow.back());
  }
  const std::shared_ptr<MaskJob> quick = JobOf("[ab]");
  masks.Start(quick);
  bool overtaken = false;
  masks.Await(
      [&](MaskWorker::Done done) {
        for (const auto& job : slow) overtaken = overtaken || done(*job);
        return overtaken || done(*quick);
      },
      std::chrono::minutes(10));
  CHECK_FALSE(overtaken);
  REQUIRE(masks.IsDone(*quick));
  REQUIRE_OK(quick->status());
  CHECK(quick->slice() == 0);
  REQUIRE(quick->following().mask != nullptr);
  CHECK((*quick->following().mask)[(1 + 'a') / 32] >> ((1 + 'a') % 32) == 3);
  CHECK_FALSE(quick->following().may_end);
}

TEST_CASE("a job that needs too much fails, whoever runs it") {
  MaskWorker masks;
  const std::shared_ptr<MaskJob> here = JobOf(kHard), there = JobOf(kHard);
  masks.Start(there);
  masks.Finish(here);
  masks.Finish(there);
  for (const auto& job : {here, there}) {
    REQUIRE(masks.IsDone(*job));
    REQUIRE(IsUnsupported(job->status()));
    CHECK(job->slice() == MaskJob::kSlices - 1);
  }
}

}  // namespace
}  // namespace dsv4
