// SPDX-License-Identifier: Apache-2.0
// Drafts that a device chooses by itself, all passes of a draft in one launch, are those that the
// host chooses one after another. Of backends whose memory is not the host's.
#include "tests/lib/session/recorded_run.h"

namespace dsv4::test {
namespace {

constexpr int kTokens = 8;

struct DraftedRun {
  std::vector<int32_t> tokens;
  std::vector<std::vector<int32_t>> drafts;  // that wait for each step

  bool operator==(const DraftedRun& other) const {
    return tokens == other.tokens && drafts == other.drafts;
  }
};

// Two sessions in the same steps that ask for different numbers of drafts; `by_host`: with a
// bias of 0, which only the host adds.
std::vector<DraftedRun> Run(const std::shared_ptr<Engine>& engine, int32_t drafts,
                            SamplingParams sampling, bool by_host) {
  std::vector<std::unique_ptr<Session>> owned;
  std::vector<Session*> sessions;
  if (by_host) sampling.logit_bias = {{5, 0.0f}};
  for (const char* question : {"What is the capital of France?", "What is 3 + 4?"}) {
    sampling.draft_tokens = drafts - static_cast<int32_t>(owned.size());
    owned.push_back(OpenColdSession(engine, sampling));
    sessions.push_back(owned.back().get());
    REQUIRE_OK(sessions.back()->Sync(ChatPrompt(*engine, question)));
  }
  std::vector<DraftedRun> runs(sessions.size());
  std::vector<absl::StatusOr<StepResult>> results(sessions.size(), StepResult{});
  for (size_t made = 0; made < kTokens;) {
    REQUIRE_OK(Session::StepAll(sessions, absl::MakeSpan(results)));
    for (size_t i = 0; i < sessions.size(); ++i) {
      REQUIRE_OK(results[i]);
      if (results[i]->token < 0) continue;
      runs[i].tokens.push_back(results[i]->token);
      const absl::Span<const int32_t> waiting = sessions[i]->timeline().speculation().drafts();
      runs[i].drafts.push_back({waiting.begin(), waiting.end()});
    }
    made = runs[0].tokens.size();
  }
  return runs;
}

void CompareByHost(const std::string& folder, int32_t drafts) {
  const auto engine = OpenBundled({.context_tokens = 256,
                                   .cache_tokens = 1024,
                                   .max_sessions = 2,
                                   .prefill_chunk_tokens = 64,
                                   .max_draft_tokens = drafts},
                                  folder);
  REQUIRE(engine->model().chains());
  for (const float temperature : {0.0f, 1.5f}) {
    CAPTURE(temperature);
    const SamplingParams sampling{
        .temperature = temperature, .seed = 9, .banned_tokens = engine->eos_tokens()};
    const std::vector<DraftedRun> at_once = Run(engine, drafts, sampling, false);
    size_t most = 0;
    for (const std::vector<int32_t>& waiting : at_once[0].drafts) {
      most = std::max(most, waiting.size());
    }
    REQUIRE(most == static_cast<size_t>(drafts));
    REQUIRE((Run(engine, drafts, sampling, true) == at_once));
  }
}

// Of several devices, only the first has the tokens that are chosen, which further passes need.
TEST_CASE("an MTP block's drafts chosen on the device are those chosen by the host", "[one_gpu]") {
  CompareByHost(kBundledModel, 3);
}

TEST_CASE("a DSpark drafter's drafts chosen on the device are those chosen by the host") {
  CompareByHost(kBundledDspark, 5);
}

}  // namespace
}  // namespace dsv4::test
