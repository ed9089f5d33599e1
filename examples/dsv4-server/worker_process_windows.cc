// SPDX-License-Identifier: Apache-2.0
// The worker inherits two pipes, whose handles an environment variable names. By the one it gets
// the socket, then a byte for each request to stop; by the other it says with which code it ends by
// itself, so that another one that ends it, with whichever code, is told from that.
#include <windows.h>
#include <winsock2.h>

#include <boost/asio/error.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cwchar>
#include <string>
#include <thread>
#include <utility>

#include "examples/console/failure.h"
#include "examples/dsv4-server/stop_events.h"
#include "examples/dsv4-server/worker_process.h"

namespace server {
namespace {

constexpr wchar_t kVariable[] = L"DSV4_SERVER_WORKER";
constexpr std::chrono::milliseconds kLook{50};  // whether the worker has ended

class Handle {
 public:
  explicit Handle(HANDLE handle = nullptr) : handle_(handle) {}
  ~Handle() { Close(); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  HANDLE get() const { return handle_; }
  HANDLE* address() { return &handle_; }
  void Close() {
    if (handle_ != nullptr) CloseHandle(std::exchange(handle_, nullptr));
  }

 private:
  HANDLE handle_;
};

struct Order {
  WSAPROTOCOL_INFOW socket;
  int restarts;
};

[[noreturn]] void Fail(const std::string& what, DWORD error) {
  throw chat::Failure{
      chat::kRunTimeError,
      what + ": " + boost::system::system_category().message(static_cast<int>(error))};
}

[[noreturn]] void FailToStart() { Fail("no worker can be started", GetLastError()); }

bool WriteBytes(HANDLE pipe, const void* bytes, size_t size) {
  DWORD written = 0;
  return WriteFile(pipe, bytes, static_cast<DWORD>(size), &written, nullptr) && written == size;
}

bool ReadBytes(HANDLE pipe, void* bytes, size_t size) {
  DWORD read = 0;
  return ReadFile(pipe, bytes, static_cast<DWORD>(size), &read, nullptr) && read == size;
}

// A pipe of which the child inherits one end.
void MakePipe(Handle* read, Handle* write, const Handle& of_child) {
  if (!CreatePipe(read->address(), write->address(), nullptr, 0) ||
      !SetHandleInformation(of_child.get(), HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT))
    FailToStart();
}

std::wstring ThisProgram() {
  std::wstring path(MAX_PATH, L'\0');
  for (;;) {
    const DWORD size = GetModuleFileNameW(nullptr, path.data(), static_cast<DWORD>(path.size()));
    if (size == 0) FailToStart();
    if (size < path.size()) return path.substr(0, size);
    path.resize(path.size() * 2);
  }
}

// The child, which does not run yet. It ends with `job`, and that with this process.
void StartChild(const Handle& job, Handle* process, Handle* thread, DWORD* id) {
  STARTUPINFOW start{};
  start.cb = sizeof start;
  start.dwFlags = STARTF_USESTDHANDLES;
  start.hStdInput = GetStdHandle(STD_INPUT_HANDLE);
  start.hStdOutput = GetStdHandle(STD_OUTPUT_HANDLE);
  start.hStdError = GetStdHandle(STD_ERROR_HANDLE);
  std::wstring line = GetCommandLineW();
  PROCESS_INFORMATION started{};
  if (!CreateProcessW(ThisProgram().c_str(), line.data(), nullptr, nullptr, TRUE,
                      CREATE_SUSPENDED | CREATE_NEW_PROCESS_GROUP, nullptr, nullptr, &start,
                      &started))
    FailToStart();
  *process->address() = started.hProcess;
  *thread->address() = started.hThread;
  *id = started.dwProcessId;
  JOBOBJECT_EXTENDED_LIMIT_INFORMATION limits{};
  limits.BasicLimitInformation.LimitFlags = JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE;
  if (!SetInformationJobObject(job.get(), JobObjectExtendedLimitInformation, &limits,
                               sizeof limits) ||
      !AssignProcessToJobObject(job.get(), started.hProcess)) {
    const DWORD error = GetLastError();
    TerminateProcess(started.hProcess, chat::kRunTimeError);
    Fail("no worker can be started", error);
  }
}

std::string EndOf(DWORD code) {
  char text[64];
  // The system's own codes for a program's faults.
  if (code >= 0xC0000000)
    std::snprintf(text, sizeof text, "was ended by the exception 0x%08lX", code);
  else
    std::snprintf(text, sizeof text, "was ended from outside with the code %lu", code);
  return text;
}

// Requests to stop come from the parent alone, which gets the console's, too.
BOOL WINAPI IgnoreControl(DWORD event) {
  if (event != CTRL_C_EVENT && event != CTRL_BREAK_EVENT) Sleep(INFINITE);
  return TRUE;
}

HANDLE report = nullptr;  // where a worker says with which code it ends

}  // namespace

WorkerEnd RunWorker(const Listener& listener, const std::function<int(int)>&, int restarts) {
  Handle job(CreateJobObjectW(nullptr, nullptr));
  if (job.get() == nullptr) FailToStart();
  Handle child_orders, orders, reports, child_reports;
  MakePipe(&child_orders, &orders, child_orders);
  MakePipe(&reports, &child_reports, child_reports);
  const std::wstring handles = std::to_wstring(reinterpret_cast<uintptr_t>(child_orders.get())) +
                               L' ' +
                               std::to_wstring(reinterpret_cast<uintptr_t>(child_reports.get()));
  SetEnvironmentVariableW(kVariable, handles.c_str());
  Handle process, thread;
  DWORD id = 0;
  StartChild(job, &process, &thread, &id);
  SetEnvironmentVariableW(kVariable, nullptr);
  child_orders.Close();
  child_reports.Close();
  Order order{};
  order.restarts = restarts;
  if (WSADuplicateSocketW(listener.socket(), id, &order.socket) != 0)
    Fail("no worker can be given the socket", static_cast<DWORD>(WSAGetLastError()));
  if (!WriteBytes(orders.get(), &order, sizeof order)) FailToStart();
  ResumeThread(thread.get());

  WorkerEnd end;
  while (WaitForSingleObject(process.get(), 0) != WAIT_OBJECT_0) {
    if (AwaitStopEvent(kLook) != StopEvent::kStop) continue;
    end.stopped = true;
    WriteBytes(orders.get(), "s", 1);
  }
  DWORD code = 0;
  GetExitCodeProcess(process.get(), &code);
  end.exit_code = static_cast<int>(code);
  DWORD reported = 0;
  // Nobody else has the other end, so that this does not wait.
  if (!ReadBytes(reports.get(), &reported, sizeof reported)) end.ended = EndOf(code);
  return end;
}

std::optional<int> TakeWorkersPlace(Listener* listener) {
  wchar_t text[64];
  const DWORD size = GetEnvironmentVariableW(kVariable, text, 64);
  if (size == 0 || size >= 64) return std::nullopt;
  SetEnvironmentVariableW(kVariable, nullptr);
  unsigned long long orders = 0, reports = 0;
  Order order{};
  if (std::swscanf(text, L"%llu %llu", &orders, &reports) != 2 ||
      !ReadBytes(reinterpret_cast<HANDLE>(orders), &order, sizeof order))
    throw chat::Failure{chat::kUsageError,
                        "DSV4_SERVER_WORKER is set, and no dsv4-server has started this one"};
  const HANDLE pipe = reinterpret_cast<HANDLE>(orders);
  report = reinterpret_cast<HANDLE>(reports);
  const SOCKET socket = WSASocketW(FROM_PROTOCOL_INFO, FROM_PROTOCOL_INFO, FROM_PROTOCOL_INFO,
                                   &order.socket, 0, WSA_FLAG_OVERLAPPED);
  if (socket == INVALID_SOCKET)
    Fail("the worker cannot take the socket", static_cast<DWORD>(WSAGetLastError()));
  listener->Adopt(socket);
  SetConsoleCtrlHandler(IgnoreControl, TRUE);
  std::thread([pipe] {
    char one = 0;
    while (ReadBytes(pipe, &one, 1)) SendStopEvent(StopEvent::kStop);
  }).detach();
  return order.restarts;
}

int LeaveWorkersPlace(int exit_code) {
  const DWORD code = static_cast<DWORD>(exit_code);
  if (report != nullptr) WriteBytes(report, &code, sizeof code);
  return exit_code;
}

}  // namespace server
