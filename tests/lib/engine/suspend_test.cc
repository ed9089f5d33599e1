// SPDX-License-Identifier: Apache-2.0
// An engine that gives its memory back and takes it again: sessions continue with the same bits,
// and a failure on the way loses nothing.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lib/base/error.h"
#include "lib/engine/metrics.h"
#include "lib/io/mapped_file.h"
#include "tests/lib/session/recorded_run.h"
#include "tests/support/bundled_model.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/loud_experts.h"

namespace dsv4 {
namespace {

using test::AnyTokens;
using test::Continue;
using test::LoudModel;
using test::OpenBundled;
using test::OpenColdSession;
using test::OpenSession;
using test::RecordedRun;
using test::TempFolder;

constexpr int64_t kMostMaps = int64_t{1} << 20;  // bytes of /proc/self/maps

bool MapsWeights() {
  const absl::StatusOr<std::string> maps = ReadFile("/proc/self/maps", kMostMaps);
  REQUIRE_OK(maps);
  return maps->find(".safetensors") != std::string::npos;
}

// While `engine` is suspended: what needs its memory is refused, and `session` is as before.
void ExpectRefused(const std::shared_ptr<Engine>& engine, Session& session) {
  const std::vector<int32_t> tokens(session.tokens().begin(), session.tokens().end());
  REQUIRE(engine->suspended());
  REQUIRE(MetricsOf(*engine).suspended);
  REQUIRE(IsSuspended(session.Step().status()));
  REQUIRE(IsSuspended(session.Sync(AnyTokens(5, 1)).status()));
  REQUIRE(IsSuspended(session.Prefill(0, nullptr).status()));
  REQUIRE(IsSuspended(session.Rewind(1).status()));
  REQUIRE(IsSuspended(session.Fork().status()));
  std::vector<uint8_t> image(static_cast<size_t>(session.SaveBytes()));
  REQUIRE(IsSuspended(session.SaveTo(absl::MakeSpan(image))));
  REQUIRE(IsSuspended(session.Load(image, "image")));
  Session* const sessions[] = {&session};
  absl::StatusOr<StepResult> results[1];
  REQUIRE(IsSuspended(Session::StepAll(sessions, absl::MakeSpan(results))));
  REQUIRE(session.tokens() == tokens);
  REQUIRE(engine->fingerprint().size() == 32);
}

// Sessions in all that they may be in when an engine is suspended: in the middle of an answer with
// drafts, a fork of that, in the middle of a prompt, closed with a prefix left in the cache.
struct Sessions {
  explicit Sessions(std::shared_ptr<Engine> opened) : engine(std::move(opened)) {
    const SamplingParams drafting{.draft_tokens = 3};
    answer = OpenColdSession(engine, drafting);
    REQUIRE_OK(answer->Sync(test::ChatPrompt(*engine, "What is the capital of France?")));
    for (int i = 0; i < 3; ++i) REQUIRE_OK(answer->Step());
    absl::StatusOr<std::unique_ptr<Session>> forked = answer->Fork();
    REQUIRE_OK(forked);
    fork = *std::move(forked);
    REQUIRE_OK(fork->Step());
    prompt = OpenColdSession(engine, {.temperature = 1, .seed = 9});
    REQUIRE_OK(prompt->Sync(AnyTokens(400, 3)));
    REQUIRE_OK(prompt->Prefill(300, nullptr));
    const std::unique_ptr<Session> closed = OpenSession(engine);
    REQUIRE_OK(closed->Sync(AnyTokens(300, 5)));
    REQUIRE_OK(closed->Step());
  }

  std::vector<RecordedRun> RunToEnd() {
    std::vector<RecordedRun> runs(4);
    REQUIRE(Continue(*answer, 20, &runs[0]));
    REQUIRE(Continue(*fork, 20, &runs[1]));
    REQUIRE(Continue(*prompt, 4, &runs[2]));
    const std::unique_ptr<Session> reader = OpenSession(engine);
    const absl::StatusOr<SyncResult> synced = reader->Sync(AnyTokens(300, 5));
    REQUIRE_OK(synced);
    REQUIRE(synced->cached_tokens == 256);
    REQUIRE(Continue(*reader, 3, &runs[3]));
    return runs;
  }

