// SPDX-License-Identifier: Apache-2.0
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "examples/dsv4-server/sockets.h"

namespace server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr int kBacklog = 1024;
constexpr size_t kOtherDescriptors = 64;  // that the process needs besides connections

tcp::endpoint AddressOf(Socket socket) {
  tcp::endpoint address;
  socklen_t size = static_cast<socklen_t>(address.capacity());
  if (getsockname(socket, address.data(), &size) == 0) address.resize(size);
  return address;
}

}  // namespace

std::optional<Socket> Listen(const tcp::endpoint& address, std::string* reason) {
  const Socket candidate = ::socket(address.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(candidate, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (candidate >= 0 &&
      bind(candidate, address.data(), static_cast<socklen_t>(address.size())) == 0 &&
      listen(candidate, kBacklog) == 0) {
    return candidate;
  }
  *reason = std::strerror(errno);
  if (candidate >= 0) close(candidate);
  return std::nullopt;
}

int PortOf(Socket listening) { return AddressOf(listening).port(); }

void CloseSocket(Socket socket) { close(socket); }

bool ClientClosed(Socket socket) {
  pollfd wait{socket, POLLRDHUP, 0};
  return poll(&wait, 1, 0) != 0;
}

size_t MostConnections(size_t wanted) {
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

struct Acceptor::State {
  explicit State(asio::io_context* io) : acceptor(*io) {}
  tcp::acceptor acceptor;
};

Acceptor::Acceptor(asio::io_context* io, Socket listening) : state_(std::make_shared<State>(io)) {
  state_->acceptor.assign(AddressOf(listening).protocol(), dup(listening));
}

Acceptor::~Acceptor() = default;

void Acceptor::Accept(Done done) {
  state_->acceptor.async_accept(
      [state = state_, done = std::move(done)](const error_code& error, tcp::socket socket) {
        if (error == asio::error::operation_aborted || !state->acceptor.is_open()) return;
        done(error, std::move(socket));
      });
}

void Acceptor::Close() {
  error_code ignored;
  state_->acceptor.close(ignored);
}

}  // namespace server
