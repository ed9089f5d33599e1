// SPDX-License-Identifier: Apache-2.0
// An engine on several devices computes the bits of one device: every tensor of the oracle's cases
// on ranks of the CPU. A rank with one wrong row or scale does not. What sessions promise on
// several devices is tested by the tests of sessions (tests/lib/session/ranks_backend.cc).
#include <string>
#include <vector>

#include "lib/engine/metrics.h"
#include "tests/tools/case_on_devices.h"

namespace dsv4 {
namespace {

using test::CaseOnDevices;
using test::Differences;

TEST_CASE("the oracle's cases are the same on one device and on several, bit for bit") {
  struct {
    const char* name;
    std::vector<int> counts;  // that the case's output groups allow
  } const cases[] = {{"mixed", {2}}, {"odd", {2, 4}}, {"pro", {2, 4, 8}}};
  for (const auto& each : cases) {
    CAPTURE(each.name);
    const CaseOnDevices oracle(each.name, {5, 300});
    const OracleTensors one = oracle.Run(*oracle.Open(1));
    REQUIRE(one.count("p300.prefill.logits") == 1);
    REQUIRE(one.count("p300.decode0.layer0.streams") == 1);
    for (const int count : each.counts) {
      CAPTURE(count);
      REQUIRE(Differences(oracle.Run(*oracle.Open(count)), one) == std::vector<std::string>{});
    }
  }
}

TEST_CASE("the scalar reference is the same on several devices", "[reference]") {
  const CaseOnDevices oracle("odd", {5, 129});
  const OracleTensors one = oracle.Run(*oracle.Open(1, Backend::kReference));
  REQUIRE(Differences(oracle.Run(*oracle.Open(4, Backend::kReference)), one) ==
          std::vector<std::string>{});
}

TEST_CASE("one wrong row or scale of one rank is noticed") {
  const CaseOnDevices oracle("odd", {5, 129});
  const OracleTensors one = oracle.Run(*oracle.Open(1));
  const auto engine = oracle.Open(2);
  REQUIRE(Differences(oracle.Run(*engine), one).empty());
  WeightViews& views = engine->views(1);
  ExpertWeights& expert = views.layers[1].moe.experts[2];

  const ExpertWeights right = expert;
  expert.w2.data -= expert.w2.k / 2;  // its rows begin one too early
  REQUIRE_FALSE(Differences(oracle.Run(*engine), one).empty());
  expert = right;
  expert.w2.scale += 1;
  REQUIRE_FALSE(Differences(oracle.Run(*engine), one).empty());
  expert = right;

  Fp8Weight& wo_b = views.layers[0].attn.wo_b;
  wo_b.scale -= 1;
  REQUIRE_FALSE(Differences(oracle.Run(*engine), one).empty());
  wo_b.scale += 1;
  REQUIRE(Differences(oracle.Run(*engine), one).empty());
}

// The tokens of the next steps.
std::vector<int32_t> Next(Session& session, int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) {
    const absl::StatusOr<StepResult> step = session.Step();
    REQUIRE_OK(step);
    tokens.push_back(step->token);
  }
  return tokens;
}

TEST_CASE("an engine that lost a device is resumed, and its sessions continue from their tokens",
          "[threads]") {
  const EngineOptions options{.devices = {0, 1},
                              .context_tokens = 1024,
                              .max_sessions = 5,
                              .threads = 2,
                              .max_draft_tokens = 3};
  const SamplingParams sampling{.temperature = 1, .seed = 7, .draft_tokens = 3};
  const std::vector<int32_t> long_prompt = test::AnyTokens(300, 1),
                             short_prompt = test::AnyTokens(9, 2);
  constexpr int kBefore = 6, kAfter = 12;
  // What the sessions generate if nothing happens.
  const auto undisturbed = test::OpenBundled(options);
  std::vector<std::vector<int32_t>> expected;
  for (const std::vector<int32_t>& prompt : {long_prompt, short_prompt}) {
    const auto session = test::OpenColdSession(undisturbed, sampling);
    REQUIRE_OK(session->Sync(prompt));
    expected.push_back(Next(*session, kBefore + kAfter));
  }
  const auto after = [](const std::vector<int32_t>& tokens) {
    return std::vector<int32_t>(tokens.begin() + kBefore, tokens.end());
  };

  const auto engine = test::OpenBundled(options);
  const auto first = test::OpenColdSession(engine, sampling);
  const auto second = test::OpenColdSession(engine, sampling);
  REQUIRE_OK(first->Sync(long_prompt));
  REQUIRE_OK(second->Sync(short_prompt));
  Next(*first, kBefore);
  Next(*second, kBefore);
  const auto fork = first->Fork();
  REQUIRE_OK(fork);
  engine->model().Abort(1, DeviceLost("planted"));
  // The tokens that were chosen before the loss are still delivered.
  absl::StatusOr<StepResult> lost = first->Step();
  std::vector<int32_t> delivered;
  for (; lost.ok(); lost = first->Step()) delivered.push_back(lost->token);
  REQUIRE(IsDeviceLost(lost.status()));
  REQUIRE(engine->lost());
  REQUIRE(MetricsOf(*engine).steps.device_lost);

  // A resume that fails leaves the engine suspended, and can be repeated.
  const auto cancel = [](int64_t, int64_t) { return false; };
  REQUIRE(absl::IsCancelled(engine->Resume(cancel)));
  REQUIRE(engine->suspended());
  REQUIRE(IsSuspended(first->Step().status()));
  REQUIRE_OK(engine->Resume({}));
  REQUIRE_FALSE(engine->suspended());
  REQUIRE_FALSE(engine->lost());
  REQUIRE_FALSE(MetricsOf(*engine).steps.device_lost);

  std::vector<int32_t> continued = delivered;
  for (const int32_t token : Next(*first, kAfter - static_cast<int>(delivered.size()))) {
    continued.push_back(token);
  }
  REQUIRE(continued == after(expected[0]));
  // One is saved without its rows, and loads.
  std::vector<uint8_t> image(static_cast<size_t>(second->SaveBytes()));
  REQUIRE_OK(second->SaveTo(absl::MakeSpan(image)));
  const auto loaded = test::OpenColdSession(engine, sampling);
  REQUIRE_OK(loaded->Load(image, "image"));
  REQUIRE(Next(*second, kAfter) == after(expected[1]));
  REQUIRE(Next(*loaded, kAfter) == after(expected[1]));
  REQUIRE(Next(**fork, kAfter) == after(expected[0]));
  // Nothing that was in the cache is taken from it.
  const auto fresh = test::OpenSession(engine, sampling);
  REQUIRE_OK(fresh->Sync(long_prompt));
  REQUIRE(Next(*fresh, kBefore + kAfter) == expected[0]);
}

TEST_CASE("a rank that fails makes the engine lost until it is resumed", "[threads]") {
  const auto engine = test::OpenBundled({.devices = {0, 1}, .context_tokens = 512, .threads = 2});
  const auto session = test::OpenSession(engine);
  REQUIRE_OK(session->Sync(test::AnyTokens(40, 1)));
  REQUIRE_OK(session->Step());
  engine->model().Abort(1, DeviceLost("planted"));
  for (int i = 0; i < 2; ++i) {
    REQUIRE_FAILS(session->Step(), DeviceLost().code(), "a device of the engine failed: planted");
  }
  // Another engine has nothing to do with it.
  const auto other = test::OpenBundled({.devices = {0, 1}, .context_tokens = 512, .threads = 2});
  const auto fresh = test::OpenSession(other);
  REQUIRE_OK(fresh->Sync(test::AnyTokens(40, 1)));
  REQUIRE_OK(fresh->Step());
}

TEST_CASE("the plan says what lies on which device, and what exchange costs") {
  const auto engine = test::OpenBundled({.devices = {0, 1}, .context_tokens = 512, .threads = 3});
  const EngineInfo& info = engine->info();
  REQUIRE(info.threads == 3);
  REQUIRE(info.devices.size() == 2);
  const auto one = test::OpenBundled({.context_tokens = 512, .threads = 1});
  REQUIRE(one->info().devices.size() == 1);
  REQUIRE(one->info().devices[0].weights == one->info().weight_bytes);
  REQUIRE(info.weight_bytes == one->info().weight_bytes);  // mapped once
  REQUIRE(info.cache_bytes == 2 * one->info().cache_bytes);
  REQUIRE(info.workspace_bytes == info.devices[0].workspace + info.devices[1].workspace);
  // Each has less than all; what both have whole is counted twice.
  for (const DeviceBytes& device : info.devices) REQUIRE(device.weights < info.weight_bytes);
  REQUIRE(info.devices[0].weights + info.devices[1].weights > info.weight_bytes);
  REQUIRE(info.exchange.exchanges == 4 * 6 + 1);
  REQUIRE(one->info().exchange.exchanges == 0);
  const absl::StatusOr<EnginePlan> plan =
      Engine::Plan(test::kBundledModel, {.devices = {0, 1}, .context_tokens = 512, .threads = 3});
  REQUIRE_OK(plan);
  for (size_t rank = 0; rank < 2; ++rank) {
    REQUIRE(plan->info().devices[rank].weights == info.devices[rank].weights);
    REQUIRE(plan->info().devices[rank].total() == info.devices[rank].total());
  }
  REQUIRE(plan->info().workspace_bytes == info.workspace_bytes);
}

TEST_CASE("devices that cannot be are refused by name") {
  const auto open = [](std::vector<int32_t> devices) {
    return Engine::Open(test::kBundledModel,
                        {.devices = std::move(devices), .context_tokens = 64, .threads = 1});
  };
  REQUIRE_FAILS(open({0, 0}), absl::StatusCode::kInvalidArgument, "devices names 0 twice");
  REQUIRE_FAILS(open({0, 2}), absl::StatusCode::kInvalidArgument,
                "names 2; the 2 parts of the CPU are 0..1");
  REQUIRE_FAILS(open({-1, 0}), absl::StatusCode::kInvalidArgument,
                "names -1; the 2 parts of the CPU are 0..1");
  REQUIRE_FAILS(open({1}), absl::StatusCode::kInvalidArgument, "the only cpu device is 0");
  REQUIRE_FAILS(open({0, 1, 2, 3}), absl::StatusCode::kInvalidArgument,
                "o_groups = 2 cannot be split between 4 devices");
  REQUIRE(ArgumentOf(open({0, 0}).status()) == "devices");
  REQUIRE(ArgumentOf(open({0, 1, 2, 3}).status()) == "devices");
  REQUIRE_OK(open({1, 0}));
}

TEST_CASE("a session saved on two devices continues on one, and back", "[threads]") {
  const auto engine = [](std::vector<int32_t> devices) {
    return test::OpenBundled({.devices = std::move(devices),
                              .context_tokens = 1024,
                              .prefill_chunk_tokens = 100,
                              .threads = 2,
                              .max_draft_tokens = 2});
  };
  const auto one = engine({}), two = engine({0, 1});
  const std::vector<int32_t> prompt = test::AnyTokens(300, 7);
  const auto steps = [](Session& session) {
    std::vector<std::vector<float>> logits;
    for (int i = 0; i < 4; ++i) {
      REQUIRE_OK(session.Step());
      REQUIRE_OK(session.Prefill(0, nullptr));
      logits.emplace_back(session.logits().begin(), session.logits().end());
    }
    return logits;
  };
  const auto straight = test::OpenSession(one);
  REQUIRE_OK(straight->Sync(prompt));
  const auto want_first = steps(*straight), want_second = steps(*straight);

  const auto image_of = [](const Session& session) {
    std::vector<uint8_t> image(static_cast<size_t>(session.SaveBytes()));
    REQUIRE_OK(session.SaveTo(absl::MakeSpan(image)));
    return image;
  };
  const auto on_two = test::OpenSession(two);
  REQUIRE_OK(on_two->Sync(prompt));
  REQUIRE(steps(*on_two) == want_first);
  const std::vector<uint8_t> saved = image_of(*on_two);
  const auto on_one = test::OpenSession(one);
  REQUIRE_OK(on_one->Load(saved, "image"));
  REQUIRE(image_of(*on_one) == saved);
  REQUIRE(steps(*on_one) == want_second);

  // And from one to two, where every rank must get the rows.
  const auto again = test::OpenSession(two);
  REQUIRE_OK(again->Load(image_of(*on_one), "image"));
  REQUIRE(steps(*again) == steps(*on_one));
}

}  // namespace
}  // namespace dsv4
