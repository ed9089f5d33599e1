// SPDX-License-Identifier: Apache-2.0
// Long runs of many sessions, compared with undisturbed runs: greedy sessions with and without
// drafts, on prompts that share prefixes. They run together and are forked, rewound, saved, loaded,
// synced again and cancelled. Every token must equal that of a session that ran alone and
// undisturbed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/base/mutex.h"
#include "lib/engine/engine.h"
#include "lib/session/session.h"

namespace dsv4 {

struct SoakOptions {
  int64_t tokens = 0;                  // compare so many, and end; 0: until `stop`
  int32_t sessions = 16;               // the most at a time
  int32_t prompts = 24, output = 160;  // undisturbed runs, and tokens of each
  uint64_t seed = 1;
  std::function<bool()> stop{};  // asked between tokens, on any thread; may be empty
};

struct SoakCounts {
  int64_t tokens = 0;     // compared
  int64_t different = 0;  // sessions that differed from the undisturbed run
  int64_t failed = 0;     // calls that failed without a cause in the soak
  int64_t forks = 0, rewinds = 0, loads = 0, syncs = 0;
  int64_t cancelled = 0, refused = 0;  // refused: by a full cache
  int64_t prompts = 0;
  int64_t reused_tokens = 0;  // of prompts, from the prefix cache
};

class Soak {
 public:
  // The options of the soak's engine: room for all sessions, but not for all of their tokens.
  static EngineOptions EngineOptionsFor(const SoakOptions& options);

  Soak(std::shared_ptr<Engine> engine, SoakOptions options);

  // Makes the undisturbed runs: one session at a time, without drafts and prefix reuse.
  absl::Status Prepare();
  // Runs until the tokens are compared or `stop` says so: rounds of 1 to `sessions` threads.
  void Run();

  SoakCounts counts() const;
  // The first findings, at most ten, one line each.
  std::vector<std::string> findings() const;

 private:
  struct Straight {
    std::vector<int32_t> prompt, output;
  };
  // A session of a round.
  struct Slot {
    std::unique_ptr<Session> session;  // its thread's
    Mutex life;
    Session* living ABSL_GUARDED_BY(life) = nullptr;  // `session`, for Cancel on any thread
    std::atomic<int64_t> steps{0};                    // that ended
  };

  bool Ended() const;
  void Work(Slot* slot, uint64_t seed);
  absl::Status OneText(Slot* slot, const Straight& straight, uint64_t salt,
                       std::mt19937_64* random);
  absl::Status Change(Slot* slot, const Straight& straight, std::mt19937_64* random);
  void Replace(Slot* slot, std::unique_ptr<Session> session);
  bool Compare(const Session& session, const Straight& straight);
  void Find(std::string finding);

  const std::shared_ptr<Engine> engine_;
  const SoakOptions options_;
  std::vector<Straight> straight_;
  std::atomic<int64_t> tokens_{0}, different_{0}, failed_{0}, forks_{0}, rewinds_{0}, loads_{0},
      syncs_{0}, cancelled_{0}, refused_{0}, prompts_{0}, reused_tokens_{0};
  mutable Mutex findings_mutex_;
  std::vector<std::string> findings_ ABSL_GUARDED_BY(findings_mutex_);
};

}  // namespace dsv4
