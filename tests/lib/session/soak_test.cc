// SPDX-License-Identifier: Apache-2.0
// Random operations on a few sessions from several threads, in a cache that overflows often. Every
// session that lives must hold what a straight run of its prompt gives, and nothing may be left.
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/base/mutex.h"
#include "tests/lib/session/recorded_run.h"
#include "tests/support/bundled_model.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::OpenBundled;

constexpr int kThreads = 7;
constexpr size_t kSlots = 10;  // more than max_sessions: opening fails, too

EngineOptions SmallCache() {
  return {.context_tokens = 640,
          .cache_tokens = 1280,
          .max_sessions = 7,
          .prefill_chunk_tokens = 96,
          .threads = 2,
          .max_draft_tokens = 3};
}

// Prompts that share prefixes of several lengths.
std::vector<int32_t> SomePrompt(std::mt19937& random) {
  std::vector<int32_t> prompt = AnyTokens(random() % 3 == 0 ? 300 : 530, 1 + random() % 2);
  prompt.resize(1 + random() % prompt.size());
  const std::vector<int32_t> tail =
      AnyTokens(static_cast<int64_t>(random() % 20), 10 + random() % 3);
  prompt.insert(prompt.end(), tail.begin(), tail.end());
  return prompt;
}

// Greedy sessions with and without drafts, and sampled ones whose text the seed fixes.
SamplingParams SomeSampling(std::mt19937& random) {
  switch (random() % 4) {
    case 0:
      return {.draft_tokens = 1 + static_cast<int32_t>(random() % 3)};
    case 1:
      return {.temperature = 1, .top_p = 0.9f, .seed = 1 + random() % 2};
    default:
      return {};
  }
}

struct Slot {
  Mutex mutex;  // the session belongs to one thread at a time
  std::unique_ptr<Session> session ABSL_GUARDED_BY(mutex);
  SamplingParams sampling ABSL_GUARDED_BY(mutex);
  // For SetStopped, which needs no ownership but a session that lives.
  Mutex life ABSL_ACQUIRED_AFTER(mutex);
  Session* living ABSL_GUARDED_BY(life) = nullptr;  // `session`
};

class Soak {
 public:
  explicit Soak(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  // The threads share `operations` on sessions. Work ends them, not time: a loaded machine does the
  // same.
  void Run(int operations) {
    operations_ = operations;
    std::vector<std::thread> threads;
    for (uint32_t i = 1; i <= kThreads; ++i) threads.emplace_back([this, i] { Work(i); });
    for (std::thread& thread : threads) thread.join();
  }

  // Of the sessions that live: prompt, output, and how it was chosen.
  struct Outcome {
    std::vector<int32_t> prompt, output;
    SamplingParams sampling;
  };
  std::vector<Outcome> StepAndClose() {
    std::vector<Outcome> outcomes;
    for (Slot& slot : slots_) {
      const MutexLock lock(&slot.mutex);
      if (slot.session == nullptr) continue;
      slot.session->SetStopped(false);
      // The session continues, whatever happened to it. Blocks that one session lacks are free for
      // the next.
      for (int i = 0; i < 3; ++i) {
        const absl::StatusOr<StepResult> step = slot.session->Step();
        REQUIRE((step.ok() || Tolerated(step.status())));
      }
      const absl::Span<const int32_t> tokens = slot.session->tokens();
      const auto prompt = static_cast<size_t>(slot.session->stats().prompt_tokens);
      outcomes.push_back({{tokens.begin(), tokens.begin() + prompt},
                          {tokens.begin() + prompt, tokens.end()},
                          slot.sampling});
      Put(slot, nullptr);
    }
    return outcomes;
  }

  int unexpected() const { return unexpected_; }
  int refused() const { return refused_; }
  int cancelled() const { return cancelled_; }

 private:
  // What a full cache, a cancel or an empty session may answer.
  static bool Tolerated(const absl::Status& status) {
    return IsOutOfBlocks(status) || absl::IsCancelled(status) || IsContextFull(status) ||
           absl::IsInvalidArgument(status);
  }

  void Count(const absl::Status& status) {
    if (status.ok()) return;
    if (IsOutOfBlocks(status)) ++refused_;
    if (absl::IsCancelled(status)) ++cancelled_;
    if (!Tolerated(status)) ++unexpected_;
  }

  // In threads: no assertion of Catch2 here or below. A thread holds two slots at most, so that one
  // of them is always free.
  void Work(uint32_t seed) {
    std::mt19937 random(seed);
    while (operations_.load() > 0) {
      if (random() % 4 == 0) Cancel(slots_[random() % kSlots]);
      Slot& slot = slots_[random() % kSlots];
      if (!slot.mutex.TryLock()) continue;
      if (operations_.fetch_sub(1) > 0) Operate(slot, random);
      slot.mutex.Unlock();
    }
  }

  // Another thread is likely in a call on this session: calls take nearly all the time.
  static void Cancel(Slot& slot) {
    const MutexLock alive(&slot.life);
    if (slot.living != nullptr) slot.living->SetStopped(true);
  }

  static void Put(Slot& slot, std::unique_ptr<Session> session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
    {
      const MutexLock alive(&slot.life);
      slot.living = session.get();
    }
    slot.session = std::move(session);
  }

  void Replace(Slot& slot, absl::StatusOr<std::unique_ptr<Session>> session)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
    Count(session.status());
    if (session.ok()) Put(slot, *std::move(session));
  }

