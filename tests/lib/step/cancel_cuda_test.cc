// SPDX-License-Identifier: Apache-2.0
// How far a prefill on a GPU runs after it is cancelled: the kernels that the host has launched and
// not waited for. The CUDA runtime is a fake (tests/support/fake_cuda_runtime.h).
#include "tests/support/bundled_model.h"
#include "tests/support/fake_cuda_runtime.h"

namespace dsv4::test {
namespace {

constexpr int32_t kPinned = 2;  // so that steps find candidates there
constexpr size_t kLayers = 6;   // of the bundled model

std::shared_ptr<Engine> OpenOn(const FakeCuda& gpu) {
  SetFakeCuda(gpu);
  return OpenBundled({.backend = Backend::kCuda,
                      .context_tokens = 1024,
                      .cache_tokens = 2048,
                      .prefill_chunk_tokens = 512});
}

TEST_CASE("a prefill on a GPU that is cancelled ends with the layer it is in, two layers ahead") {
  std::function<void(int64_t)> on_launch;
  const auto engine = OpenOn({.pinned = kPinned, .on_launch = [&](int64_t launched) {
                                if (on_launch) on_launch(launched);
                              }});
  const std::vector<int32_t> prompt = AnyTokens(300, 1);
  auto session = OpenColdSession(engine);
  REQUIRE_OK(session->Sync(prompt));
  TakeFakeLaunches();
  REQUIRE_OK(session->Prefill(0, nullptr));
  // The host waits between layers, and between two waits are the kernels of one layer.
  std::vector<size_t> begins = {0};
  const std::vector<FakeLaunch> launches = TakeFakeLaunches();
  for (size_t i = 1; i < launches.size(); ++i) {
    REQUIRE_FALSE(launches[i].recorded);
    if (launches[i].ahead != launches[i - 1].ahead + 1) begins.push_back(i);
  }
  REQUIRE(begins.size() == kLayers);
  for (size_t layer = 2; layer < begins.size(); ++layer) {
    CAPTURE(layer);
    // Not done is the layer before, and what follows.
    REQUIRE(launches[begins[layer]].ahead ==
            static_cast<int64_t>(begins[layer] - begins[layer - 1]) + 1);
  }

  // Cancelled at the first, a middle and the last kernel of a layer, nothing of the next is
  // launched.
  for (size_t layer = 1; layer + 1 < begins.size(); ++layer) {
    const size_t end = begins[layer + 1];
    for (const size_t at : {begins[layer], (begins[layer] + end) / 2, end - 1}) {
      CAPTURE(layer);
      CAPTURE(at);
      session = OpenColdSession(engine);
      REQUIRE_OK(session->Sync(prompt));
      size_t count = 0;
      on_launch = [&](int64_t) {
        if (count++ == at) session->SetStopped(true);
      };
      REQUIRE_FAILS(session->Prefill(0, nullptr), absl::StatusCode::kCancelled,
                    "300 tokens pending");
      on_launch = nullptr;
      session->SetStopped(false);
      REQUIRE(count == end);
    }
  }
  REQUIRE_OK(session->Prefill(0, nullptr));
}

}  // namespace
}  // namespace dsv4::test
