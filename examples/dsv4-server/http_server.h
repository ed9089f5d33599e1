// SPDX-License-Identifier: Apache-2.0
// cpp-httplib's server with two additions: handlers can ask whether their client is still
// connected, and connections end soon when the server stops.
#pragma once

#include <httplib.h>

#include <atomic>
#include <string>

namespace server {

class HttpServer : public httplib::Server {
 public:
  // Serves up to `threads` connections at a time.
  explicit HttpServer(size_t threads);

  // Returns the port: `port`, or a free one if `port` is 0. Throws a chat::Failure.
  int Bind(const std::string& host, int port);

  // Connections end after the request that they are in.
  void Drain() { draining_ = true; }

  // Accepts no further connection. Listening ends when the present connections have ended. New ones
  // wait in the socket for another process that has it.
  void StopAccepting() { svr_sock_ = INVALID_SOCKET; }

  // For a handler or content provider, on its thread: whether the client has disconnected or closed
  // its side of the connection. Such a client cannot use an incomplete answer.
  static bool ClientIsGone();
  // Also for these: ends the connection after this answer. For requests whose body was not read.
  static void CloseAfterwards();

 private:
  bool process_and_close_socket(socket_t socket) override;

  std::atomic<bool> draining_ = false;
  std::atomic<int> listening_ = -1;
};

}  // namespace server
