// SPDX-License-Identifier: Apache-2.0
// dsv4-verify's rules on the cuda backend: the oracle's cases, and the gates of the bundled model.
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tools/verify/command_line.h"
#include "tools/verify/gates_command.h"
#include "tools/verify/oracle_command.h"

namespace dsv4 {
namespace {

int Run(int (*command)(absl::Span<char* const>), std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  return command(pointers);
}

TEST_CASE("the cuda backend computes the oracle's cases") {
  const std::string oracle = DSV4_SOURCE_DIR "/tests/oracle";
  struct Case {
    std::string name, recorded;
    int exit;
  };
  for (const Case& c :
       {Case{"odd", "odd", kExitPassed}, Case{"mixed", "mixed", kExitPassed},
        Case{"pro", "pro", kExitPassed}, Case{"wide", "wide", kExitPassed},
        Case{"dspark", "dspark", kExitPassed}, Case{"dspark_nvfp4", "dspark", kExitPassed},
        Case{"mixed_nvfp4", "mixed", kExitPassed}, Case{"mixed_fp8", "mixed", kExitPassed},
        Case{"fp8", "fp8", kExitPassed}, Case{"nvfp4_real", "nvfp4_real", kExitPassed}}) {
    CAPTURE(c.name);
    const char* const file =
        c.name == "nvfp4_real" ? ".exact.safetensors" : ".published.safetensors";
    CHECK(Run(RunOracleCommand,
              {"--mode", "published", "--backend", "cuda", oracle + "/cases/" + c.name + ".json",
               oracle + "/expected/" + c.recorded + file}) == c.exit);
  }
}

TEST_CASE("the cuda backend passes the bundled model's gates") {
  CHECK(Run(RunGatesCommand, {"--backend", "cuda", DSV4_SOURCE_DIR "/models/dsv4-tiny"}) ==
        kExitPassed);
}

TEST_CASE("the cuda backend passes the gates of the model with a DSpark drafter") {
  CHECK(Run(RunGatesCommand, {"--backend", "cuda", "--draft", "5", "--draft-length", "4.8",
                              "--first-drafts", "0.99", DSV4_BUILT_MODELS "/dsv4-tiny-dspark"}) ==
        kExitPassed);
}

}  // namespace
}  // namespace dsv4
