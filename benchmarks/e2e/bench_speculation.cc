// SPDX-License-Identifier: Apache-2.0
// Decoding with drafts against plain decoding, in one run: greedy answers to the questions of the
// model folder's gates.json, each answered by an engine without a drafter and by one with its own,
// in turn. Only the time of decode steps counts. --drafts measures these numbers of drafts alone,
// beside the first of them (by default all, from 0 on). --instructions makes do without
// AMX (avx512bf16), AVX512-BF16 (avx512) or AVX-512 (avx2).
// usage: bench_speculation [--threads N] [--repetitions N]
//        [--drafts N[,N...]] [--instructions avx512bf16|avx512|avx2] MODEL_DIR
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "benchmarks/instructions.h"
#include "benchmarks/must.h"
#include "lib/engine/engine.h"
#include "lib/io/json.h"
#include "lib/io/mapped_file.h"
#include "lib/session/session.h"
#include "lib/text/chat_encoder.h"

namespace dsv4 {
namespace {

constexpr int64_t kMaxGatesBytes = int64_t{16} << 20;
constexpr int64_t kAnswerTokens = 200;

// The cases that are one question of a user.
std::vector<std::vector<int32_t>> Prompts(const Engine& engine, const std::string& folder) {
  const std::string path = folder + "/gates.json";
  const JsonValue gates =
      Must(ParseJson(Must(ReadFile(path, kMaxGatesBytes)), path, kMaxGatesBytes));
  std::vector<std::vector<int32_t>> prompts;
  for (const JsonValue& gate : *gates.Find("cases")->AsArray()) {
    const std::vector<JsonValue>& messages = *gate.Find("messages")->AsArray();
    if (messages.size() != 1 || *messages[0].Find("role")->AsString() != "user") continue;
    const ChatMessage message{.role = "user",
                              .content = *messages[0].Find("content")->AsString(),
                              .reasoning_content = ""};
    const ThinkingMode mode =
        *gate.Find("thinking")->AsBool() ? ThinkingMode::kThinking : ThinkingMode::kChat;
    prompts.push_back(Must(RenderChat(*Must(engine.tokenizer()), {&message, 1}, mode)));
  }
  return prompts;
}

struct Totals {
  double seconds = 0;
  int64_t tokens = 0;
  SpeculationStats speculation;
  void operator+=(const Totals& other) {
    seconds += other.seconds;
    tokens += other.tokens;
    speculation.drafted += other.speculation.drafted;
    speculation.accepted += other.speculation.accepted;
    for (size_t i = 0; i < speculation.steps_by_accepted.size(); ++i) {
      speculation.steps_by_accepted[i] += other.speculation.steps_by_accepted[i];
    }
  }
  double rate() const { return static_cast<double>(tokens) / seconds; }
};

Totals Answer(Session& session, const std::vector<int32_t>& prompt, int32_t drafts) {
  Must(session.SetSampling({.max_tokens = kAnswerTokens, .draft_tokens = drafts}));
  Must(session.Sync(prompt));
  while (Must(session.Step()).finish == Finish::kNone) {
  }
  const SessionStats stats = session.stats();
  return {stats.decode_seconds, stats.generated_tokens, stats.speculation};
}

// "0,5"; false for anything but numbers of drafts.
bool ParseDrafts(const char* list, std::vector<int32_t>* drafts) {
  for (const char* at = list;; ++at) {
    char* end = nullptr;
    const int64_t number = std::strtol(at, &end, 10);
    if (end == at || number < 0 || number > kMaxDraftTokens) return false;
    drafts->push_back(static_cast<int32_t>(number));
    at = end;
    if (*at == '\0') return true;
    if (*at != ',') return false;
  }
}

// `drafts`: the numbers to measure; none: all.
void Run(const std::string& folder, int32_t threads, int repetitions, std::vector<int32_t> drafts) {
  const EngineOptions options{.context_tokens = 2048, .max_sessions = 1, .threads = threads};
  EngineOptions with_drafts = options;
  with_drafts.max_draft_tokens = kMaxDraftTokens;
  const std::shared_ptr<Engine> plain = Must(Engine::Open(folder, options));
  const std::shared_ptr<Engine> drafting = Must(Engine::Open(folder, with_drafts));
  const std::vector<std::vector<int32_t>> prompts = Prompts(*plain, folder);
  const std::unique_ptr<Session> plain_session = Must(Session::Open(plain, {}));
  const std::unique_ptr<Session> draft_session = Must(Session::Open(drafting, {}));
  if (drafts.empty()) {
    for (int32_t n = 0; n <= drafting->info().max_draft_tokens; ++n) drafts.push_back(n);
  }
  // Of each answer the fastest repetition counts: a machine's clock and neighbours vary.
  std::vector<std::vector<Totals>> fastest(drafts.size(), std::vector<Totals>(prompts.size()));
  for (size_t prompt = 0; prompt < prompts.size(); ++prompt) {
    // The prompt is computed once: its next answers begin with what the sessions still hold.
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      for (size_t run = 0; run < drafts.size(); ++run) {
        const Totals answer = Answer(drafts[run] == 0 ? *plain_session : *draft_session,
                                     prompts[prompt], drafts[run]);
        Totals& held = fastest[run][prompt];
        if (repetition == 0 || answer.rate() > held.rate()) held = answer;
      }
    }
  }
  std::vector<Totals> best(drafts.size());
  for (size_t run = 0; run < drafts.size(); ++run) {
    for (const Totals& answer : fastest[run]) best[run] += answer;
  }
  std::printf("%zu answers, %lld tokens, %d threads\n", prompts.size(),
              static_cast<long long>(best[0].tokens), plain->info().threads);
  std::printf("%7s %10s %7s %11s %13s %18s\n", "drafts", "tokens/s", "times", "acceptance",
              "first draft", "acceptance length");
  for (size_t run = 0; run < drafts.size(); ++run) {
    const double times = best[run].rate() / best[0].rate();
    std::printf("%7d %10.0f %7.2f", drafts[run], best[run].rate(), times);
    const SpeculationStats& stats = best[run].speculation;
    if (stats.drafted > 0) {
      std::printf(" %10.1f%% %12.1f%% %18.2f",
                  100 * static_cast<double>(stats.accepted) / static_cast<double>(stats.drafted),
                  100 * stats.first_acceptance(), stats.acceptance_length());
    }
    std::printf("\n");
  }
}

}  // namespace
}  // namespace dsv4

int main(int argc, char** argv) {
  std::string folder;
  int threads = 0, repetitions = 5;
  std::vector<int32_t> drafts;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--threads") == 0 && i + 1 < argc) {
      threads = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--repetitions") == 0 && i + 1 < argc) {
      repetitions = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--instructions") == 0 && i + 1 < argc &&
               dsv4::LimitInstructions(argv[i + 1])) {
      ++i;
    } else if (std::strcmp(argv[i], "--drafts") == 0 && i + 1 < argc && drafts.empty() &&
               dsv4::ParseDrafts(argv[i + 1], &drafts)) {
      ++i;
    } else if (argv[i][0] != '-' && folder.empty()) {
      folder = argv[i];
    } else {
      folder.clear();
      break;
    }
  }
  if (folder.empty()) {
    std::fprintf(stderr,
                 "usage: bench_speculation [--threads N] [--repetitions N] "
                 "[--drafts N[,N...]] [--instructions avx512bf16|avx512|avx2] MODEL_DIR\n");
    return 2;
  }
  dsv4::Run(folder, threads, repetitions, drafts);
  return 0;
}
