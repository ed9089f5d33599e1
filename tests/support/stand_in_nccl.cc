// SPDX-License-Identifier: Apache-2.0
// A libnccl.so.2 for tests, that processes of one machine exchange with through sockets: all talk
// to the one that made the id, the hub. Its exchanges run as host functions of the stream, of the
// fake CUDA runtime (tests/support/fake_cuda_runtime.h), whose memory is the host's. Like NCCL it
// leaves an exchange whose other side is gone waiting until the communicator is aborted, and says
// so when it is asked.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "lib/device/cuda_runtime.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"

namespace {

constexpr int kSuccess = 0, kInvalid = 4, kRemote = 6, kInProgress = 7;

struct UniqueId {
  char bytes[128];
};
struct Config {
  size_t size;
  unsigned magic, version;
  int blocking;
};

dsv4::Mutex listeners_mutex;
std::map<std::string, int> listeners
    ABSL_GUARDED_BY(listeners_mutex);  // of the ids that were made here

sockaddr_un AddressOf(const UniqueId& id, socklen_t* bytes) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length =
      std::string(id.bytes).copy(address.sun_path + 1, sizeof address.sun_path - 1);
  *bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

struct Comm {
  int rank = 0, ranks = 0;
  bool hub = false;
  std::vector<int> sockets;  // hub: of each other rank; else [0]: the hub's
  std::atomic<int> state{kInProgress};
  std::atomic<bool> aborted{false};
  std::thread connecting;

  ~Comm() {
    if (connecting.joinable()) connecting.join();
    for (const int socket : sockets) {
      if (socket >= 0) close(socket);
    }
  }

