// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/soak.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"

namespace dsv4 {
namespace {

constexpr int64_t kPromptTokens = 700;  // the longest prompt
constexpr size_t kFindings = 10;
constexpr uint64_t kColdSalt = uint64_t{1} << 40;

// What a cancel or a full cache may answer.
bool Explained(const absl::Status& status) {
  return absl::IsCancelled(status) || IsOutOfBlocks(status);
}

}  // namespace

EngineOptions Soak::EngineOptionsFor(const SoakOptions& options) {
  EngineOptions engine;
  engine.context_tokens = kPromptTokens + options.output + 64;
  engine.cache_tokens = std::max<int64_t>(engine.context_tokens, options.sessions * 400);
  engine.max_sessions = options.sessions + 2;  // forks and loads, too
  engine.max_draft_tokens = 5;
  return engine;
}

Soak::Soak(std::shared_ptr<Engine> engine, SoakOptions options)
    : engine_(std::move(engine)), options_(std::move(options)) {}

absl::Status Soak::Prepare() {
  std::mt19937_64 random(options_.seed);
  const int32_t tokens = engine_->token_limit();
  const auto token = [&] {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(tokens - tokens / 8)) + tokens / 8;
  };
  // Two texts whose beginnings the prompts share, whole blocks of the prefix cache among them.
  std::array<std::vector<int32_t>, 2> bases;
  for (std::vector<int32_t>& base : bases) {
    for (int64_t i = 0; i < kPromptTokens - 40; ++i) base.push_back(token());
  }
  for (int prompt = 0; prompt < options_.prompts; ++prompt) {
    Straight straight;
    const std::vector<int32_t>& base = bases[random() % bases.size()];
    straight.prompt.assign(base.begin(),
                           base.begin() + static_cast<int64_t>(random() % base.size()));
    for (uint64_t i = 1 + random() % 40; i > 0; --i) straight.prompt.push_back(token());
    DSV4_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session,
                          Session::Open(engine_, {}, kColdSalt + static_cast<uint64_t>(prompt)));
    DSV4_RETURN_IF_ERROR(session->Sync(straight.prompt).status());
    while (straight.output.size() < static_cast<size_t>(options_.output)) {
      DSV4_ASSIGN_OR_RETURN(const StepResult step, session->Step());
      straight.output.push_back(step.token);
    }
    straight_.push_back(std::move(straight));
    if (options_.stop && options_.stop()) break;
  }
  return absl::OkStatus();
}

bool Soak::Ended() const {
  return (options_.tokens > 0 && tokens_ >= options_.tokens) || (options_.stop && options_.stop());
}

void Soak::Run() {
  std::mt19937_64 random(options_.seed + 1);
  while (!Ended()) {
    const auto count = 1 + random() % static_cast<uint64_t>(options_.sessions);
    std::vector<std::unique_ptr<Slot>> slots;
    std::vector<std::thread> threads;
    std::atomic<uint64_t> working{count};
    for (uint64_t i = 0; i < count; ++i) {
      slots.push_back(std::make_unique<Slot>());
      threads.emplace_back([this, slot = slots.back().get(), seed = random(), &working] {
        Work(slot, seed);
        --working;
      });
    }
    // A step is cancelled once: on a slow machine none would ever end.
    std::vector<int64_t> cancelled_at(slots.size(), -1);
    while (working > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(3));
      const size_t chosen = random() % slots.size();
      Slot& slot = *slots[chosen];
      const int64_t steps = slot.steps;
      const MutexLock alive(&slot.life);
      if (slot.living == nullptr || steps == cancelled_at[chosen] || random() % 8 != 0) continue;
      slot.living->SetStopped(true);
      cancelled_at[chosen] = steps;
    }
    for (std::thread& thread : threads) thread.join();
  }
}

void Soak::Work(Slot* slot, uint64_t seed) {
  std::mt19937_64 random(seed);
  const Straight* straight = nullptr;
  uint64_t salt = 0;
  for (int text = 0; text < 4 && !Ended(); ++text) {
    // Each second text begins with the prompt before it, whose rows the cache is the last to lose.
    if (text % 2 == 0) {
      straight = &straight_[random() % straight_.size()];
      salt = random() % 2;
    }
    const absl::Status status = OneText(slot, *straight, salt, &random);
    if (IsOutOfBlocks(status)) {
      ++refused_;
    } else if (!status.ok()) {
      ++failed_;
      Find(absl::StrCat("a call failed: ", status.ToString()));
    }
    Replace(slot, nullptr);
  }
}

