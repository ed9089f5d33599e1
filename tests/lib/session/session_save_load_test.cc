// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "lib/base/error.h"
#include "lib/io/mapped_file.h"
#include "lib/step/session_image.h"
#include "tests/lib/session/recorded_run.h"
#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::Continue;
using test::OpenBundled;
using test::OpenColdSession;
using test::RecordedRun;
using test::TempFolder;

constexpr auto kCorrupt = absl::StatusCode::kDataLoss;
const absl::StatusCode kMismatch = VersionMismatch().code();

std::vector<uint8_t> Saved(const Session& session) {
  std::vector<uint8_t> image(static_cast<size_t>(session.SaveBytes()));
  REQUIRE_OK(session.SaveTo(absl::MakeSpan(image)));
  return image;
}

TEST_CASE("a saved session continues as if it had never left, bit for bit") {
  const std::shared_ptr<Engine> engine = OpenBundled({.context_tokens = 1024});
  const std::shared_ptr<Engine> other = OpenBundled({.context_tokens = 2048, .max_sessions = 2});
  for (const int64_t length :
       {1, 3, 4, 5, 127, 128, 129, 130, 255, 256, 257, 258, 383, 384, 385, 511, 512, 513}) {
    INFO(length << " tokens");
    const std::vector<int32_t> prompt = AnyTokens(length, 7);
    const std::unique_ptr<Session> straight = OpenColdSession(engine);
    REQUIRE_OK(straight->Sync(prompt));
    REQUIRE_OK(straight->Prefill(0, nullptr));
    const std::vector<uint8_t> image = Saved(*straight);
    const std::unique_ptr<Session> loaded = OpenColdSession(other);
    REQUIRE_OK(loaded->Sync(AnyTokens(300, 8)));  // something to be replaced
    REQUIRE_OK(loaded->Prefill(200, nullptr));
    REQUIRE_OK(loaded->Load(image, "image"));
    REQUIRE(loaded->tokens() == straight->tokens());
    REQUIRE(Saved(*loaded) == image);
    RecordedRun expected, run;
    REQUIRE(Continue(*straight, 6, &expected));
    REQUIRE(Continue(*loaded, 6, &run));
    REQUIRE(run == expected);
  }
}

TEST_CASE("a session is saved in the middle of a prompt and of an answer with drafts, too") {
  const std::shared_ptr<Engine> engine =
      OpenBundled({.context_tokens = 1024, .max_draft_tokens = 3});
  const SamplingParams drafting{.draft_tokens = 3};
  const std::vector<int32_t> prompt = test::ChatPrompt(*engine, "What is the capital of France?");
  for (const int steps : {1, 2, 3, 4, 5}) {
    const std::unique_ptr<Session> straight = OpenColdSession(engine, drafting);
    REQUIRE_OK(straight->Sync(prompt));
    for (int i = 0; i < steps; ++i) REQUIRE_OK(straight->Step());
    const std::unique_ptr<Session> loaded = OpenColdSession(engine, drafting);
    REQUIRE_OK(loaded->Load(Saved(*straight), "image"));
    REQUIRE(loaded->tokens() == straight->tokens());
    // The logits of tokens that lay ahead were seen before the session was saved.
    RecordedRun expected, run;
    REQUIRE(Continue(*straight, 20, &expected));
    REQUIRE(Continue(*loaded, 20, &run));
    REQUIRE(run.tokens == expected.tokens);
    REQUIRE(run.finish == Finish::kStop);
    REQUIRE_FALSE(run.logits.empty());
    for (const auto& [position, logits] : run.logits) {
      const auto known = expected.logits.find(position);
      if (known != expected.logits.end()) REQUIRE(logits == known->second);
    }
  }
  const std::vector<int32_t> long_prompt = AnyTokens(400, 3);
  const std::unique_ptr<Session> straight = OpenColdSession(engine);
  REQUIRE_OK(straight->Sync(long_prompt));
  REQUIRE_OK(straight->Prefill(300, nullptr));
  const std::unique_ptr<Session> loaded = OpenColdSession(engine);
  REQUIRE_OK(loaded->Load(Saved(*straight), "image"));
  RecordedRun expected, run;
  REQUIRE(Continue(*straight, 4, &expected));
  REQUIRE(Continue(*loaded, 4, &run));
  REQUIRE(run == expected);
}

