// SPDX-License-Identifier: Apache-2.0
// A server of HTTP/1.1 on Boost.Asio: one thread for all connections, whose number is limited by
// memory. When memory or descriptors are short, it ends the connection that has kept the server
// waiting for longest.
#pragma once

#include <memory>
#include <thread>

#include "examples/dsv4-server/http_connection.h"
#include "examples/dsv4-server/listener.h"

namespace server {

class HttpServer {
 public:
  // `listener` outlives this object.
  HttpServer(const HttpServerLimits& limits, const Listener& listener);
  // Stops.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Starts the thread. `handler` must live until Stop. REQUIRES: the listener listens. A process
  // may fork before this.
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
  const Listener& listener_;
  std::unique_ptr<Pool> pool_;
  std::thread thread_;
};

}  // namespace server
