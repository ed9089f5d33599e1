// SPDX-License-Identifier: Apache-2.0
// group_member serve|lead|die ID RANK SECONDS CONTEXT: the other process of a group in tests. It
// writes a line when it is ready, and how it ended.
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "lib/base/error.h"
#include "tests/groups/member.h"

namespace {

std::string Words(const absl::Status& status) {
  if (status.ok()) return "ok";
  return std::string(dsv4::IsDeviceLost(status) ? "device lost: " : "failed: ") +
         std::string(status.message());
}

}  // namespace

int main(int, char** argv) {
  const std::string role = argv[1], model = dsv4::test::GroupModel();
  dsv4::EngineOptions options = dsv4::test::GroupOptions(argv[2], std::atoi(argv[3]),
                                                         std::chrono::seconds(std::atoi(argv[4])));
  if (std::atoi(argv[5]) > 0) options.context_tokens = std::atoi(argv[5]);
  if (role == "lead") {
    const auto engine = dsv4::Engine::Open(model, options);
    std::cout << Words(engine.status()) << std::endl;
    pause();
  }
  if (role == "die") options.progress = [](int64_t, int64_t) { return raise(SIGKILL) == 0; };
  bool ready = false;
  const absl::Status served = dsv4::Engine::Serve(model, options, [&](int64_t) {
    if (!ready) std::cout << "ready" << std::endl;
    ready = true;
    return true;
  });
  std::cout << Words(served) << std::endl;
  return served.ok() ? 0 : 1;
}