TEST_CASE("what a loaded session computes is not shared with others") {
  const std::shared_ptr<Engine> engine = OpenBundled({.context_tokens = 1024});
  const std::vector<int32_t> prompt = AnyTokens(600, 5);
  const std::unique_ptr<Session> source = OpenColdSession(engine);
  REQUIRE_OK(source->Sync(prompt));
  REQUIRE_OK(source->Prefill(0, nullptr));
  const absl::StatusOr<std::unique_ptr<Session>> loaded = Session::Open(engine, {}, 99);
  REQUIRE_OK(loaded);
  REQUIRE_OK((*loaded)->Load(Saved(*source), "image"));
  REQUIRE_OK((*loaded)->Step());
  const absl::StatusOr<std::unique_ptr<Session>> reader = Session::Open(engine, {}, 99);
  REQUIRE_OK(reader);
  const auto synced = (*reader)->Sync(prompt);
  REQUIRE_OK(synced);
  REQUIRE(synced->reused_tokens == 0);
}

TEST_CASE("every flipped byte of a session file is refused, and nothing changes") {
  const std::shared_ptr<Engine> engine = OpenBundled({.context_tokens = 512});
  const TempFolder folder;
  const std::string path = folder.path() + "/session";
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_OK(session->Sync(AnyTokens(6, 2)));
  REQUIRE_OK(session->Prefill(0, nullptr));
  REQUIRE_OK(session->SaveFile(path));
  const absl::StatusOr<std::string> file = ReadFile(path, 1 << 20);
  REQUIRE_OK(file);
  REQUIRE(file->size() <= 256 << 10);

  const std::unique_ptr<Session> victim = OpenColdSession(engine);
  REQUIRE_OK(victim->Sync(AnyTokens(9, 4)));
  REQUIRE_OK(victim->Prefill(0, nullptr));
  const std::vector<uint8_t> before = Saved(*victim);
  std::vector<uint8_t> damaged(file->begin(), file->end());
  for (uint8_t& byte : damaged) {
    byte ^= 0x10;
    const absl::Status status = victim->Load(damaged, path);
    byte ^= 0x10;
    const bool typed = status.code() == kCorrupt || status.code() == kMismatch;
    if (!typed || status.message().find(path) == std::string::npos) FAIL(status.ToString());
  }
  REQUIRE(Saved(*victim) == before);
  REQUIRE_OK(victim->LoadFile(path));
  REQUIRE(victim->tokens() == session->tokens());
}

TEST_CASE("a session is refused by an engine that it does not fit") {
  const std::shared_ptr<Engine> engine = OpenBundled({.context_tokens = 512});
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_OK(session->Sync(AnyTokens(300, 2)));
  REQUIRE_OK(session->Prefill(0, nullptr));
  const std::vector<uint8_t> image = Saved(*session);
  const auto refusal = [&](const EngineOptions& options) {
    return OpenColdSession(OpenBundled(options))->Load(image, "image");
  };
  REQUIRE_FAILS(refusal({.context_tokens = 299}), absl::StatusCode::kOutOfRange, "image: ");
  REQUIRE_FAILS(refusal({.context_tokens = 512, .max_draft_tokens = 1}), kMismatch,
                "max_draft_tokens");
  for (const RowFormat format : {RowFormat::kBf16, RowFormat::kFp8PerTensor}) {
    REQUIRE_FAILS(refusal({.cache_format = format, .context_tokens = 512}), kMismatch,
                  "image: was saved with rows in cache format packed, which is not the engine's");
  }
  REQUIRE_FAILS(OpenColdSession(engine)->LoadFile("/nonexistent/session"),
                absl::StatusCode::kNotFound, "/nonexistent/session");
}

