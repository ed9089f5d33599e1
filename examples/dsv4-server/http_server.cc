// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/http_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "examples/dsv4-chat/failure.h"

namespace server {
namespace {

constexpr int kIdleMs = 5000;    // between two requests of a connection
constexpr int kReadMs = 10000;   // within a request
constexpr int kWriteMs = 30000;  // that a reader may take none of what it is sent
constexpr int kPollMs = 50;      // after which draining_ is looked at
constexpr int kBacklog = 512;

// Bytes of one request: the library bounds bodies by the length that they state, which those in
// chunks do not.
constexpr size_t kMostRequestBytes = 16 << 20;
constexpr ssize_t kMostRest = 16 << 20;  // bytes of a body that is not wanted

thread_local int current_socket = -1;
thread_local bool close_afterwards = false;

// Waits for `events` of the socket.
bool Await(int socket, short events, int timeout_ms) {
  pollfd wait{socket, events, 0};
  return poll(&wait, 1, timeout_ms) > 0 && (wait.revents & events) != 0;
}

class SocketStream : public httplib::Stream {
 public:
  explicit SocketStream(int socket) : socket_(socket) {}

  bool is_readable() const override { return begin_ < end_ || Await(socket_, POLLIN, kReadMs); }
  bool is_writable() const override { return Await(socket_, POLLOUT, kWriteMs); }

  // A request begins.
  void Begin() { taken_ = 0; }

  ssize_t read(char* data, size_t size) override {
    if (begin_ == end_) {
      if (taken_ > kMostRequestBytes || !is_readable()) return -1;
      const ssize_t count = recv(socket_, buffer_, sizeof buffer_, 0);
      if (count <= 0) return count;
      begin_ = 0;
      end_ = static_cast<size_t>(count);
    }
    const size_t count = std::min(size, end_ - begin_);
    std::memcpy(data, buffer_ + begin_, count);
    begin_ += count;
    taken_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* data, size_t size) override {
    return is_writable() ? send(socket_, data, size, MSG_NOSIGNAL) : -1;
  }

  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

  // Whether a further request has begun to come.
  bool has_input(int timeout_ms) const {
    return begin_ < end_ || Await(socket_, POLLIN, timeout_ms);
  }

 private:
  int socket_;
  char buffer_[16384];
  size_t begin_ = 0, end_ = 0;
  size_t taken_ = 0;  // of the request
};

}  // namespace

HttpServer::HttpServer(size_t threads) {
  new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
  set_tcp_nodelay(true);
  set_idle_interval(0, kPollMs * 1000);  // after which StopAccepting is noticed
  // The library's own options let a second server take the same port.
  set_socket_options([this](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    listening_ = socket;
  });
}

int HttpServer::Bind(const std::string& host, int port) {
  const int bound = port == 0 ? bind_to_any_port(host) : bind_to_port(host, port) ? port : -1;
  if (bound < 0)
    throw chat::Failure{chat::kRunTimeError,
                        "cannot listen on " + host + ":" + std::to_string(port)};
  // The library's own queue holds 5 connections.
  ::listen(listening_, kBacklog);
  return bound;
}

bool HttpServer::ClientIsGone() {
  pollfd wait{current_socket, POLLRDHUP, 0};
  return poll(&wait, 1, 0) != 0;
}

void HttpServer::CloseAfterwards() { close_afterwards = true; }

bool HttpServer::process_and_close_socket(socket_t socket) {
  SocketStream stream(socket);
  current_socket = socket;
  close_afterwards = false;
  bool open = true;
  while (open && !close_afterwards) {
    int waited = 0;
    while (!draining_ && waited < kIdleMs && !stream.has_input(kPollMs)) waited += kPollMs;
    if (!stream.has_input(0)) break;
    stream.Begin();
    bool closed = false;
    open = process_request(stream, draining_, closed, nullptr) && !closed;
  }
  current_socket = -1;
  // What the client still sends must not take the answer away from it.
  shutdown(socket, SHUT_WR);
  char rest[16384];
  for (ssize_t total = 0, count = 1; count > 0 && total < kMostRest; total += count)
    count = Await(socket, POLLIN, kPollMs) ? recv(socket, rest, sizeof rest, MSG_DONTWAIT) : 0;
  close(socket);
  return true;
}

}  // namespace server