  bool Fail() {
    state.store(kRemote);
    return false;
  }
  // Until the socket is ready, or the communicator aborted.
  bool Await(int socket, short events) {
    while (!aborted.load()) {
      pollfd one{socket, events, 0};
      if (poll(&one, 1, 5) > 0) return true;
    }
    return false;
  }
  bool Move(int socket, char* data, size_t bytes, bool out) {
    while (bytes > 0) {
      if (!Await(socket, out ? POLLOUT : POLLIN)) return false;
      const ssize_t moved = out ? send(socket, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                                : recv(socket, data, bytes, MSG_DONTWAIT);
      if (moved < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (moved <= 0) return Fail();
      data += moved;
      bytes -= static_cast<size_t>(moved);
    }
    return true;
  }
  bool Put(int to, const void* data, size_t bytes) {
    return Move(sockets[static_cast<size_t>(to)], static_cast<char*>(const_cast<void*>(data)),
                bytes, true);
  }
  bool Get(int from, void* data, size_t bytes) {
    return Move(sockets[static_cast<size_t>(from)], static_cast<char*>(data), bytes, false);
  }

  bool Connect(const UniqueId& id) {
    sockets.assign(static_cast<size_t>(ranks), -1);
    int listener = -1;
    {
      const dsv4::MutexLock lock(&listeners_mutex);
      const auto found = listeners.find(id.bytes);
      hub = found != listeners.end();
      if (hub) listener = found->second;
      if (hub) listeners.erase(found);
    }
    if (hub) {
      bool all = true;
      for (int joined = 1; all && joined < ranks; ++joined) {
        all = Await(listener, POLLIN);
        if (!all) break;
        const int socket = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
        int32_t from = 0;
        all = recv(socket, &from, sizeof from, MSG_WAITALL) == sizeof from;
        sockets[static_cast<size_t>(from)] = socket;
      }
      close(listener);
      return all || Fail();
    }
    socklen_t bytes = 0;
    const sockaddr_un address = AddressOf(id, &bytes);
    while (!aborted.load()) {
      const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (connect(socket, reinterpret_cast<const sockaddr*>(&address), bytes) == 0) {
        sockets[0] = socket;
        return send(socket, &rank, sizeof rank, MSG_NOSIGNAL) == sizeof rank || Fail();
      }
      close(socket);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  // What `root` has goes to all.
  bool Spread(int root, const void* from, void* to, size_t bytes) {
    if (rank == root && from != to) std::memmove(to, from, bytes);
    if (!hub) return rank == root ? Put(0, to, bytes) : Get(0, to, bytes);
    if (rank != root && !Get(root, to, bytes)) return false;
    for (int other = 0; other < ranks; ++other) {
      if (other != root && other != rank && !Put(other, to, bytes)) return false;
    }
    return true;
  }
};

// What a stream was given of a communicator; graphs give it again. It stays: they are few.
struct Exchange {
  Comm* comm;
  int root;  // -1: all-gather
  const void* from;
  void* to;
  size_t bytes;

  void Run() const {
    bool done = true;
    if (root >= 0) {
      done = comm->Spread(root, from, to, bytes);
    } else {
      for (int rank = 0; done && rank < comm->ranks; ++rank) {
        done = comm->Spread(rank, from, static_cast<char*>(to) + static_cast<size_t>(rank) * bytes,
                            bytes);
      }
    }
    while (!done && !comm->aborted.load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

int Enqueue(const Exchange& exchange, cudaStream_t stream) {
  if (exchange.comm->state.load() != kSuccess) return exchange.comm->state.load();
  const cudaError_t result = cudaLaunchHostFunc(
      stream, [](void* given) { static_cast<const Exchange*>(given)->Run(); },
      new Exchange(exchange));
  return result == cudaSuccess ? kSuccess : 1;
}

int Init(Comm** comm, int ranks, const UniqueId& id, int rank, bool blocking) {
  Comm* const made = new Comm;
  made->rank = rank;
  made->ranks = ranks;
  made->connecting = std::thread([made, id] {
    if (made->Connect(id)) made->state.store(kSuccess);
  });
  *comm = made;
  if (!blocking) return kInProgress;
  made->connecting.join();
  return made->state.load();
}

}  // namespace

extern "C" {

int ncclGetVersion(int* version) {
  const char* const told = std::getenv("DSV4_STAND_IN_NCCL_VERSION");
  *version = told == nullptr ? 22703 : std::atoi(told);
  return kSuccess;
}
const char* ncclGetErrorString(int result) {
  return result == kRemote ? "remote process exited or there was a network error" : "error";
}
int ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> made{0};
  *id = {};
  std::snprintf(id->bytes, sizeof id->bytes, "dsv4-stand-in-nccl-%d-%d", getpid(), made++);
  socklen_t bytes = 0;
  const sockaddr_un address = AddressOf(*id, &bytes);
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), bytes) != 0 ||
      listen(listener, 8) != 0) {
    return 2;
  }
  const dsv4::MutexLock lock(&listeners_mutex);
  listeners[id->bytes] = listener;
  return kSuccess;
}
int ncclCommInitAll(Comm**, int, const int*) { return kInvalid; }
int ncclCommInitRank(Comm** comm, int ranks, UniqueId id, int rank) {
  return Init(comm, ranks, id, rank, true);
}
int ncclCommInitRankConfig(Comm** comm, int ranks, UniqueId id, int rank, Config* config) {
  return Init(comm, ranks, id, rank, config->blocking != 0);
}
// Whoever still runs an exchange of it ends; it stays, for who may look at it. NCCL returns only
// when the graphs that recorded its exchanges are destroyed; here after
// DSV4_STAND_IN_NCCL_ABORT_MS.
int ncclCommAbort(Comm* comm) {
  comm->aborted.store(true);
  if (comm->connecting.joinable()) comm->connecting.join();
  for (int& socket : comm->sockets) {
    if (socket >= 0) shutdown(socket, SHUT_RDWR);
  }
  if (const char* const wait = std::getenv("DSV4_STAND_IN_NCCL_ABORT_MS"); wait != nullptr) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(wait)));
  }
  return kSuccess;
}
int ncclCommDestroy(Comm* comm) {
  delete comm;
  return kSuccess;
}
int ncclCommGetAsyncError(Comm* comm, int* error) {
  *error = comm->state.load();
  return kSuccess;
}
int ncclAllGather(const void* from, void* to, size_t count, int, Comm* comm, cudaStream_t stream) {
  return Enqueue({comm, -1, from, to, count}, stream);
}
int ncclBroadcast(const void* from, void* to, size_t count, int, int root, Comm* comm,
                  cudaStream_t stream) {
  return Enqueue({comm, root, from, to, count}, stream);
}
int ncclGroupStart() { return kSuccess; }
int ncclGroupEnd() { return kSuccess; }

}  // extern "C"
