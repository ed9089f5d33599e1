// SPDX-License-Identifier: Apache-2.0
#include "lib/step/ngram_drafter.h"

#include <algorithm>
#include <array>

#include "lib/step/drafter.h"

namespace dsv4 {
namespace {

class NgramDrafter final : public Drafter {
 public:
  absl::Status Draft(absl::Span<StepRequest* const> requests, DraftPace* /*pace*/,
                     bool* /*device_idle*/) override {
    for (StepRequest* request : requests) {
      if (!request->step) continue;
      TimelineStep& step = *request->step;
      std::array<int32_t, kMaxDraftTokens> drafts;
      const auto wanted = static_cast<size_t>(step.drafts_wanted());
      const size_t count =
          DraftByNgram(request->timeline->all_tokens(), absl::MakeSpan(drafts).subspan(0, wanted));
      step.Propose(absl::MakeConstSpan(drafts).subspan(0, count));
    }
    return absl::OkStatus();
  }
};

}  // namespace

size_t DraftByNgram(absl::Span<const int32_t> timeline, absl::Span<int32_t> drafts) {
  const auto size = static_cast<int64_t>(timeline.size());
  const int32_t* const tokens = timeline.data();
  int64_t longest = kShortestNgram - 1, follows = 0;
  for (int64_t at = size - 2; at + 1 >= kShortestNgram && !drafts.empty(); --at) {
    if (tokens[at] != tokens[size - 1]) continue;
    const int64_t most = std::min(kLongestNgram, at + 1);
    int64_t length = 1;
    while (length < most && tokens[at - length] == tokens[size - 1 - length]) ++length;
    if (length <= longest) continue;
    longest = length;
    follows = at + 1;
    if (length == kLongestNgram) break;
  }
  if (follows == 0) return 0;
  // A text that repeats itself is drafted on from the drafts.
  for (size_t i = 0; i < drafts.size(); ++i) {
    const int64_t from = follows + static_cast<int64_t>(i);
    drafts[i] = from < size ? tokens[from] : drafts[static_cast<size_t>(from - size)];
  }
  return drafts.size();
}

std::unique_ptr<Drafter> MakeNgramDrafter() { return std::make_unique<NgramDrafter>(); }

}  // namespace dsv4
