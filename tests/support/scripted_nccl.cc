// SPDX-License-Identifier: Apache-2.0
// A libnccl.so.2 for tests that connects devices of one process, or does not: DSV4_SCRIPTED_NCCL
// says what goes wrong, at each call. "start": the start never returns. "exchange": exchanges never
// end, until the communicator is aborted. A stream's handle is a std::atomic<bool>, which is true
// while work of the stream runs.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace {

constexpr int kSuccess = 0;

struct Comm {
  std::atomic<std::atomic<bool>*> busy{nullptr};
};

bool Fails(const char* what) {
  const char* const script = std::getenv("DSV4_SCRIPTED_NCCL");
  return script != nullptr && std::strcmp(script, what) == 0;
}

int Exchange(void* comm, void* stream) {
  if (!Fails("exchange")) return kSuccess;
  auto* const busy = static_cast<std::atomic<bool>*>(stream);
  static_cast<Comm*>(comm)->busy.store(busy);
  busy->store(true);
  return kSuccess;
}

}  // namespace

// With the parameters by which lib/dist/nccl.h calls them: sanitizers compare the types.
extern "C" {

int ncclGetVersion(int* version) {
  const char* const told = std::getenv("DSV4_SCRIPTED_NCCL_VERSION");
  *version = told == nullptr ? 22703 : std::atoi(told);
  return kSuccess;
}
const char* ncclGetErrorString(int) { return "error"; }
int ncclCommInitAll(void** comms, int count, const int*) {
  if (Fails("start")) std::this_thread::sleep_for(std::chrono::hours(24));  // its thread is left
  for (int i = 0; i < count; ++i) comms[i] = new Comm;
  return kSuccess;
}
int ncclGetUniqueId(void*) { return 4; }
int ncclCommInitRank() { return 4; }
int ncclCommInitRankConfig() { return 4; }
int ncclCommAbort(void* comm) {
  auto* const own = static_cast<Comm*>(comm);
  if (std::atomic<bool>* const busy = own->busy.load(); busy != nullptr) busy->store(false);
  delete own;
  return kSuccess;
}
int ncclCommDestroy(void* comm) {
  delete static_cast<Comm*>(comm);
  return kSuccess;
}
int ncclCommGetAsyncError(void*, int* error) {
  *error = kSuccess;
  return kSuccess;
}
int ncclAllGather(const void*, void*, size_t, int, void* comm, void* stream) {
  return Exchange(comm, stream);
}
int ncclBroadcast(const void*, void*, size_t, int, int, void* comm, void* stream) {
  return Exchange(comm, stream);
}
int ncclGroupStart() { return kSuccess; }
int ncclGroupEnd() { return kSuccess; }

}  // extern "C"
