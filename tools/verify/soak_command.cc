// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/soak_command.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "tools/verify/command_line.h"
#include "tools/verify/soak.h"

namespace dsv4 {
namespace {

using Clock = std::chrono::steady_clock;

constexpr OptionSpec kOptions[] = {{"--hours"},   {"--tokens"},  {"--sessions"},
                                   {"--prompts"}, {"--seed"},    {"--backend"},
                                   {"--threads"}, {"--devices"}, {"--cache-format"}};
constexpr int32_t kMostSessions = 64, kMostPrompts = 10000;

struct SoakArguments {
  std::string folder;
  double hours = 0;  // 0: no limit
  SoakOptions soak;
  EngineOptions engine;
};

absl::StatusOr<SoakArguments> ReadArguments(absl::Span<char* const> arguments) {
  DSV4_ASSIGN_OR_RETURN(const Arguments parsed, ParseArguments(arguments, kOptions, 1));
  SoakArguments read;
  read.folder = parsed.files[0];
  const std::string hours = parsed.Get("--hours", "0"), tokens = parsed.Get("--tokens", "0"),
                    sessions = parsed.Get("--sessions", "16"),
                    prompts = parsed.Get("--prompts", "24"), seed = parsed.Get("--seed", "1");
  if (!absl::SimpleAtod(hours, &read.hours) || !(read.hours >= 0 && read.hours <= 10000)) {
    return InvalidArgument("option --hours = ", hours, " is not in 0..10000");
  }
  if (!absl::SimpleAtoi(tokens, &read.soak.tokens) || read.soak.tokens < 0) {
    return InvalidArgument("option --tokens = ", tokens, " is not a number of tokens");
  }
  if (read.hours == 0 && read.soak.tokens == 0) {
    return InvalidArgument("--hours or --tokens is needed");
  }
  if (!absl::SimpleAtoi(sessions, &read.soak.sessions) || read.soak.sessions < 1 ||
      read.soak.sessions > kMostSessions) {
    return InvalidArgument("option --sessions = ", sessions, " is not in 1..", kMostSessions);
  }
  if (!absl::SimpleAtoi(prompts, &read.soak.prompts) || read.soak.prompts < 1 ||
      read.soak.prompts > kMostPrompts) {
    return InvalidArgument("option --prompts = ", prompts, " is not in 1..", kMostPrompts);
  }
  if (!absl::SimpleAtoi(seed, &read.soak.seed)) {
    return InvalidArgument("option --seed = ", seed, " is not a number");
  }
  read.engine = Soak::EngineOptionsFor(read.soak);
  DSV4_ASSIGN_OR_RETURN(read.engine.backend, ParseBackend(parsed.Get("--backend", "cpu")));
  DSV4_ASSIGN_OR_RETURN(read.engine.threads, ParseThreads(parsed.Get("--threads", "0")));
  DSV4_ASSIGN_OR_RETURN(read.engine.devices, ParseDevices(parsed.Get("--devices", "")));
  DSV4_ASSIGN_OR_RETURN(read.engine.cache_format,
                        ParseCacheFormat(parsed.Get("--cache-format", "auto")));
  return read;
}

void Print(const Soak& soak, Clock::duration time) {
  const SoakCounts counts = soak.counts();
  const auto number = [](int64_t value) { return static_cast<long long>(value); };
  std::printf(
      "%.0f s: %lld tokens of %lld prompts compared, %lld sessions differ, %lld calls failed; "
      "%lld prompt tokens from the prefix cache, %lld forks, %lld rewinds, %lld loads, %lld syncs, "
      "%lld cancelled, %lld refused by a full cache\n",
      std::chrono::duration<double>(time).count(), number(counts.tokens), number(counts.prompts),
      number(counts.different), number(counts.failed), number(counts.reused_tokens),
      number(counts.forks), number(counts.rewinds), number(counts.loads), number(counts.syncs),
      number(counts.cancelled), number(counts.refused));
  std::fflush(stdout);
}

}  // namespace

int RunSoakCommand(absl::Span<char* const> arguments) {
  absl::StatusOr<SoakArguments> read = ReadArguments(arguments);
  if (!read.ok()) return ReportUsage(read.status());
  CatchSignals();
  const absl::StatusOr<std::shared_ptr<Engine>> engine = Engine::Open(read->folder, read->engine);
  if (!engine.ok()) return ReportError(engine.status());
  const Clock::time_point start = Clock::now();
  const double seconds = read->hours * 3600;
  read->soak.stop = [start, seconds] {
    return InterruptedBySignal() ||
           (seconds > 0 && std::chrono::duration<double>(Clock::now() - start).count() >= seconds);
  };
  Soak soak(*engine, read->soak);
  const absl::Status prepared = soak.Prepare();
  if (!prepared.ok()) return ReportError(prepared);
  soak.Run();
  Print(soak, Clock::now() - start);
  for (const std::string& finding : soak.findings()) std::printf("FAILED: %s\n", finding.c_str());
  const SoakCounts counts = soak.counts();
  if (counts.different > 0 || counts.failed > 0) return kExitFailed;
  return InterruptedBySignal() ? kExitInterrupted : kExitPassed;
}

}  // namespace dsv4
