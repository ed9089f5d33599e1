// SPDX-License-Identifier: Apache-2.0
// cpp-httplib's server, with two things that it lacks: handlers can ask whether their client is
// still there, and connections end soon when the server is to stop.
#pragma once

#include <httplib.h>

#include <atomic>
#include <string>

namespace server {

class HttpServer : public httplib::Server {
 public:
  // As many connections as `threads` are served at a time.
  explicit HttpServer(size_t threads);

  // Returns the port, another one than `port` when that is 0. Throws a chat::Failure.
  int Bind(const std::string& host, int port);

  // Connections end after the request that they are in.
  void Drain() { draining_ = true; }

  // This process accepts no further connection, and listening ends with those that it has. Others
  // wait in the socket, for another process that has it.
  void StopAccepting() { svr_sock_ = INVALID_SOCKET; }

  // In a handler or content provider, on its thread: the client has gone, or has closed its side
  // of the connection, after which it has no use for an answer that is not complete.
  static bool ClientIsGone();
  // The same: the connection ends after this answer. For requests whose body was not read.
  static void CloseAfterwards();

 private:
  bool process_and_close_socket(socket_t socket) override;

  std::atomic<bool> draining_ = false;
  std::atomic<int> listening_ = -1;
};

}  // namespace server
