// SPDX-License-Identifier: Apache-2.0
#include "tools/verify/soak_command.h"

#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>

#include "lib/base/error.h"
#include "lib/base/status_macros.h"
#include "tools/verify/command_line.h"
#include "tools/verify/found_model.h"
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
  constexpr auto kAny = std::numeric_limits<int64_t>::max();
  SoakOptions& soak = read.soak;
  DSV4_RETURN_IF_ERROR(parsed.Number<double>("--hours", 0, 10000, &read.hours));
  DSV4_RETURN_IF_ERROR(parsed.Number<int64_t>("--tokens", 0, kAny, &soak.tokens));
  DSV4_RETURN_IF_ERROR(parsed.Number<int32_t>("--sessions", 1, kMostSessions, &soak.sessions));
  DSV4_RETURN_IF_ERROR(parsed.Number<int32_t>("--prompts", 1, kMostPrompts, &soak.prompts));
  DSV4_RETURN_IF_ERROR(parsed.Number<uint64_t>("--seed", 0, ~uint64_t{0}, &soak.seed));
  if (read.hours == 0 && soak.tokens == 0) {
    return InvalidArgument("--hours or --tokens is needed");
  }
  read.engine = Soak::EngineOptionsFor(read.soak);
  DSV4_RETURN_IF_ERROR(ReadDevices(parsed, "cpu", &read.engine));
  DSV4_ASSIGN_OR_RETURN(read.engine.cache_format, ParseCacheFormat(parsed));
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
  const absl::StatusOr<std::string> model = FoundModel(read->folder);
  if (!model.ok()) return ReportError(model.status());
  const absl::StatusOr<std::shared_ptr<Engine>> engine = Engine::Open(*model, read->engine);
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
