// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/http_server.h"

#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "examples/console/failure.h"

namespace server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 1024;
constexpr std::chrono::milliseconds kSweep{250};
constexpr std::chrono::milliseconds kRetryAccept{50};  // when the process has no descriptor left
constexpr std::chrono::seconds kLastAnswers{30};       // that Stop waits for readers
constexpr size_t kManyBytes = 16 << 10;                // of a connection that ends for its memory
constexpr size_t kOtherDescriptors = 64;               // that the process needs besides connections

// Raises the limit of descriptors as far as allowed. Returns how many connections it admits.
size_t ConnectionsByDescriptors(size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  const rlim_t need = wanted + kOtherDescriptors;
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < need) {
    limit.rlim_cur = limit.rlim_max == RLIM_INFINITY ? need : std::min(limit.rlim_max, need);
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
  }
  if (limit.rlim_cur == RLIM_INFINITY) return wanted;
  const size_t most = limit.rlim_cur;
  return std::min(wanted, std::max<size_t>(most / 4, most - std::min(most, kOtherDescriptors)));
}

}  // namespace

// The connections, on their thread.
class HttpServer::Pool {
 public:
  Pool(const HttpServerLimits& limits, int listener, HttpHandler* handler)
      : acceptor_(shared_.io), retry_(shared_.io), sweep_(shared_.io) {
    shared_.handler = handler;
    shared_.limits = limits;
    shared_.limits.connections = ConnectionsByDescriptors(limits.connections);
    shared_.on_closed = [this](HttpConnection* closed) { connections_.erase(closed); };
    shared_.on_pressure = [this] { MakeRoom(); };
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
    const auto protocol = address.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4();
    // The listener stays open for other processes.
    acceptor_.assign(protocol, dup(listener));
    Accept();
    Sweep();
  }

  void Run() { shared_.io.run(); }

  template <class Function>
  void Post(Function function) {
    asio::post(shared_.io, std::move(function));
  }

  void Drain() {
    shared_.draining = true;
    for (const auto& connection : All()) connection->Drain();
  }

  void StopAccepting() {
    error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
  }

  void Stop() {
    Drain();
    StopAccepting();
    end_ = Clock::now() + kLastAnswers;
    stopping_ = true;
    EndIfDone();
  }

 private:
  using Connections = std::vector<std::shared_ptr<HttpConnection>>;

  // A copy, because connections leave the map when they close.
  Connections All() const {
    Connections all;
    all.reserve(connections_.size());
    for (const auto& [key, connection] : connections_) all.push_back(connection);
    return all;
  }

  void Accept() {
    acceptor_.async_accept([this](const error_code& error, asio::ip::tcp::socket socket) {
      if (error == asio::error::operation_aborted || !acceptor_.is_open()) return;
      if (error) {
        // Mostly that no descriptor is left.
        EndOldest();
        retry_.expires_after(kRetryAccept);
        retry_.async_wait([this](const error_code& cancelled) {
          if (!cancelled) Accept();
        });
        return;
      }
      while (connections_.size() >= shared_.limits.connections && EndOldest()) {
      }
      // If all are being answered, the new one is closed.
      if (connections_.size() < shared_.limits.connections) {
        auto connection = std::make_shared<HttpConnection>(std::move(socket), &shared_);
        connections_.emplace(connection.get(), connection);
        connection->Start();
      }
      Accept();
    });
  }

  // Ends the connection that has kept the server waiting for longest, of those with so many bytes.
  // False without one.
  bool EndOldest(size_t least_bytes = 0) {
    std::shared_ptr<HttpConnection> oldest;
    for (const auto& [key, connection] : connections_) {
      if (connection->waits_for_client() && connection->held_bytes() >= least_bytes &&
          (!oldest || connection->since() < oldest->since()))
        oldest = connection;
    }
    if (oldest) oldest->RefuseForMemory();
    if (oldest) oldest->Close();
    return oldest != nullptr;
  }

  void MakeRoom() {
    if (making_room_) return;
    making_room_ = true;
    // Those that only wait go first, then the readers that have left the most unread.
    while (shared_.held_bytes > shared_.limits.memory_bytes && EndOldest(kManyBytes)) {
    }
    while (shared_.held_bytes > shared_.limits.memory_bytes) {
      std::shared_ptr<HttpConnection> slowest;
      for (const auto& [key, connection] : connections_) {
        if (!slowest || connection->unread_bytes() > slowest->unread_bytes()) slowest = connection;
      }
      if (!slowest || slowest->unread_bytes() == 0) break;
      slowest->Close();
    }
    while (shared_.held_bytes > shared_.limits.memory_bytes && EndOldest()) {
    }
    making_room_ = false;
  }

  void Sweep() {
    sweep_.expires_after(kSweep);
    sweep_.async_wait([this](const error_code& cancelled) {
      if (cancelled) return;
      const Clock::time_point now = Clock::now();
      for (const auto& connection : All()) connection->CheckTime(now);
      EndIfDone();
      Sweep();
    });
  }

  void EndIfDone() {
    if (!stopping_ || (!connections_.empty() && Clock::now() < end_)) return;
    for (const auto& connection : All()) connection->Close();
    shared_.io.stop();
  }

  HttpShared shared_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer retry_, sweep_;
  std::unordered_map<HttpConnection*, std::shared_ptr<HttpConnection>> connections_;
  bool making_room_ = false, stopping_ = false;
  Clock::time_point end_;
};

HttpServer::HttpServer(const HttpServerLimits& limits) : limits_(limits) {}

HttpServer::~HttpServer() {
  if (thread_.joinable()) Stop();
  if (listener_ >= 0) close(listener_);
}

int HttpServer::Bind(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string name = host + ":" + std::to_string(port);
  if (const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list))
    throw chat::Failure{chat::kRunTimeError,
                        "cannot listen on " + name + ": " + gai_strerror(code)};
  std::string reason;
  for (const addrinfo* one = list; one != nullptr && listener_ < 0; one = one->ai_next) {
    const int candidate = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    setsockopt(candidate, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (candidate >= 0 && bind(candidate, one->ai_addr, one->ai_addrlen) == 0 &&
        listen(candidate, kBacklog) == 0) {
      listener_ = candidate;
    } else {
      reason = std::strerror(errno);
      if (candidate >= 0) close(candidate);
    }
  }
  freeaddrinfo(list);
  if (listener_ < 0)
    throw chat::Failure{chat::kRunTimeError, "cannot listen on " + name + ": " + reason};
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
  char service[NI_MAXSERV] = "";
  getnameinfo(reinterpret_cast<sockaddr*>(&address), size, nullptr, 0, service, sizeof service,
              NI_NUMERICSERV);
  return std::stoi(service);
}

void HttpServer::Start(HttpHandler* handler) {
  pool_ = std::make_unique<Pool>(limits_, listener_, handler);
  thread_ = std::thread([this] { pool_->Run(); });
}

void HttpServer::Drain() {
  pool_->Post([this] { pool_->Drain(); });
}

void HttpServer::StopAccepting() {
  pool_->Post([this] { pool_->StopAccepting(); });
}

void HttpServer::Stop() {
  pool_->Post([this] { pool_->Stop(); });
  thread_.join();
}

}  // namespace server
