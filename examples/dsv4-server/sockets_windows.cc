// SPDX-License-Identifier: Apache-2.0
#include <winsock2.h>
#include <ws2tcpip.h>

#include <boost/asio/post.hpp>
#include <boost/asio/windows/object_handle.hpp>
#include <system_error>
#include <utility>

#include "examples/dsv4-server/sockets.h"

namespace server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

tcp::endpoint AddressOf(Socket socket) {
  tcp::endpoint address;
  int size = static_cast<int>(address.capacity());
  if (getsockname(socket, address.data(), &size) == 0) address.resize(static_cast<size_t>(size));
  return address;
}

error_code LastError() { return {WSAGetLastError(), boost::system::system_category()}; }

}  // namespace

std::optional<Socket> Listen(const tcp::endpoint& address, std::string* reason) {
  const SOCKET candidate = WSASocketW(address.protocol().family(), SOCK_STREAM, IPPROTO_TCP,
                                      nullptr, 0, WSA_FLAG_OVERLAPPED | WSA_FLAG_NO_HANDLE_INHERIT);
  // Without it another program may take the port as well.
  const BOOL yes = TRUE;
  setsockopt(candidate, SOL_SOCKET, SO_EXCLUSIVEADDRUSE, reinterpret_cast<const char*>(&yes),
             sizeof yes);
  if (candidate != INVALID_SOCKET &&
      bind(candidate, address.data(), static_cast<int>(address.size())) == 0 &&
      listen(candidate, SOMAXCONN) == 0) {
    return candidate;
  }
  *reason = LastError().message();
  if (candidate != INVALID_SOCKET) closesocket(candidate);
  return std::nullopt;
}

int PortOf(Socket listening) { return AddressOf(listening).port(); }

void CloseSocket(Socket socket) { closesocket(socket); }

bool ClientClosed(Socket socket) {
  WSAPOLLFD wait{socket, POLLRDNORM, 0};
  return WSAPoll(&wait, 1, 0) == 1 && (wait.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

size_t MostConnections(size_t wanted) { return wanted; }  // memory alone limits them

// A completion port, which Asio's own acceptor takes, stays with a socket when its process has
// ended, and the next process cannot have one. An event can be given again.
struct Acceptor::State : std::enable_shared_from_this<State> {
  State(asio::io_context* io, Socket listening)
      : io(io), listening(listening), protocol(AddressOf(listening).protocol()), event(*io) {}

  // Takes a connection, or waits for one.
  void Take() {
    if (!done) return;
    const SOCKET taken = WSAAccept(listening, nullptr, nullptr, nullptr, 0);
    if (taken == INVALID_SOCKET && WSAGetLastError() == WSAEWOULDBLOCK) {
      event.async_wait([self = shared_from_this()](const error_code& error) {
        if (error) return;
        ResetEvent(self->event.native_handle());
        self->Take();
      });
      return;
    }
    error_code error;
    tcp::socket socket(*io);
    if (taken == INVALID_SOCKET) {
      error = LastError();
    } else {
      WSAEventSelect(taken, nullptr, 0);  // which it has of the one that listens
      socket.assign(protocol, taken, error);
      if (error) closesocket(taken);
    }
    std::exchange(done, nullptr)(error, std::move(socket));
  }

  asio::io_context* const io;
  const Socket listening;
  const tcp protocol;
  asio::windows::object_handle event;
  Done done;
};

Acceptor::Acceptor(asio::io_context* io, Socket listening)
    : state_(std::make_shared<State>(io, listening)) {
  const HANDLE event = CreateEventW(nullptr, TRUE, FALSE, nullptr);
  if (event == nullptr || WSAEventSelect(listening, event, FD_ACCEPT) != 0)
    throw std::system_error(static_cast<int>(GetLastError()), std::system_category(),
                            "a socket that listens cannot be waited for");
  state_->event.assign(event);
}

Acceptor::~Acceptor() { Close(); }

void Acceptor::Accept(Done done) {
  state_->done = std::move(done);
  asio::post(state_->io->get_executor(), [state = state_] { state->Take(); });
}

void Acceptor::Close() {
  state_->done = nullptr;
  if (!state_->event.is_open()) return;
  WSAEventSelect(state_->listening, nullptr, 0);
  error_code ignored;
  state_->event.close(ignored);
}

}  // namespace server
