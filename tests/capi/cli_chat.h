// SPDX-License-Identifier: Apache-2.0
// dsv4-chat with the bundled model, for tests of it.
#ifndef TESTS_CAPI_CLI_CHAT_H_
#define TESTS_CAPI_CLI_CHAT_H_

#include <string>
#include <vector>

#include "tests/capi/cli_program.h"

namespace dsv4::test {

inline const std::string kModel = DSV4_SOURCE_DIR "/models/dsv4-tiny";

// A home of its own, and no locale: characters are UTF-8 all the same.
inline Environment HomeIn(const TemporaryFolder& home) {
  return {"HOME=" + home.path(), "TERM=xterm", "PATH=/usr/bin:/bin"};
}

inline std::vector<std::string> Chat(std::vector<std::string> options) {
  std::vector<std::string> command = {DSV4_CHAT, "-m", kModel};
  command.insert(command.end(), options.begin(), options.end());
  return command;
}

}  // namespace dsv4::test

#endif  // TESTS_CAPI_CLI_CHAT_H_
