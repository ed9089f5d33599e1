// SPDX-License-Identifier: Apache-2.0
// dsv4-server: a model behind OpenAI's API. Everything it knows of the model goes through the
// public headers.
#include <dsv4/dsv4.hpp>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "examples/dsv4-chat/command_line.h"
#include "examples/dsv4-chat/failure.h"
#include "examples/dsv4-chat/start_group.h"
#include "examples/dsv4-server/arguments.h"
#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/host.h"
#include "examples/dsv4-server/http_server.h"
#include "examples/dsv4-server/metrics.h"
#include "examples/dsv4-server/service.h"
#include "examples/dsv4-server/supervisor.h"

namespace server {
namespace {

// Connections above the limit of requests: idle ones, and those that ask for health or metrics.
constexpr size_t kFurtherConnections = 64;

constexpr int kLostSignal = SIGUSR1;                  // the device is lost
constexpr int kReopenings = 1;                        // of the model after a lost device
constexpr std::chrono::seconds kLongestFarewell{40};  // for answers that a worker still writes

// Signals are for those who wait for them: threads that begin later block them too.
sigset_t BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGCHLD, kLostSignal}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  sigdelset(&signals, SIGCHLD);
  return signals;
}

// Waits for a signal to stop, then for the requests that run, which a second one cancels. False
// when a worker has lost its device.
bool AwaitEnd(const sigset_t& signals, bool is_worker, Host* host, Service* service) {
  int signal = 0;
  for (sigwait(&signals, &signal); signal == kLostSignal; sigwait(&signals, &signal)) {
    if (is_worker) return false;  // the device's state ends with the process
    host->Reopen();
  }
  service->Drain();
  host->Drain();
  const timespec wait{0, 50'000'000};
  while (!host->idle()) {
    const int next = sigtimedwait(&signals, nullptr, &wait);
    if (next > 0 && next != kLostSignal) host->CancelAll();
  }
  return true;
}

std::string NameOf(const Arguments& arguments) {
  if (!arguments.served_name.empty()) return arguments.served_name;
  std::filesystem::path folder(arguments.model);
  if (!folder.has_filename()) folder = folder.parent_path();
  return folder.filename().string();
}

std::unique_ptr<Opened> Open(const Arguments& arguments, int64_t since, Metrics* metrics) {
  dsv4::EngineOptions options = arguments.engine;
  if (options.group_size > 0) std::fputs(chat::StartGroup(&options).c_str(), stderr);
  // A signal that comes while the model is loaded ends the program.
  options.progress = [&](const dsv4::ProgressReport&) {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGTERM) == 0 && sigismember(&pending, SIGINT) == 0;
  };
  dsv4::Engine engine(arguments.model, options);
  engine.tokenizer();  // throws for a folder without one
  const auto model_of = [&](const dsv4::Engine& opened) {
    return Model{opened, NameOf(arguments), arguments.thinking, arguments.encoder, since};
  };
  return std::make_unique<Opened>(std::move(engine), model_of, metrics,
                                  SchedulerLimits{arguments.max_requests, arguments.suspend_after});
}

// `restarts`: workers that were there before this one.
int Serve(const Arguments& arguments, const sigset_t& signals, int port, int restarts,
          HttpServer* http) {
  const int64_t since = SecondsSince1970();
  Metrics metrics;
  metrics.CountReopening(static_cast<uint64_t>(restarts));
  const auto open = [&] { return Open(arguments, since, &metrics); };
  // The next worker has the connections that wait in the socket.
  const auto on_lost = [&] {
    if (arguments.isolate) http->StopAccepting();
    kill(getpid(), kLostSignal);
  };
  Host host(open, arguments.isolate ? 0 : kReopenings, on_lost, &metrics);
  Service service(&host, &metrics, arguments.api_key);
  service.Route(http);
  std::atomic<bool> ended = false;
  std::thread listener([&] {
    http->listen_after_bind();
    ended = true;
  });
  // Before that, it would not stop.
  while (!http->is_running() && !ended) std::this_thread::yield();
  // Whoever started the program reads one such line.
  std::fprintf(restarts == 0 ? stdout : stderr, "dsv4-server: %s at http://%s:%d\n",
               NameOf(arguments).c_str(), arguments.host.c_str(), port);
  std::fflush(stdout);
  if (!AwaitEnd(signals, arguments.isolate, &host, &service)) {
    http->Drain();
    const auto end = std::chrono::steady_clock::now() + kLongestFarewell;
    while (!ended && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (ended) listener.join();
    // Without closing the engine, which may wait for the device for ever.
    _exit(chat::kDeviceLost);
  }
  http->Drain();
  http->stop();
  listener.join();
  return chat::kOk;
}

int Run(int argc, char** argv) {
  const Arguments arguments = ParseArguments(argc, argv);
  if (const std::string text = chat::HelpOrVersion(arguments, HelpText()); !text.empty()) {
    return std::fputs(text.c_str(), stdout), chat::kOk;
  }
  if (arguments.model.empty())
    throw chat::Failure{chat::kUsageError, "no model: name its folder with --model DIR"};
  const sigset_t signals = BlockSignals();
  HttpServer http(arguments.max_requests + kFurtherConnections);
  const int port = http.Bind(arguments.host, arguments.port);
  const auto serve = [&](int restarts) { return Serve(arguments, signals, port, restarts, &http); };
  if (!arguments.isolate) return serve(0);
  return Supervise([&](int restarts) {
    try {
      return serve(restarts);
    } catch (...) {
      return chat::ReportFailure("dsv4-server");
    }
  });
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
