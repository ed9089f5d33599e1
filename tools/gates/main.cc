// SPDX-License-Identifier: Apache-2.0
// dsv4-gates: holds a server with OpenAI's API to what its users rely on.
#include <dsv4/dsv4.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "examples/console/command_line.h"
#include "examples/console/failure.h"
#include "examples/console/terminal.h"
#include "tools/gates/arguments.h"
#include "tools/gates/client.h"
#include "tools/gates/gates.h"
#include "tools/gates/options.h"

namespace gates {
namespace {

enum ExitCode { kPassed = 0, kFailed = 1, kNoServer = 3 };

void Write(const std::string& text, const std::string& path) {
  if (path.empty()) {
    std::fputs(text.c_str(), stdout);
    return;
  }
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) throw chat::Failure{chat::kRunTimeError, path + ": cannot be written"};
}

int Run(int argc, char** argv) {
  const Options options = ParseOptions(argc, argv);
  std::string text = chat::HelpOrVersion(options, HelpText());
  if (options.list) {
    for (const Gate& gate : AllGates()) text += gate.name + std::string("\t") + gate.what + "\n";
  }
  if (!text.empty()) return std::fputs(text.c_str(), stdout), kPassed;
  const Client client(options);
  const Json report = RunGates(client, options);
  Write(report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n", options.output_file);
  return report["passed"] == true ? kPassed : kFailed;
}

}  // namespace
}  // namespace gates

int main(int argc, char** argv) {
  chat::IgnoreBrokenPipes();
  try {
    return gates::Run(argc, argv);
  } catch (const gates::ServerError& error) {
    std::fprintf(stderr, "dsv4-gates: %s\n", error.message.c_str());
    return gates::kNoServer;
  } catch (...) {
    return chat::ReportFailure("dsv4-gates");
  }
}
