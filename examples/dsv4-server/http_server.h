// SPDX-License-Identifier: Apache-2.0
// A server of HTTP/1.1 on Boost.Asio: one thread for all connections, whose number is limited by
// memory. When memory or descriptors are short, it ends the connection that has kept the server
// waiting for longest.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "examples/dsv4-server/http_connection.h"

namespace server {

class HttpServer {
 public:
  explicit HttpServer(const HttpServerLimits& limits);
  // Stops.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Listens, without accepting connections. Returns the port: `port`, or a free one if `port` is 0.
  // Throws a chat::Failure. A process may fork between this and Start.
  int Bind(const std::string& host, int port);
  // Starts the thread. `handler` must live until Stop.
  void Start(HttpHandler* handler);

  // Any thread, after Start.
  // Connections without a complete request end now, the others after their answer.
  void Drain();
  // New connections wait in the socket for another process that has it.
  void StopAccepting();
  // Drains, waits for answers that clients still read, up to a limit, and ends the thread.
  void Stop();

 private:
  class Pool;

  const HttpServerLimits limits_;
  int listener_ = -1;
  std::unique_ptr<Pool> pool_;
  std::thread thread_;
};

}  // namespace server
