// SPDX-License-Identifier: Apache-2.0
// draft_logits of the reference and of the cpu backend against sums in double.
#include <cmath>

#include "kernels/cpu/manifest.h"
#include "kernels/reference/manifest.h"
#include "tests/kernels/draft_logits_values.h"
#include "tests/kernels/kernel_launch.h"

namespace dsv4::test {
namespace {

TEST_CASE("draft_logits adds what the token before says, and tells how sure it is") {
  for (const bool cpu : {false, true}) {
    for (const int threads : {1, 3}) {
      CAPTURE(cpu, threads);
      DraftLogitsValues v;
      std::vector<float> wide;
      for (const uint16_t bits : v.states) wide.push_back(Bf16ToFloat(bits));
      DraftLogitsParams p = v.Params();
      p.row_of = v.row_of.data();
      p.tokens = v.tokens.data();
      p.chosen = v.chosen.data();
      p.embed = v.embed.data();
      p.weight = v.weight.data();
      p.confidence = v.confidence.data();
      p.states = cpu ? static_cast<const void*>(v.states.data()) : wide.data();
      const DraftLogitsValues::Expected want = v.Want();
      p.logits = v.logits.data();
      p.confidences = v.confidences.data();
      LaunchKernel(cpu ? CpuManifest() : ReferenceManifest(), p,
                   {.numerics = Numerics::kPublished, .threads = threads});
      RequireNear(v.logits, want.logits);
      RequireNear(v.confidences, want.confidences);
    }
  }
}

}  // namespace
}  // namespace dsv4::test