  void Operate(Slot& slot, std::mt19937& random) ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
    if (slot.session == nullptr) {
      slot.sampling = SomeSampling(random);
      Replace(slot, Session::Open(engine_, slot.sampling, random() % 2));
      if (slot.session != nullptr) Count(slot.session->Sync(SomePrompt(random)).status());
      return;
    }
    Session& session = *slot.session;
    session.SetStopped(false);
    const int64_t tokens = static_cast<int64_t>(session.tokens().size());
    switch (random() % 16) {
      case 0:
        Count(session.Sync(SomePrompt(random)).status());
        break;
      case 1: {  // continues after its tokens
        std::vector<int32_t> longer(session.tokens().begin(), session.tokens().end());
        const std::vector<int32_t> more = AnyTokens(static_cast<int64_t>(random() % 40) + 1, 5);
        longer.insert(longer.end(), more.begin(), more.end());
        Count(session.Sync(longer).status());
        break;
      }
      case 2:
        Count(session.Rewind(static_cast<int64_t>(random() % (tokens + 1))).status());
        break;
      case 3:
        Fork(slot, random);
        break;
      case 4:
        Put(slot, nullptr);
        break;
      case 5:
        SaveAndLoad(slot, random);
        break;
      case 6:
        Count(session.Prefill(static_cast<int64_t>(random() % 200), nullptr).status());
        break;
      default:
        for (uint32_t i = random() % 5; i > 0; --i) Count(session.Step().status());
    }
  }

  // Locks a second slot without waiting: two threads may ask for each other's.
  void Fork(Slot& slot, std::mt19937& random) ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
    Slot& other = slots_[random() % kSlots];
    if (&other == &slot || !other.mutex.TryLock()) return;
    if (other.session == nullptr) {
      other.sampling = slot.sampling;
      Replace(other, slot.session->Fork());
    }
    other.mutex.Unlock();
  }

  void SaveAndLoad(Slot& slot, std::mt19937& random) ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
    std::vector<uint8_t> image(static_cast<size_t>(slot.session->SaveBytes()));
    if (!slot.session->SaveTo(absl::MakeSpan(image)).ok()) {
      ++unexpected_;
      return;
    }
    Slot& other = slots_[random() % kSlots];
    if (&other == &slot || !other.mutex.TryLock()) return;
    if (other.session != nullptr) Load(other, slot.sampling, image);
    other.mutex.Unlock();
  }

  void Load(Slot& other, const SamplingParams& sampling, const std::vector<uint8_t>& image)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(other.mutex) {
    Count(other.session->SetSampling(sampling));
    other.sampling = sampling;
    const absl::Status loaded = other.session->Load(image, "image");
    Count(loaded);
    // A session that keeps its old text was not sampled as it is from now on.
    if (!loaded.ok()) Count(other.session->Rewind(other.session->stats().prompt_tokens).status());
  }

  std::shared_ptr<Engine> engine_;
  std::array<Slot, kSlots> slots_;
  std::atomic<int> operations_{0};
  std::atomic<int> unexpected_{0}, refused_{0}, cancelled_{0};
};

void RunSoak(int operations) {
  const std::shared_ptr<Engine> engine = OpenBundled(SmallCache());
  std::vector<Soak::Outcome> outcomes;
  {
    Soak soak(engine);
    soak.Run(operations);
    outcomes = soak.StepAndClose();
    WARN(operations << " operations: " << soak.refused() << " refused by a full cache, "
                    << soak.cancelled() << " cancelled, " << outcomes.size() << " sessions left");
    REQUIRE(soak.unexpected() == 0);
    REQUIRE(soak.refused() > 0);
    REQUIRE(soak.cancelled() > 0);
  }
  const KvUse use = engine->cache().use();
  REQUIRE(use.sequences == 0);
  REQUIRE(use.windows.held() == 0);
  REQUIRE(use.compressed.held() == 0);
  // The cache's own empty state.
  REQUIRE(use.states.held() == 1);

  size_t compared = 0;
  const std::shared_ptr<Engine> fresh = OpenBundled({.context_tokens = 640, .max_sessions = 1});
  for (const Soak::Outcome& outcome : outcomes) {
    if (outcome.output.empty()) continue;
    SamplingParams sampling = outcome.sampling;
    sampling.draft_tokens = 0;  // greedy then: drafts change nothing
    const std::unique_ptr<Session> session = test::OpenColdSession(fresh, sampling);
    REQUIRE_OK(session->Sync(outcome.prompt));
    std::vector<int32_t> straight;
    while (straight.size() < outcome.output.size()) {
      const absl::StatusOr<StepResult> step = session->Step();
      REQUIRE_OK(step);
      straight.push_back(step->token);
    }
    REQUIRE(straight == outcome.output);
    compared += straight.size();
  }
  REQUIRE(compared > 0);
}

TEST_CASE("random operations from several threads leave sessions right and blocks free") {
  RunSoak(100);
}

TEST_CASE("many random operations from several threads", "[.long]") { RunSoak(700); }

}  // namespace
}  // namespace dsv4
