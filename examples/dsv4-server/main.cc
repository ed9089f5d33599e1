// SPDX-License-Identifier: Apache-2.0
// dsv4-server: a model behind OpenAI's API. Everything it knows of the model goes through the
// public headers.
#include <dsv4/dsv4.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "examples/console/command_line.h"
#include "examples/console/expectation.h"
#include "examples/console/failure.h"
#include "examples/console/hub_models.h"
#include "examples/console/progress_bar.h"
#include "examples/console/start_group.h"
#include "examples/console/user_cache.h"
#include "examples/dsv4-server/arguments.h"
#include "examples/dsv4-server/common_request.h"
#include "examples/dsv4-server/http_server.h"
#include "examples/dsv4-server/listener.h"
#include "examples/dsv4-server/log.h"
#include "examples/dsv4-server/metrics.h"
#include "examples/dsv4-server/model_info.h"
#include "examples/dsv4-server/notices.h"
#include "examples/dsv4-server/response_store.h"
#include "examples/dsv4-server/served.h"
#include "examples/dsv4-server/service.h"
#include "examples/dsv4-server/stop_events.h"
#include "examples/dsv4-server/supervisor.h"
#include "examples/dsv4-server/system_limits.h"
#include "examples/dsv4-server/trust.h"
#include "examples/dsv4-server/worker_process.h"
#include "examples/dsv4-server/workers.h"

namespace server {
namespace {

// Threads that read requests. They make way for the threads that compute.
constexpr size_t kReaders = 4;
constexpr int kReaderNiceness = 10;
// Threads that read requests whose grammars or texts take up to a second and some 64 MiB. They make
// way for the readers too.
constexpr size_t kCompilers = 2;
constexpr int kCompilerNiceness = 15;
constexpr size_t kWriters = 2;

constexpr int kRecoveries = 1;                  // from a lost device
constexpr std::chrono::milliseconds kWait{50};  // until what runs is looked at again

// Waits for a request to stop, then for the requests that run, which a second one cancels. False
// when a worker has lost its device.
bool AwaitEnd(bool is_worker, Scheduler* scheduler, HttpServer* http, Service* service) {
  StopEvent event = StopEvent::kNone;
  do {
    event = AwaitStopEvent();
  } while (event != StopEvent::kStop && !is_worker);
  if (event == StopEvent::kLost) return false;  // the device's state ends with the process
  service->Drain();
  scheduler->Drain();
  http->Drain();
  while (!scheduler->idle()) {
    if (AwaitStopEvent(kWait) == StopEvent::kStop) scheduler->CancelAll();
  }
  return true;
}

std::string NameOf(const Arguments& arguments) {
  return arguments.served_name.empty() ? NameOfFolder(arguments.model) : arguments.served_name;
}

// A line of the log every ten seconds while the model is loaded.
class LoadingLog {
 public:
  void Add(const dsv4::ProgressReport& report) {
    const Clock::time_point now = Clock::now();
    if (now - last_ < std::chrono::seconds(10) || report.total == 0) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    Log("loading: " + chat::ProgressText(report, seconds));
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now(), last_ = begin_;
};

dsv4::Engine Open(const Arguments& arguments) {
  dsv4::EngineOptions options = arguments.engine;
  if (options.group.size > 0) std::fputs(chat::StartGroup(&options).c_str(), stderr);
  if (const std::string expected = chat::ExpectationOf(arguments.model, options); !expected.empty())
    Log(expected);
  // A request to stop that comes while the model is loaded ends the program.
  options.progress = [log = LoadingLog()](const dsv4::ProgressReport& report) mutable {
    log.Add(report);
    return !StopWaits();
  };
  dsv4::Engine engine(arguments.model, options);
  engine.tokenizer();  // throws for a folder without one
  return engine;
}

// `restarts`: workers that were there before this one.
int Serve(const Arguments& arguments, const TrustOptions& trust, int port, int restarts,
          HttpServer* http) {
  const int64_t since = SecondsSince1970();
  Metrics metrics;
  metrics.CountReopening(static_cast<uint64_t>(restarts));
  Notices notices;
  ResponseStore responses;
  const auto model_of = [&](const dsv4::Engine& engine) {
    return Model{
        engine,    NameOf(arguments), arguments.thinking,  arguments.encoder,
        since,     arguments.aliases, arguments.any_model, {arguments.strict_fields, &notices},
        &responses};
  };
  const auto on_lost = [&] {
    if (!arguments.isolate) return;
    // The next worker has the connections that wait in the socket.
    http->StopAccepting();
    SendStopEvent(StopEvent::kLost);
  };
  Served served(
      Open(arguments), model_of, &metrics,
      {arguments.max_requests, arguments.suspend_after, arguments.isolate ? 0 : kRecoveries},
      on_lost);
  Workers readers(kReaders, kReaderNiceness), compilers(kCompilers, kCompilerNiceness);
  Workers writers(kWriters, 0), texts(1, kReaderNiceness);
  Service service(&served, &metrics, {&readers, &compilers, &writers, &texts}, trust);
  http->Start(&service);
  // Whoever started the program reads one such line.
  std::fprintf(restarts == 0 ? stdout : stderr, "dsv4-server: %s at http://%s:%d\n",
               NameOf(arguments).c_str(), arguments.host.c_str(), port);
  std::fflush(stdout);
  const bool complete = AwaitEnd(arguments.isolate, &served.scheduler, http, &service);
  http->Stop();
  // A lost device may keep whoever closes the engine waiting for ever.
  if (!complete) std::_Exit(LeaveWorkersPlace(chat::kDeviceLost));
  return chat::kOk;
}

// Other users can read the options of a process.
void HideKey(int argc, char** argv) {
  constexpr std::string_view kOption = "--api-key";
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    char* key = nullptr;
    if (text == kOption && i + 1 < argc) key = argv[i + 1];
    if (text.starts_with("--api-key=")) key = argv[i] + kOption.size() + 1;
    if (key != nullptr) std::memset(key, 'x', std::strlen(key));
  }
}

int Run(int argc, char** argv) {
  LimitKeptMemory();
  Arguments arguments = ParseArguments(argc, argv);
  if (const std::string text = chat::HelpOrVersion(arguments, HelpText()); !text.empty()) {
    return std::fputs(text.c_str(), stdout), chat::kOk;
  }
  if (arguments.model.empty())
    throw chat::Failure{chat::kUsageError,
                        "no model: name a folder, a GGUF file or OWNER/NAME with --model"};
  arguments.model = chat::FindModel(arguments.model);
  chat::KeepProfiles(&arguments.engine);
  KeepStopEvents();
  const TrustOptions trust{ReadApiKey(arguments.api_key, arguments.api_key_file),
                           IsLoopback(arguments.host), arguments.origins};
  HideKey(argc, argv);
  HttpServerLimits limits;
  limits.memory_bytes = arguments.connection_memory_mb << 20;
  Listener listener;
  const std::optional<int> earlier = arguments.isolate ? TakeWorkersPlace(&listener) : std::nullopt;
  const int port =
      earlier ? PortOf(listener.socket()) : listener.Bind(arguments.host, arguments.port);
  HttpServer http(limits, listener);
  const auto serve = [&](int restarts) { return Serve(arguments, trust, port, restarts, &http); };
  if (!arguments.isolate) return serve(0);
  const auto work = [&](int restarts) {
    try {
      return serve(restarts);
    } catch (...) {
      return chat::ReportFailure("dsv4-server");
    }
  };
  return earlier ? LeaveWorkersPlace(work(*earlier)) : Supervise(listener, work);
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
