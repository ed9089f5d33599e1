// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/http_server.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <unordered_map>
#include <utility>
#include <vector>

#include "examples/dsv4-server/sockets.h"

namespace server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSweep{250};
constexpr std::chrono::milliseconds kRetryAccept{50};  // when the process has no descriptor left
constexpr std::chrono::seconds kLastAnswers{30};       // that Stop waits for readers
constexpr size_t kManyBytes = 16 << 10;                // of a connection that ends for its memory

}  // namespace

// The connections, on their thread.
class HttpServer::Pool {
 public:
  Pool(const HttpServerLimits& limits, Socket listening, HttpHandler* handler)
      : acceptor_(&shared_.io, listening), retry_(shared_.io), sweep_(shared_.io) {
    shared_.handler = handler;
    shared_.limits = limits;
    shared_.limits.connections = MostConnections(limits.connections);
    shared_.on_closed = [this](HttpConnection* closed) { connections_.erase(closed); };
    shared_.on_pressure = [this] { MakeRoom(); };
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
    acceptor_.Close();
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
    acceptor_.Accept([this](const error_code& error, asio::ip::tcp::socket socket) {
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
  Acceptor acceptor_;
  asio::steady_timer retry_, sweep_;
  std::unordered_map<HttpConnection*, std::shared_ptr<HttpConnection>> connections_;
  bool making_room_ = false, stopping_ = false;
  Clock::time_point end_;
};

HttpServer::HttpServer(const HttpServerLimits& limits, const Listener& listener)
    : limits_(limits), listener_(listener) {}

HttpServer::~HttpServer() {
  if (thread_.joinable()) Stop();
}

void HttpServer::Start(HttpHandler* handler) {
  pool_ = std::make_unique<Pool>(limits_, listener_.socket(), handler);
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
