// SPDX-License-Identifier: Apache-2.0
// dsv4-server: a model behind OpenAI's API. Everything it knows of the model goes through the
// public headers.
#include <dsv4/dsv4.hpp>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include "examples/dsv4-chat/failure.h"
#include "examples/dsv4-chat/start_group.h"
#include "examples/dsv4-server/arguments.h"
#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/http_server.h"
#include "examples/dsv4-server/metrics.h"
#include "examples/dsv4-server/scheduler.h"
#include "examples/dsv4-server/service.h"

namespace server {
namespace {

// Connections beside those of the most requests: idle ones, and those that ask how it goes.
constexpr size_t kFurtherConnections = 64;

// The signals that stop the server are for Stop() alone: threads that begin later block them too.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

// Waits for a signal, then for the requests that run, which a second one cancels.
void AwaitEnd(const sigset_t& signals, Scheduler* scheduler, Service* service) {
  int signal = 0;
  sigwait(&signals, &signal);
  service->Drain();
  scheduler->Drain();
  const timespec wait{0, 50'000'000};
  while (!scheduler->idle()) {
    if (sigtimedwait(&signals, nullptr, &wait) > 0) scheduler->CancelAll();
  }
}

std::string NameOf(const Arguments& arguments) {
  if (!arguments.served_name.empty()) return arguments.served_name;
  std::filesystem::path folder(arguments.model);
  if (!folder.has_filename()) folder = folder.parent_path();
  return folder.filename().string();
}

int Serve(const Arguments& arguments) {
  const sigset_t signals = BlockSignals();
  dsv4::EngineOptions options = arguments.engine;
  if (options.group_size > 0) std::fputs(chat::StartGroup(&options).c_str(), stderr);
  // A signal that comes while the model is loaded ends the program.
  options.progress = [&](const dsv4::ProgressReport&) {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGTERM) == 0 && sigismember(&pending, SIGINT) == 0;
  };
  const dsv4::Engine engine(arguments.model, options);
  engine.tokenizer();  // throws for a folder without one
  const Model model{engine, NameOf(arguments), arguments.thinking, arguments.encoder,
                    SecondsSince1970()};
  Metrics metrics;
  Scheduler scheduler(engine, &metrics, arguments.max_requests);
  Service service(model, &scheduler, &metrics, arguments.api_key);
  HttpServer http(arguments.max_requests + kFurtherConnections);
  service.Route(&http);
  const int port = http.Bind(arguments.host, arguments.port);
  std::atomic<bool> ended = false;
  std::thread listener([&] {
    http.listen_after_bind();
    ended = true;
  });
  // Before that, it would not stop.
  while (!http.is_running() && !ended) std::this_thread::yield();
  std::printf("dsv4-server: %s at http://%s:%d\n", model.name.c_str(), arguments.host.c_str(),
              port);
  std::fflush(stdout);
  AwaitEnd(signals, &scheduler, &service);
  http.Drain();
  http.stop();
  listener.join();
  return chat::kOk;
}

int Run(int argc, char** argv) {
  const Arguments arguments = ParseArguments(argc, argv);
  if (arguments.help) {
    std::fputs(HelpText().c_str(), stdout);
    return chat::kOk;
  }
  if (arguments.version) {
    std::printf("%s\n", dsv4_build_info());
    return chat::kOk;
  }
  if (arguments.model.empty())
    throw chat::Failure{chat::kUsageError, "no model: name its folder with --model DIR"};
  return Serve(arguments);
}

}  // namespace
}  // namespace server

int main(int argc, char** argv) {
  try {
    return server::Run(argc, argv);
  } catch (...) {
    return chat::ReportFailure("dsv4-server");
  }
}
