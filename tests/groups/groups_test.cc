// SPDX-License-Identifier: Apache-2.0
// Engines of two processes with a GPU each, and of four. Tests with [.long] compute more than a few
// tokens, which takes emulated kernels a while.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "lib/base/error.h"
#include "lib/engine/group_options.h"
#include "tests/groups/member.h"
#include "tests/support/bundled_model.h"
#include "tests/support/residency.h"

extern char** environ;

namespace dsv4::test {
namespace {

std::string NewId(const EngineOptions& options = GroupOptions("", 0, kHaste)) {
  absl::StatusOr<std::string> id = CreateGroupId(options);
  REQUIRE_OK(id);
  return *std::move(id);
}

std::shared_ptr<Engine> Open(const EngineOptions& options) {
  absl::StatusOr<std::shared_ptr<Engine>> engine = Engine::Open(GroupModel(), options);
  REQUIRE_OK(engine);
  return *std::move(engine);
}

struct Text {
  std::vector<int32_t> tokens;
  std::vector<float> logits;  // after the last of them
  bool operator==(const Text&) const = default;
};

constexpr int kMostDrafts = 3;  // more than any session of these tests asks for

// The next `tokens` tokens of `session`.
Text Continued(Session* session, int tokens) {
  Text text;
  const auto prefill = [&] {
    REQUIRE_OK(session->Prefill(0, nullptr));
    return !session->logits().empty();
  };
  // While accepted drafts are still to be delivered there are no logits.
  for (int i = 0; i < tokens || !prefill(); ++i) {
    REQUIRE(i < tokens + kMostDrafts);
    const absl::StatusOr<StepResult> step = session->Step();
    REQUIRE_OK(step);
    text.tokens.push_back(step->token);
  }
  text.logits.assign(session->logits().begin(), session->logits().end());
  return text;
}

Text TextAfter(const std::shared_ptr<Engine>& engine, const std::vector<int32_t>& prompt,
               int tokens, const SamplingParams& sampling) {
  const auto session = OpenSession(engine, sampling);
  REQUIRE_OK(session->Sync(prompt));
  return Continued(session.get(), tokens);
}

SamplingParams Sampling(int32_t drafts = 0) {
  SamplingParams sampling;
  sampling.seed = 7;
  sampling.draft_tokens = drafts;
  return sampling;
}

// A step of a session of `engine`, and how long it took.
absl::Status FailedStep(const std::shared_ptr<Engine>& engine) {
  const auto session = OpenSession(engine, Sampling());
  REQUIRE_OK(session->Sync(std::vector<int32_t>{5, 6, 7}));
  return session->Step().status();
}

}  // namespace

Member::Member(const std::string& role, const std::string& id, int rank, std::chrono::seconds limit,
               int64_t context_tokens) {
  int pipe[2];
  REQUIRE(pipe2(pipe, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
  std::string arguments[] = {DSV4_GROUP_MEMBER,
                             role,
                             id,
                             std::to_string(rank),
                             std::to_string(limit.count()),
                             std::to_string(context_tokens)};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  REQUIRE(posix_spawn(&process_, argv[0], &actions, nullptr, argv.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe[1]);
  output_ = pipe[0];
}

Member::~Member() {
  close(output_);
  if (process_ < 0) return;
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

void Member::Signal(int signal) const { REQUIRE(kill(process_, signal) == 0); }

std::string Member::Line() {
  std::string line;
  for (char c; read(output_, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

std::string Member::End() {
  int status = 0;
  REQUIRE(waitpid(process_, &status, 0) == process_);
  process_ = -1;
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit " + std::to_string(WEXITSTATUS(status));
}

TEST_CASE("two processes give the tokens and logits of one, until the leader closes") {
  const std::vector<int32_t> prompt = AnyTokens(11, 5);
  const Text alone = TextAfter(Open(AloneOptions()), prompt, 2, Sampling());
  const std::string id = NewId();
  Member member("serve", id, 1, kPatience);
  auto engine = Open(GroupOptions(id, 0, kPatience));
  REQUIRE(engine->info().devices.size() == 2);
  REQUIRE(engine->info().devices[1].weights > 0);
  REQUIRE(TextAfter(engine, prompt, 2, Sampling()) == alone);
  REQUIRE(member.Line() == "ready");
  engine.reset();
  REQUIRE(member.Line() == "ok");
  REQUIRE(member.End() == "exit 0");
}

// Some experts on each device, half of the others on the host, and the rest on disk; prompts that
// stream.
EngineOptions TiersOptions(const std::string& id) {
  EngineOptions options = GroupOptions(id, 0, kPatience);
  options.prefill_chunk_tokens = 9;
  const auto plan = [&] {
    const absl::StatusOr<EnginePlan> plan = Engine::Plan(GroupModel(), options);
    REQUIRE_OK(plan);
    return plan->info();
  };
  const int64_t all = plan().fullest().weights;
  options.weight_budgets.least = true;
  const int64_t least = plan().fullest().weights;
  options.weight_budgets = {.device_bytes = (least + all) / 2};
  options.weight_budgets.host_bytes = plan().residency.host_bytes() / 2;
  return options;
}

TEST_CASE("processes have experts on the device, the host and on disk, with the bits of one") {
  setenv(kTestModel, LoudModel().c_str(), 1);
  // A chunk that streams experts: of rows before they decide next to nothing of those after.
  const std::vector<int32_t> prompt = AnyTokens(9, 5);
  const auto alone = OpenSession(Open(AloneOptions()), Sampling());
  REQUIRE_OK(alone->Sync(prompt));
  const Text after_prompt = Continued(alone.get(), 0);
  std::vector<Text> expected;
  for (int step = 0; step < 4; ++step) expected.push_back(Continued(alone.get(), 1));
  const TempFolder folder;
  const std::string failing = folder.File("failing");
  setenv(kFailingReads, failing.c_str(), 1);
  for (const bool again : {false, true}) {
    const std::string id = NewId(TiersOptions(""));
    Member member("shuffle", id, 1, kPatience);
    EngineOptions options = TiersOptions(id);
    options.expert_profile = folder.File("profile");
    options.weight_budgets.shuffle = 3;
    std::shared_ptr<Engine> engine = Open(options);
    const ResidencyPlan& plan = engine->info().residency;
    REQUIRE(plan.on_device > 0);
    REQUIRE(plan.on_host > 0);
    REQUIRE(plan.on_disk > 0);
    REQUIRE(plan.streams > 0);
    REQUIRE((plan.places != nullptr) == again);
    std::unique_ptr<Session> session = OpenSession(engine, Sampling(again ? 1 : 0));
    REQUIRE_OK(session->Sync(prompt));
    REQUIRE(Continued(session.get(), 0) == after_prompt);
    absl::Status failed;
    for (const Text& text : expected) {
      const absl::StatusOr<StepResult> step = session->Step();
      REQUIRE_OK(step);
      // What fails in the other process is this one's step, and can be repeated. Few experts are
      // read again then: all but the other one's would be in slots, if they stayed there.
      if (!again && failed.ok()) {
        std::ofstream(failing).put('x');
        failed = session->Prefill(0, nullptr).status();
        std::filesystem::remove(failing);
      }
      Text next = Continued(session.get(), 0);
      next.tokens = {step->token};
      REQUIRE(next == text);
    }
    if (!again) {
      REQUIRE(IsIoError(failed));
      REQUIRE_THAT(std::string(failed.message()), Catch::StartsWith("rank 1: " + LoudModel()) &&
                                                      Catch::Contains("Input/output error"));
    }
    const ExpertTraffic traffic = engine->expert_traffic();
    REQUIRE(traffic.moved > 0);
    REQUIRE(traffic.streamed_bytes > 0);
    REQUIRE(traffic.disk_reads > 0);
    REQUIRE(traffic.disk_bytes > traffic.disk_reads * plan.expert_bytes / 2);
    session.reset();
    engine.reset();  // writes the profile
    REQUIRE(member.Line() == "ready");
    REQUIRE(member.Line() == "ok");
  }
  unsetenv(kFailingReads);
  unsetenv(kTestModel);
}

TEST_CASE("forks, drafts and saved sessions of two processes are those of one", "[.long]") {
  const auto run = [](const std::shared_ptr<Engine>& engine, std::vector<uint8_t>* saved) {
    std::vector<Text> texts;
    texts.push_back(TextAfter(engine, AnyTokens(9, 2), 4, Sampling(1)));
    {
      const auto session = OpenSession(engine, Sampling());
      REQUIRE_OK(session->Sync(AnyTokens(70, 3)));
      texts.push_back(Continued(session.get(), 2));
      absl::StatusOr<std::unique_ptr<Session>> fork = session->Fork();
      REQUIRE_OK(fork);
      texts.push_back(Continued(fork->get(), 2));
      texts.push_back(Continued(session.get(), 2));
      saved->resize(static_cast<size_t>(session->SaveBytes()));
      REQUIRE_OK(session->SaveTo(absl::MakeSpan(*saved)));
      texts.push_back(Continued(session.get(), 1));
    }
    const auto loaded = OpenSession(engine, Sampling());
    REQUIRE_OK(loaded->Load(*saved, "image"));
    texts.push_back(Continued(loaded.get(), 1));
    return texts;
  };
  std::vector<uint8_t> alone, together;
  const std::vector<Text> expected = run(Open(AloneOptions()), &alone);
  const std::string id = NewId();
  Member member("serve", id, 1, kPatience);
  auto engine = Open(GroupOptions(id, 0, kPatience));
  REQUIRE(run(engine, &together) == expected);
  REQUIRE(together == alone);
}

TEST_CASE("processes with other options are told what differs before weights are read") {
  const std::string id = NewId();
  Member member("serve", id, 1, kHaste, 256);
  EngineOptions options = GroupOptions(id, 0, kHaste);
  bool read = false;
  options.progress = [&](int64_t, int64_t) { return read = true; };
  const absl::Status refused = Engine::Open(kBundledModel, options).status();
  const std::string difference =
      "the group's processes differ: rank 0 has context_tokens = 512; rank 1 has context_tokens = "
      "256";
  REQUIRE(refused.message() == difference);
  REQUIRE(!read);
  REQUIRE(member.Line() == "failed: " + difference);
  REQUIRE(member.End() == "exit 1");
}

TEST_CASE("a group's id carries the options that its processes have in common") {
  EngineOptions given = GroupOptions("", 0, kHaste);
  given.group.ranks = 4;
  given.context_tokens = 5000;
  given.cache_tokens = 6000;
  given.max_sessions = 7;
  given.prefill_chunk_tokens = 8;
  given.max_draft_tokens = 3;
  given.numerics = Numerics::kExact;
  given.cache_format = RowFormat::kBf16;
  given.drafter = DrafterKind::kNone;
  given.weight_budgets = {.device_bytes = int64_t{1} << 40, .host_bytes = 9};
  const absl::StatusOr<std::string> id = CreateGroupId(given);
  REQUIRE_OK(id);
  EngineOptions taken;
  taken.group.id = *id;
  taken.max_sessions = 2;
  taken.max_draft_tokens.reset();
  REQUIRE_OK(TakeGroupOptions(&taken));
  REQUIRE(taken.group.ranks == 4);
  REQUIRE(taken.context_tokens == 5000);
  REQUIRE(taken.cache_tokens == 6000);
  REQUIRE(taken.max_sessions == 2);  // its own
  REQUIRE(taken.prefill_chunk_tokens == 8);
  REQUIRE(taken.max_draft_tokens == 3);
  REQUIRE(taken.numerics == Numerics::kExact);
  REQUIRE(taken.cache_format == RowFormat::kBf16);
  REQUIRE(taken.drafter == DrafterKind::kNone);
  REQUIRE(taken.weight_budgets.device_bytes == int64_t{1} << 40);
  REQUIRE(taken.weight_budgets.host_bytes == 9);
}

TEST_CASE("an id of another build, or that is none, is refused") {
  EngineOptions options = GroupOptions(NewId(), 0, kHaste);
  options.group.build = "another one";
  REQUIRE(Engine::Open(kBundledModel, options).status().message() ==
          "the group's id was made by another build of the library, the build under test; this one "
          "is another one");
  options.group.id = "dsv4";
  REQUIRE(Engine::Open(kBundledModel, options).status().message() ==
          "option group_id = \"dsv4\" is not a group id");
}

TEST_CASE("places in a group that cannot be are refused by name") {
  EngineOptions options = GroupOptions("id", 0, kHaste);
  options.group.rank = 2;
  REQUIRE(Engine::Serve(kBundledModel, options, [](int64_t) { return true; }).message() ==
          "option group_rank = 2 is not in 0..1");
  options.group.rank = 1;
  REQUIRE(Engine::Open(kBundledModel, options).status().message() ==
          "option group_rank = 1: only rank 0 of a group opens the engine; the others serve it");
  options.expert_profile = "profile";
  REQUIRE(Engine::Serve(kBundledModel, options, [](int64_t) { return true; }).message() ==
          "option expert_profile = profile: only rank 0 of a group has this option");
  options = GroupOptions("id", 0, kHaste);
  options.backend = Backend::kCpu;
  REQUIRE(Engine::Open(kBundledModel, options).status().message() ==
          "option group_size = 2 on backend cpu; a group's processes use backend cuda");
  options = GroupOptions("id", 0, kHaste);
  options.group.ranks = 3;
  REQUIRE(absl::IsInvalidArgument(Engine::Open(kBundledModel, options).status()));
}

TEST_CASE("a follower that is killed makes the leader lose its device, and a new group opens") {
  const std::string id = NewId();
  Member member("serve", id, 1, kHaste);
  auto engine = Open(GroupOptions(id, 0, kHaste));
  REQUIRE(member.Line() == "ready");
  member.Signal(SIGKILL);
  REQUIRE(member.End() == "signal 9");
  REQUIRE(IsDeviceLost(FailedStep(engine)));
  engine.reset();
  const std::string again = NewId();
  Member other("serve", again, 1, kHaste);
  REQUIRE(Open(GroupOptions(again, 0, kHaste)) != nullptr);
}

// With DSV4_TEST_GPUS=4 and DSV4_TEST_MODEL, a model that four ranks can split.
TEST_CASE("one of four processes that is killed makes all others lose their devices", "[.four]") {
  const std::string id = NewId();
  std::vector<std::unique_ptr<Member>> members;
  for (int rank = 1; rank < 4; ++rank) {
    members.push_back(std::make_unique<Member>("serve", id, rank, kHaste));
  }
  absl::StatusOr<std::shared_ptr<Engine>> engine =
      Engine::Open(GroupModel(), GroupOptions(id, 0, kHaste));
  REQUIRE_OK(engine);
  for (const auto& member : members) REQUIRE(member->Line() == "ready");
  members[1]->Signal(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(IsDeviceLost(FailedStep(*engine)));
  REQUIRE(members[1]->End() == "signal 9");
  for (const int other : {0, 2}) {
    REQUIRE(absl::StartsWith(members[static_cast<size_t>(other)]->Line(), "device lost"));
    REQUIRE(members[static_cast<size_t>(other)]->End() == "exit 1");
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  WARN("all had lost their devices " << taken.count() << " s after the kill");
}

TEST_CASE("a follower that is killed while it loads weights makes the leader lose its device") {
  const std::string id = NewId();
  Member member("die", id, 1, kHaste);
  REQUIRE(IsDeviceLost(Engine::Open(kBundledModel, GroupOptions(id, 0, kHaste)).status()));
  REQUIRE(member.End() == "signal 9");
}

TEST_CASE("a follower that stops answering makes the leader lose its device") {
  const std::string id = NewId();
  Member member("serve", id, 1, kHaste);
  const auto engine = Open(GroupOptions(id, 0, kHaste));
  REQUIRE(member.Line() == "ready");
  member.Signal(SIGSTOP);
  // NCCL lets go of the communicator only when the engine's graphs are destroyed.
  setenv("DSV4_STAND_IN_NCCL_ABORT_MS", "4000", 1);
  const absl::Status status = FailedStep(engine);
  unsetenv("DSV4_STAND_IN_NCCL_ABORT_MS");
  REQUIRE(IsDeviceLost(status));
  REQUIRE(status.message() ==
          "rank 0 of the group: waited 2000 ms for another process of the group");
}

TEST_CASE("a leader that is killed, or stops answering, makes its follower lose its device") {
  const int signal = GENERATE(SIGKILL, SIGSTOP);
  const std::string id = NewId();
  Member leader("lead", id, 0, kHaste);
  bool signalled = false;
  const absl::Status served =
      Engine::Serve(kBundledModel, GroupOptions(id, 1, kHaste), [&](int64_t) {
        if (!signalled) leader.Signal(signal);
        signalled = true;
        return true;
      });
  REQUIRE(signalled);
  REQUIRE(IsDeviceLost(served));
}

TEST_CASE("a follower whose host stops it ends as cancelled, and its leader loses its device") {
  const std::string id = NewId();
  Member leader("lead", id, 0, kHaste);
  REQUIRE(absl::IsCancelled(
      Engine::Serve(kBundledModel, GroupOptions(id, 1, kHaste), [](int64_t) { return false; })));
}

}  // namespace dsv4::test
