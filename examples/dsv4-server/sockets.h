// SPDX-License-Identifier: Apache-2.0
// What Boost.Asio leaves to the system: sockets that several processes listen on, one after
// another, and clients that have gone.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace server {

using Socket = boost::asio::ip::tcp::socket::native_handle_type;

// Listens at `address`, for this process and those that it starts. Nothing, with the reason, if
// that cannot be.
std::optional<Socket> Listen(const boost::asio::ip::tcp::endpoint& address, std::string* reason);
int PortOf(Socket listening);
void CloseSocket(Socket socket);

// Whether the client has closed its side, also while its bytes are not read.
bool ClientClosed(Socket socket);

// How many of `wanted` connections the system admits to this process. Raises its limit as far as
// allowed.
size_t MostConnections(size_t wanted);

// Takes connections from a socket that stays open, and keeps them waiting, for the next process.
// For the thread of `io`.
class Acceptor {
 public:
  using Done = std::function<void(const boost::system::error_code&, boost::asio::ip::tcp::socket)>;

  Acceptor(boost::asio::io_context* io, Socket listening);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Calls `done` once, from the loop: with the next connection, or the error of taking it. Not
  // after Close.
  void Accept(Done done);
  void Close();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace server
