// SPDX-License-Identifier: Apache-2.0
// An engine on two GPUs, and on four and eight where there are as many, computes the bits of one,
// whichever way its devices exchange what they compute: every tensor of the oracle's cases, and the
// logits of sessions with graphs and without. NCCL goes through the host's memory where
// NCCL_P2P_DISABLE=1 is set.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/kernels/cuda_memory.h"
#include "tests/tools/case_on_devices.h"

namespace dsv4 {
namespace {

using test::CaseOnDevices;
using test::Differences;

int Gpus() {
  int gpus = 0;
  REQUIRE(cudaGetDeviceCount(&gpus) == cudaSuccess);
  return gpus;
}

bool HasFour() {
  if (Gpus() < 4) WARN("not run: " << Gpus() << " GPUs");
  return Gpus() >= 4;
}

// Those that lead from one GPU to the other here; at least one does.
std::vector<ExchangePath> Paths() {
  std::vector<ExchangePath> paths;
  for (const ExchangePath path :
       {ExchangePath::kAuto, ExchangePath::kDirect, ExchangePath::kHost, ExchangePath::kNccl}) {
    const absl::StatusOr<std::shared_ptr<Engine>> engine =
        Engine::Open(test::kBundledModel, {.backend = Backend::kCuda,
                                           .devices = {0, 1},
                                           .context_tokens = 256,
                                           .graphs = false,
                                           .exchange = path});
    if (engine.ok()) {
      paths.push_back(path);
    } else {
      WARN("exchange " << static_cast<int>(path) << ": " << engine.status().message());
    }
  }
  REQUIRE(!paths.empty());
  return paths;
}

TEST_CASE("the oracle's cases are the same on one GPU and on several, bit for bit") {
  const int gpus = Gpus();
  const struct {
    const char* name;
    int most;  // devices that the case's output groups allow
  } cases[] = {{"mixed", 2}, {"odd", 4}, {"pro", 8}};
  for (const auto& each : cases) {
    CAPTURE(each.name);
    const CaseOnDevices oracle(each.name, {5, 129, 300});
    const OracleTensors one = oracle.Run(*oracle.Open(1, Backend::kCuda));
    REQUIRE(one.count("p300.decode0.layer0.streams") == 1);
    for (int count = 2; count <= std::min(gpus, each.most); count *= 2) {
      for (const ExchangePath path : Paths()) {
        CAPTURE(count, path);
        REQUIRE(Differences(oracle.Run(*oracle.Open(count, Backend::kCuda, path)), one) ==
                std::vector<std::string>{});
      }
    }
  }
}

TEST_CASE("logits of sessions are the same on one GPU and on two, with graphs and without") {
  const auto logits_of = [](std::vector<int32_t> devices, ExchangePath path, bool graphs) {
    const auto engine = test::OpenBundled({.backend = Backend::kCuda,
                                           .devices = std::move(devices),
                                           .context_tokens = 1024,
                                           .max_sessions = 3,
                                           .prefill_chunk_tokens = 100,
                                           .max_draft_tokens = 2,
                                           .graphs = graphs,
                                           .exchange = path});
    std::vector<std::vector<float>> logits;
    for (int i = 0; i < 3; ++i) {
      const auto session = test::OpenSession(engine);
      REQUIRE_OK(session->Sync(test::AnyTokens(40 + 250 * i, static_cast<uint32_t>(i))));
      for (int step = 0; step < 12; ++step) {
        REQUIRE_OK(session->Prefill(0, nullptr));
        logits.emplace_back(session->logits().begin(), session->logits().end());
        REQUIRE_OK(session->Step());
      }
    }
    return logits;
  };
  const auto one = logits_of({0}, ExchangePath::kAuto, true);
  for (const ExchangePath path : Paths()) {
    CAPTURE(path);
    for (const bool graphs : {true, false}) {
      CAPTURE(graphs);
      REQUIRE((logits_of({0, 1}, path, graphs) == one));
    }
  }
  REQUIRE((logits_of({1, 0}, ExchangePath::kAuto, true) == one));
}

TEST_CASE("sessions say the same on one GPU and on four, drafts, forks and saved ones included") {
  if (!HasFour()) return;
  const CaseOnDevices oracle("odd", {5});
  const test::TempFolder folder;
  // The next tokens of a session, of its fork, and of a saved session that another number of GPUs
  // loads.
  const auto says = [&](int devices, ExchangePath path, int saver) {
    const auto engine = test::OpenBundled({.backend = Backend::kCuda,
                                           .devices = test::Devices(devices),
                                           .context_tokens = 512,
                                           .max_sessions = 4,
                                           .max_draft_tokens = 1,
                                           .exchange = path},
                                          oracle.folder());
    std::vector<float> said;
    const auto advance = [&](Session& session) {
      for (int step = 0; step < 12; ++step) {
        const absl::StatusOr<StepResult> result = session.Step();
        REQUIRE_OK(result);
        said.push_back(static_cast<float>(result->token));
      }
      REQUIRE_OK(session.Prefill(0, nullptr));
      said.insert(said.end(), session.logits().begin(), session.logits().end());
    };
    for (const int drafts : {0, 1}) {
      SamplingParams sampling;
      sampling.draft_tokens = drafts;
      const auto session = test::OpenSession(engine, sampling);
      std::vector<int32_t> prompt;
      for (int32_t i = 0; i < 70 + 200 * drafts; ++i) prompt.push_back((i * 37 + drafts) % 500);
      REQUIRE_OK(session->Sync(prompt));
      advance(*session);
      const auto fork = session->Fork();
      REQUIRE_OK(fork);
      advance(**fork);
      const std::string saved = absl::StrCat(folder.path(), "/", drafts, ".session");
      if (devices == saver) REQUIRE_OK(session->SaveFile(saved));
      const auto loaded = test::OpenSession(engine, sampling);
      REQUIRE_OK(loaded->LoadFile(saved));
      advance(*loaded);
    }
    return said;
  };
  const std::vector<float> one = says(1, ExchangePath::kAuto, 1);
  for (const ExchangePath path : Paths()) {
    CAPTURE(path);
    REQUIRE((says(4, path, 1) == one));
    REQUIRE((says(4, path, 4) == one));
  }
  REQUIRE((says(1, ExchangePath::kAuto, 4) == one));
}

TEST_CASE("a GPU that fails makes the engine lost, and a new one opens") {
  for (const ExchangePath path : Paths()) {
    CAPTURE(path);
    for (int round = 0; round < 2; ++round) {
      const auto engine = test::OpenBundled(
          {.backend = Backend::kCuda, .devices = {0, 1}, .context_tokens = 512, .exchange = path});
      const auto session = test::OpenSession(engine);
      REQUIRE_OK(session->Sync(test::AnyTokens(40, 1)));
      REQUIRE_OK(session->Step());
      engine->model().Abort(1, DeviceLost("planted"));
      for (int i = 0; i < 2; ++i) {
        REQUIRE_FAILS(session->Step(), DeviceLost().code(),
                      "a device of the engine failed: planted");
      }
    }
  }
}

TEST_CASE("one of four GPUs that fails makes the engine lost") {
  if (!HasFour()) return;
  const CaseOnDevices oracle("odd", {5});
  for (const ExchangePath path : Paths()) {
    CAPTURE(path);
    const auto engine = oracle.Open(4, Backend::kCuda, path);
    const auto session = test::OpenSession(engine);
    REQUIRE_OK(session->Sync(std::vector<int32_t>{5, 6, 7}));
    REQUIRE_OK(session->Step());
    engine->model().Abort(3, DeviceLost("planted"));
    REQUIRE_FAILS(session->Step(), DeviceLost().code(), "a device of the engine failed: planted");
  }
}

TEST_CASE("GPUs that are not there, or named twice, are refused by name") {
  const auto open = [](std::vector<int32_t> devices) {
    return Engine::Open(
        test::kBundledModel,
        {.backend = Backend::kCuda, .devices = std::move(devices), .context_tokens = 64});
  };
  REQUIRE_FAILS(open({0, 0}), absl::StatusCode::kInvalidArgument, "devices names 0 twice");
  REQUIRE_FAILS(open({0, 99}), absl::StatusCode::kInvalidArgument, "cuda:99 is not in 0..");
  REQUIRE(ArgumentOf(open({0, 99}).status()) == "devices");
}

}  // namespace
}  // namespace dsv4
