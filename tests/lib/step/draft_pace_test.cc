// SPDX-License-Identifier: Apache-2.0
// Numbers below are worked out by hand: steps of 10 + 2 rows milliseconds.
#include "lib/step/draft_pace.h"

#include <vector>

#include "lib/step/speculation.h"
#include "tests/support/catch.h"

namespace dsv4 {
namespace {

DraftPace Measured(double pass) {
  DraftPace pace;
  for (int i = 0; i < 20; ++i) pace.AddStep(1 + i % 4, (10 + 2 * (1 + i % 4)) * 1e-3);
  if (pass > 0) pace.AddPass(pass);
  return pace;
}

int Paying(const DraftPace& pace, int32_t sessions, const std::vector<double>& right) {
  DraftPace::Drafts drafts = pace.Begin(sessions);
  int count = 0;
  for (const double chance : right) {
    if (!drafts.Pays(chance)) break;
    ++count;
  }
  return count;
}

TEST_CASE("until enough steps of several sizes are measured, every draft pays") {
  DraftPace pace;
  for (int i = 0; i < 40; ++i) pace.AddStep(3, 1e-3);
  CHECK(Paying(pace, 1, {0.1, 0.1, 0}) == 3);
  CHECK(pace.PassPays(1, {}));
  DraftPace few;
  for (int i = 0; i < 7; ++i) few.AddStep(1 + i, (1 + i) * 1e-3);
  CHECK(Paying(few, 1, {0}) == 1);
}

TEST_CASE("a draft pays while it gives more tokens for its time than those before it") {
  // One session: 12 ms for a token, 2 ms for a draft: at first from 1/6 on.
  const DraftPace pace = Measured(0);
  CHECK(Paying(pace, 1, {0.17}) == 1);
  CHECK(Paying(pace, 1, {0.16}) == 0);
  // Then 2 tokens in 14 ms: from 2/7 on.
  CHECK(Paying(pace, 1, {1, 0.29}) == 2);
  CHECK(Paying(pace, 1, {1, 0.28}) == 1);
  // A draft is reached only where those before it are right.
  CHECK(Paying(pace, 1, {0.5, 0.4}) == 1);
  // Five sessions share the step's 10 ms: 4 ms for a token, so that a draft pays from 1/2 on.
  CHECK(Paying(pace, 5, {0.51}) == 1);
  CHECK(Paying(pace, 5, {0.49}) == 0);
  // A pass of 4 ms is paid before its drafts: 16 ms for a token.
  CHECK(Paying(Measured(4e-3), 1, {0.13}) == 1);
  CHECK(Paying(Measured(4e-3), 1, {0.12}) == 0);
}

TEST_CASE("a pass pays where its drafts give more than steps without it") {
  // Two right drafts: 3 tokens in 20 ms, against one in 12.
  CHECK(Measured(4e-3).PassPays(1, {1, 1}));
  // Of 32 ms: 3 in 48.
  CHECK_FALSE(Measured(32e-3).PassPays(1, {1, 1}));
  CHECK(Measured(32e-3).PassPays(1, {1, 1, 1, 1, 1}));  // 6 in 54
  CHECK_FALSE(Measured(4e-3).PassPays(1, {0.1, 0.1}));
}

TEST_CASE("a step that was held up changes little") {
  DraftPace pace = Measured(4e-3);
  pace.AddStep(1, 10);
  pace.AddPass(10);
  CHECK(Paying(pace, 1, {0.5, 0.1}) == 1);
  CHECK(pace.PassPays(1, {1, 1}));
}

TEST_CASE("a pass that did not pay is measured again") {
  DraftPace pace = Measured(1);  // two right drafts pay up to 20 ms
  int refused = 0;
  while (refused < 1000 && !pace.PassPays(1, {1, 1})) ++refused;
  // 1 s times 0.984375^249 is 19.8 ms.
  CHECK(refused == 249);
  pace.AddPass(4e-3);
  CHECK(pace.PassPays(1, {1}));  // 2 tokens in 18 ms, against one in 12
}

TEST_CASE(
    "how often drafts were right is kept for each place, and forgotten where there are none") {
  Speculation speculation(3);
  CHECK(speculation.right()[0] == 1);
  for (int step = 0; step < 40; ++step) {
    for (const int32_t draft : {7, 8, 9}) speculation.Add(draft);
    speculation.Record(1);  // the second is always wrong, the third never comes up
  }
  CHECK(speculation.right()[0] == 1);
  CHECK(speculation.right()[1] < 0.01);
  CHECK(speculation.right()[2] == 1);
  for (int step = 0; step < 500; ++step) speculation.Record(0);
  CHECK(speculation.right()[1] > 0.9);
}

}  // namespace
}  // namespace dsv4