// The tokens of an intact session file; -1 for anything else.
int64_t TokensInFile(const std::string& path) {
  const absl::StatusOr<std::string> file = ReadFile(path, 1 << 22);
  REQUIRE_OK(file);
  SessionIdentity identity;
  if (file->size() < 24 + sizeof identity) return -1;
  std::copy_n(file->data() + 24, sizeof identity, reinterpret_cast<char*>(&identity));
  const absl::StatusOr<ParsedSession> parsed = ParseSessionImage(
      {reinterpret_cast<const uint8_t*>(file->data()), file->size()}, identity, path);
  return parsed.ok() ? parsed->counts.tokens : -1;
}

TEST_CASE("killed while saving, a session file is the old one or the new one", "[forks]") {
  const TempFolder folder;
  const std::string path = folder.path() + "/session";
  int64_t old_tokens = 0;
  int replaced = 0;
  for (int round = 0; round <= 50; ++round) {
    const int64_t new_tokens = 5 + round;
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    // No engine is open here: the process that forks has one thread.
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const auto engine = Engine::Open(test::kBundledModel, {.context_tokens = 512, .threads = 1});
      if (!engine.ok()) _exit(1);
      auto session = Session::Open(*engine, {});
      if (!session.ok() || !(*session)->Sync(AnyTokens(new_tokens, 1)).ok() ||
          !(*session)->Prefill(0, nullptr).ok()) {
        _exit(1);
      }
      (void)!write(ready[1], "x", 1);
      const bool saved = (*session)->SaveFile(path).ok();
      _exit(saved ? 0 : 1);
    }
    close(ready[1]);
    char byte;
    const ssize_t got = read(ready[0], &byte, 1);
    close(ready[0]);
    REQUIRE(got == 1);
    // The first one may finish: there must be an old file.
    if (round > 0) {
      usleep(static_cast<useconds_t>(round * 20));
      kill(child, SIGKILL);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    const int64_t tokens = TokensInFile(path);
    INFO("round " << round);
    REQUIRE((tokens == new_tokens || (round > 0 && tokens == old_tokens)));
    if (tokens == new_tokens) ++replaced;
    old_tokens = tokens;
  }
  INFO(replaced << " of 51 were replaced");
  REQUIRE(replaced < 51);
  // The last one is whole: it loads.
  const std::unique_ptr<Session> session = OpenColdSession(OpenBundled({.context_tokens = 512}));
  REQUIRE_OK(session->LoadFile(path));
  REQUIRE(session->tokens() == AnyTokens(old_tokens, 1));
}

TEST_CASE("a plan has the bytes of the engine that is opened") {
  for (const EngineOptions& options :
       {EngineOptions{}, EngineOptions{.context_tokens = 3000, .max_draft_tokens = 7},
        EngineOptions{.backend = Backend::kReference,
        .numerics = Numerics::kExact,
        .context_tokens = 100,
        .cache_tokens = 4000,
        .max_sessions = 9,
        .prefill_chunk_tokens = 33}}) {
    const absl::StatusOr<EnginePlan> plan = test::PlanBundled(options);
    REQUIRE_OK(plan);
    const std::shared_ptr<Engine> engine = OpenBundled(options);
    REQUIRE(plan->info().weight_bytes == engine->info().weight_bytes);
    REQUIRE(plan->info().cache_bytes == engine->info().cache_bytes);
    REQUIRE(plan->info().workspace_bytes == engine->info().workspace_bytes);
    REQUIRE(plan->info().cache_format == engine->info().cache_format);
    REQUIRE(plan->info().max_sessions == engine->info().max_sessions);
    REQUIRE(plan->cache().bytes.window == engine->cache().bytes().window);
    REQUIRE(plan->cache().bytes.compressed == engine->cache().bytes().compressed);
    REQUIRE(plan->cache().bytes.index_keys == engine->cache().bytes().index_keys);
    REQUIRE(plan->cache().bytes.states == engine->cache().bytes().states);
  }
  REQUIRE_FAILS(Engine::Plan(test::kBundledModel, {.numerics = Numerics::kExact}),
                absl::StatusCode::kUnimplemented, "reference");
  REQUIRE_FAILS(Engine::Plan("/nonexistent", {}), absl::StatusCode::kNotFound, "config.json");
}

}  // namespace
}  // namespace dsv4
