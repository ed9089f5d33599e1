// SPDX-License-Identifier: Apache-2.0
#include "lib/model/forward_context.h"

#include <string>

#include "lib/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/far_device.h"
#include "tests/support/status_test_macros.h"

namespace dsv4::test {
namespace {

class TwoStreamDevice final : public FarDevice {
 public:
  explicit TwoStreamDevice(std::string* log) : log_(log) {}
  Stream* side_stream() override { return &side_; }
  absl::Status Fork() override {
    *log_ += "fork ";
    return absl::OkStatus();
  }
  absl::Status Join() override {
    *log_ += "join ";
    return absl::OkStatus();
  }

 private:
  std::string* const log_;
  CpuStream side_{1};
};

class NoRecorder final : public LaunchRecorder {
 public:
  void Record(const KernelEntry&, const void*, const Cost&, absl::FunctionRef<void()>) override {}
};

// Runs A concurrently with B and logs where they run.
struct Runs {
  std::string log;
  TwoStreamDevice device{&log};
  Dispatch dispatch{{}, Backend::kCuda, Numerics::kPublished, {}};
  ForwardContext context;
  absl::Status second;  // B's

  explicit Runs(int32_t rows) {
    context.dispatch = &dispatch;
    context.device = &device;
    context.launch.stream = &device.stream();
    context.side.stream = device.side_stream();
    context.step.rows = rows;
  }
  absl::Status Run() {
    const auto say = [&](const char* name, const ForwardContext& on) {
      log += name;
      if (on.planning) {
        log += std::to_string(on.step.rows);
        log += on.planned_stream == StreamRole::kSide ? ":side " : ":main ";
      } else {
        log += on.launch.stream == context.side.stream ? ":side " : ":main ";
      }
    };
    return context.RunConcurrently(
        [&](const ForwardContext& on) {
          say("A", on);
          return absl::OkStatus();
        },
        [&](const ForwardContext& on) {
          say("B", on);
          return second;
        });
  }
};

TEST_CASE("work of few rows runs concurrently with other work, on the second stream") {
  for (const int32_t rows : {1, 64}) {
    Runs runs(rows);
    REQUIRE_OK(runs.Run());
    REQUIRE(runs.log == "fork B:side A:main join ");
  }
}

TEST_CASE("work of many rows runs one after the other, as does all without a second stream") {
  Runs many(65);
  REQUIRE_OK(many.Run());
  REQUIRE(many.log == "A:main B:main ");
  Runs one_stream(1);
  one_stream.context.side.stream = nullptr;
  REQUIRE_OK(one_stream.Run());
  REQUIRE(one_stream.log == "A:main B:main ");
}

TEST_CASE("launches that are timed alone run on the main stream") {
  Runs runs(1);
  NoRecorder recorder;
  runs.dispatch.set_recorder(&recorder);
  REQUIRE_OK(runs.Run());
  REQUIRE(runs.log == "A:main B:main ");
}

TEST_CASE("streams are joined after a failure, too") {
  Runs runs(1);
  runs.second = Internal("B failed");
  REQUIRE(runs.Run().message() == "B failed");
  REQUIRE(runs.log == "fork B:side join ");
}

TEST_CASE("concurrent work is planned for both streams, on the second for few rows") {
  Runs runs(4096);
  runs.context.planning = true;
  REQUIRE_OK(runs.Run());
  REQUIRE(runs.log == "A4096:main B4096:main B64:side ");
}

}  // namespace
}  // namespace dsv4::test