  std::shared_ptr<Engine> engine;
  std::unique_ptr<Session> answer, fork, prompt;
};

TEST_CASE("sessions of an engine that was suspended continue with the same bits") {
  const EngineOptions options{.context_tokens = 1024, .max_draft_tokens = 3};
  const std::vector<RecordedRun> expected = Sessions(OpenBundled(options, LoudModel())).RunToEnd();
  const TempFolder folder;
  for (const std::string& kept : {std::string(), folder.path()}) {
    INFO((kept.empty() ? "in memory" : "in a file"));
    const std::shared_ptr<Engine> engine = OpenBundled(options, LoudModel());
    Sessions sessions(engine);
    std::unique_ptr<Session> leaves = OpenColdSession(engine);
    const std::optional<int64_t> free_before = engine->device().FreeBytes();
    REQUIRE_OK(engine->Suspend(kept));
    REQUIRE_OK(engine->Suspend(kept));  // nothing to do
    ExpectRefused(engine, *sessions.answer);
    if (free_before) {
      constexpr int64_t kOfCuda = int64_t{2} << 20;  // exchanges through host memory; the driver's
      REQUIRE(*engine->device().FreeBytes() >=
              *free_before + engine->info().fullest().total() - kOfCuda);
    } else {
      REQUIRE(!MapsWeights());
    }
    REQUIRE(std::filesystem::is_empty(folder.path()) == kept.empty());
    leaves.reset();
    REQUIRE_OK(engine->Resume({}));
    REQUIRE_OK(engine->Resume({}));  // nothing to do
    REQUIRE(std::filesystem::is_empty(folder.path()));
    REQUIRE(!engine->suspended());
    const std::vector<RecordedRun> runs = sessions.RunToEnd();
    for (size_t i = 0; i < runs.size(); ++i) {
      INFO("session " << i);
      RequireSame(runs[i], expected[i]);
    }
  }
}

TEST_CASE("a session that steps while its engine is suspended and resumed loses no token") {
  const std::shared_ptr<Engine> engine = OpenBundled({.context_tokens = 512}, LoudModel());
  const std::vector<int32_t> prompt = AnyTokens(20, 4);
  constexpr int kTokens = 40;
  const RecordedRun expected = test::RunAlone(engine, prompt, kTokens);
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_OK(session->Sync(prompt));
  std::atomic<bool> done{false};
  std::vector<int32_t> tokens;
  absl::Status failure;
  std::thread thread([&] {
    while (failure.ok() && tokens.size() < expected.tokens.size()) {
      const absl::StatusOr<StepResult> step = session->Step();
      if (step.ok()) {
        tokens.push_back(step->token);
      } else if (!IsSuspended(step.status())) {
        failure = step.status();
      }
    }
    done = true;
  });
  absl::Status suspended, resumed;
  int rounds = 0;
  while (!done && suspended.ok() && resumed.ok()) {
    suspended = engine->Suspend("");
    resumed = engine->Resume({});
    ++rounds;
  }
  thread.join();
  REQUIRE_OK(failure);
  REQUIRE_OK(suspended);
  REQUIRE_OK(resumed);
  REQUIRE(rounds > 0);
  REQUIRE(tokens == expected.tokens);
}

TEST_CASE("what fails while an engine is suspended or resumed loses nothing") {
  const TempFolder folder;
  for (const auto& file : std::filesystem::directory_iterator(test::kBundledModel)) {
    std::filesystem::copy(file.path(), folder.File(file.path().filename().string()));
  }
  const std::shared_ptr<Engine> engine = OpenBundled({.context_tokens = 512}, folder.path());
  const std::vector<int32_t> prompt = AnyTokens(20, 6);
  const RecordedRun expected = test::RunAlone(engine, prompt, 5);
  const std::unique_ptr<Session> session = OpenColdSession(engine);
  REQUIRE_OK(session->Sync(prompt));
  REQUIRE_OK(session->Prefill(11, nullptr));

  REQUIRE_FAILS(engine->Suspend(folder.File("none")), absl::StatusCode::kNotFound, "none");
  REQUIRE(!engine->suspended());
  absl::Status inside;
  REQUIRE_OK(session->Step());
  REQUIRE_OK(session->Rewind(20));

  REQUIRE_OK(engine->Suspend(""));
  REQUIRE(absl::IsCancelled(engine->Resume([](int64_t, int64_t) { return false; })));
  REQUIRE(engine->suspended());
  inside = absl::OkStatus();
  REQUIRE(absl::IsCancelled(engine->Resume([&](int64_t, int64_t) {
    inside = engine->Resume({});
    return false;
  })));
  REQUIRE(IsBusy(inside));

  // Other weights, and none.
  std::string path;
  for (const auto& file : std::filesystem::directory_iterator(folder.path())) {
    if (file.path().extension() == ".safetensors") path = file.path().string();
  }
  const auto last = static_cast<std::streamoff>(std::filesystem::file_size(path)) - 1;
  std::fstream weights(path, std::ios::binary | std::ios::in | std::ios::out);
  weights.seekg(last);
  const int byte = weights.get();
  const auto write_last = [&](int value) {
    weights.seekp(last);
    weights.put(static_cast<char>(value));
    weights.flush();
  };
  write_last(byte ^ 1);
  REQUIRE_FAILS(engine->Resume({}), VersionMismatch().code(), folder.path());
  write_last(byte);
  weights.close();
  std::filesystem::rename(path, path + ".away");
  REQUIRE(!engine->Resume({}).ok());
  REQUIRE(IsSuspended(session->Step().status()));
  std::filesystem::rename(path + ".away", path);

  REQUIRE_OK(engine->Resume({}));
  RecordedRun run;
  REQUIRE(Continue(*session, 5, &run));
  REQUIRE(run.tokens == expected.tokens);
}

}  // namespace
}  // namespace dsv4
