// SPDX-License-Identifier: Apache-2.0
// dsv4-worker: a GPU's part of a model that another process uses, on this machine or another. That
// process, such as dsv4-chat --workers, makes the group's id, which carries the engine's options.
#include <signal.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dsv4/dsv4.hpp>
#include <limits>
#include <string>
#include <utility>

#include "examples/console/engine_options.h"
#include "examples/console/failure.h"
#include "examples/console/files.h"
#include "examples/console/hub_models.h"

namespace worker {
namespace {

struct Arguments {
  std::string model;
  std::string group_file;
  dsv4::EngineOptions engine;
  bool help = false, version = false;
};

constexpr chat::Option<Arguments> kOptions[] = {
    {"-m", "--model", "DIR", "model folder (required)",
     chat::SetParsed<chat::ParseFolder, &Arguments::model>},
    {"", "--group", "ID", "the group's id; other users of the machine can see it here",
     chat::SetText<&Arguments::engine, &dsv4::EngineOptions::group, &dsv4::GroupOptions::id>},
    {"", "--group-file", "FILE", "read the id from FILE, or from standard input with -",
     [](Arguments* a, const std::string& name, const std::string& v) {
       if (v.empty()) throw chat::Failure{chat::kUsageError, name + ": the name is empty"};
       a->group_file = v;
     }},
    {"", "--rank", "N", "this process's place in the group, from 1 on (default: 1)",
     chat::SetCount<&Arguments::engine, &dsv4::EngineOptions::group, &dsv4::GroupOptions::rank>},
    {"", "--device", "N", "the GPU to use (default: 0)",
     [](Arguments* a, const std::string& n, const std::string& v) {
       a->engine.devices = {
           chat::ParseNumber<int32_t>(n, v, 0, std::numeric_limits<int32_t>::max())};
     }},
    chat::kDrafterModelOption<Arguments>,
    {"", "--tuning", "DIR", "tuning tables to use instead of the library's",
     chat::AddSetting<chat::kTuningDir, Arguments>},
    chat::kHelpOption<Arguments>,
    chat::kVersionOption<Arguments>,
};

std::string HelpText() {
  return "usage: dsv4-worker --model DIR --group-file FILE [option...]\n"
         "Computes a part of the model in DIR for the process that made the group's id, until\n"
         "that closes the model. dsv4-chat and dsv4-server print the id with --workers N. The\n"
         "model and the build of the library are the same there. Without --group and\n"
         "--group-file, the variable DSV4_GROUP has the id.\n\n" +
         chat::HelpLines<Arguments>(kOptions) +
         "\nSIGINT and SIGTERM stop it, and with it the group; before the group has met, the\n"
         "second one. Exit codes: 0 the model was closed, 1 run time, 2 usage, 3 model or format,\n"
         "4 memory, 5 device or group lost, 130 interrupted.\n";
}

Arguments ParseArguments(int argc, const char* const* argv) {
  Arguments arguments;
  arguments.engine.backend = DSV4_BACKEND_CUDA;
  arguments.engine.devices = {0};
  arguments.engine.group.rank = 1;
  chat::ParseOptions<Arguments>(argc, argv, {kOptions}, &arguments);
  return arguments;
}

// The one line of the file, or of standard input.
std::string IdFrom(const std::string& file) {
  std::string id = chat::ReadWholeFile(file == "-" ? "/dev/stdin" : file);
  id.erase(id.find_last_not_of(" \t\r\n") + 1);
  if (id.empty() || id.find('\n') != std::string::npos) {
    throw chat::Failure{chat::kUsageError, file + ": expected one line, the id of a group"};
  }
  return id;
}

// Who has the id can join the group, so that it may come by ways that other users do not see.
void ReadGroup(Arguments* arguments) {
  std::string& id = arguments->engine.group.id;
  if (!id.empty() && !arguments->group_file.empty()) {
    throw chat::Failure{chat::kUsageError, "--group and --group-file exclude each other"};
  }
  if (!arguments->group_file.empty()) id = IdFrom(arguments->group_file);
  const char* const variable = std::getenv("DSV4_GROUP");
  if (id.empty() && variable != nullptr) id = variable;
  if (id.empty()) {
    throw chat::Failure{chat::kUsageError, "no group: dsv4-chat --workers 1 prints its id"};
  }
}

volatile std::sig_atomic_t interrupted = 0;

// The second signal ends the program, whatever it waits for.
void CatchSignals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { interrupted = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int Serve(Arguments arguments) {
  CatchSignals();
  bool loaded = false, ready = false;
  arguments.engine.progress = [&](const dsv4::ProgressReport& report) {
    if (report.phase == DSV4_PROGRESS_LOAD && !loaded) {
      loaded = true;
      std::fputs("dsv4-worker: the group has met; loading\n", stderr);
    } else if (report.phase == DSV4_PROGRESS_SERVE && !ready) {
      ready = true;
      std::fputs("dsv4-worker: ready\n", stderr);
    }
    return interrupted == 0;
  };
  dsv4::ServeGroup(arguments.model, arguments.engine);
  return chat::kOk;
}

int Run(int argc, char** argv) {
  Arguments arguments = ParseArguments(argc, argv);
  if (const std::string text = chat::HelpOrVersion(arguments, HelpText()); !text.empty()) {
    return std::fputs(text.c_str(), stdout), chat::kOk;
  }
  if (arguments.model.empty())
    throw chat::Failure{chat::kUsageError, "no model: name its folder with --model DIR"};
  ReadGroup(&arguments);
  arguments.model = chat::FindModel(arguments.model);
  return Serve(std::move(arguments));
}

}  // namespace
}  // namespace worker

int main(int argc, char** argv) {
  try {
    return worker::Run(argc, argv);
  } catch (...) {
    return chat::ReportFailure("dsv4-worker");
  }
}
