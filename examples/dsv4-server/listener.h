// SPDX-License-Identifier: Apache-2.0
// The socket that the server listens on. It outlives a worker of --isolate.
#pragma once

#include <optional>
#include <string>

#include "examples/dsv4-server/sockets.h"

namespace server {

class Listener {
 public:
  Listener() = default;
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Listens, without accepting connections. Returns the port: `port`, or a free one if `port` is 0.
  // Throws a chat::Failure.
  int Bind(const std::string& host, int port);
  // Takes a socket that listens, and returns its port.
  int Adopt(Socket listening);

  // REQUIRES: one of these has been called.
  Socket socket() const { return *socket_; }

 private:
  std::optional<Socket> socket_;
};

}  // namespace server