absl::Status Soak::OneText(Slot* slot, const Straight& straight, uint64_t salt,
                           std::mt19937_64* random) {
  SamplingParams sampling;
  sampling.draft_tokens = static_cast<int32_t>(
      (*random)() % static_cast<uint64_t>(engine_->info().max_draft_tokens + 1));
  DSV4_ASSIGN_OR_RETURN(std::unique_ptr<Session> opened, Session::Open(engine_, sampling, salt));
  Replace(slot, std::move(opened));
  DSV4_ASSIGN_OR_RETURN(const SyncResult sync, slot->session->Sync(straight.prompt));
  ++prompts_;
  reused_tokens_ += sync.cached_tokens;
  const size_t end = straight.prompt.size() + straight.output.size();
  while (slot->session->tokens().size() < end && !Ended()) {
    if ((*random)() % 8 == 0) DSV4_RETURN_IF_ERROR(Change(slot, straight, random));
    if (slot->session->tokens().size() >= end) break;
    const absl::StatusOr<StepResult> step = slot->session->Step();
    if (absl::IsCancelled(step.status())) {
      ++cancelled_;
      slot->session->SetStopped(false);
      continue;
    }
    DSV4_RETURN_IF_ERROR(step.status());
    ++slot->steps;
    ++tokens_;
    if (!Compare(*slot->session, straight)) return absl::OkStatus();
  }
  return absl::OkStatus();
}

// Something that must not change which tokens come.
absl::Status Soak::Change(Slot* slot, const Straight& straight, std::mt19937_64* random) {
  Session& session = *slot->session;
  const auto prompt = static_cast<int64_t>(straight.prompt.size());
  const auto tokens = static_cast<int64_t>(session.tokens().size());
  absl::Status status;
  switch ((*random)() % 4) {
    case 0: {
      ++forks_;
      absl::StatusOr<std::unique_ptr<Session>> fork = session.Fork();
      if (fork.ok()) Replace(slot, *std::move(fork));
      status = fork.status();
      break;
    }
    case 1: {
      ++rewinds_;
      const int64_t back = static_cast<int64_t>((*random)() % 20);
      status = session.Rewind(std::max(prompt, tokens - back)).status();
      break;
    }
    case 2: {
      ++loads_;
      std::vector<uint8_t> image(static_cast<size_t>(session.SaveBytes()));
      DSV4_RETURN_IF_ERROR(session.SaveTo(absl::MakeSpan(image)));
      absl::StatusOr<std::unique_ptr<Session>> other =
          Session::Open(engine_, session.sampling(), (*random)() % 2);
      status = other.ok() ? (*other)->Load(image, "image") : other.status();
      if (status.ok()) Replace(slot, *std::move(other));
      break;
    }
    default: {
      ++syncs_;
      const std::vector<int32_t> again(session.tokens().begin(), session.tokens().end());
      status = session.Sync(again).status();
    }
  }
  // No room for a second session: the first one continues.
  return Explained(status) ? absl::OkStatus() : status;
}

void Soak::Replace(Slot* slot, std::unique_ptr<Session> session) {
  {
    const MutexLock alive(&slot->life);
    slot->living = session.get();
  }
  slot->session = std::move(session);
}

// The last token of the session.
bool Soak::Compare(const Session& session, const Straight& straight) {
  const size_t at = session.tokens().size() - 1 - straight.prompt.size();
  const int32_t token = session.tokens().back(), expected = straight.output[at];
  if (token == expected) return true;
  ++different_;
  Find(absl::StrCat("token ", at, " after a prompt of ", straight.prompt.size(), " is ", token,
                    ", and ", expected, " in the straight run; up to ",
                    session.sampling().draft_tokens, " drafts"));
  return false;
}

void Soak::Find(std::string finding) {
  const MutexLock lock(&findings_mutex_);
  if (findings_.size() < kFindings) findings_.push_back(std::move(finding));
}

std::vector<std::string> Soak::findings() const {
  const MutexLock lock(&findings_mutex_);
  return findings_;
}

SoakCounts Soak::counts() const {
  return {.tokens = tokens_,
          .different = different_,
          .failed = failed_,
          .forks = forks_,
          .rewinds = rewinds_,
          .loads = loads_,
          .syncs = syncs_,
          .cancelled = cancelled_,
          .refused = refused_,
          .prompts = prompts_,
          .reused_tokens = reused_tokens_};
}

}  // namespace dsv4
