// SPDX-License-Identifier: Apache-2.0
// draft_logits of the CUDA backend against sums in double.
#include <cmath>

#include "tests/kernels/cuda_launch.h"
#include "tests/kernels/draft_logits_values.h"

namespace dsv4::test {
namespace {

TEST_CASE("sm12x draft_logits adds what the token before says, and tells how sure it is") {
  const DraftLogitsValues v;
  const DeviceCopy<uint16_t> embed(v.embed), weight(v.weight), confidence(v.confidence),
      states(v.states);
  const DeviceCopy<int32_t> row_of(v.row_of), tokens(v.tokens), chosen(v.chosen);
  const DeviceCopy<float> logits(v.logits), confidences(v.confidences);
  DraftLogitsParams p = v.Params();
  p.row_of = row_of.data();
  p.tokens = tokens.data();
  p.chosen = chosen.data();
  p.embed = embed.data();
  p.weight = weight.data();
  p.confidence = confidence.data();
  p.states = states.data();
  p.logits = logits.data();
  p.confidences = confidences.data();
  LaunchCuda(p);
  REQUIRE(logits.Intact());
  REQUIRE(confidences.Intact());
  const DraftLogitsValues::Expected want = v.Want();
  RequireNear(logits.Download(), want.logits);
  RequireNear(confidences.Download(), want.confidences);
  // One row at a time, the same bits.
  const DeviceCopy<float> again(v.logits);
  p.logits = again.data();
  p.rows = 1;
  for (int i = 0; i < 4; ++i) {
    LaunchCuda(p);
    ++p.row_of;
    ++p.tokens;
  }
  REQUIRE(again.Download() == logits.Download());
}

}  // namespace
}  // namespace dsv4::test
