// SPDX-License-Identifier: Apache-2.0
// group_member serve|lead|die|shuffle ID RANK SECONDS CONTEXT: the other process of a group in
// tests. It writes a line when it is ready, and how it ended. Linked with --wrap=pread.
#include <signal.h>
#include <unistd.h>

#include <cerrno>
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

extern "C" {
ssize_t __real_pread(int file, void* to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int file, void* to, size_t bytes, off_t offset) {
  const char* const marker = std::getenv(dsv4::test::kFailingReads);
  if (marker == nullptr || access(marker, F_OK) != 0) {
    return __real_pread(file, to, bytes, offset);
  }
  errno = EIO;
  return -1;
}
}

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
  if (role == "shuffle") {
    options.weight_budgets.shuffle = 5;
    options.weight_budgets.plain_reads = true;
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
