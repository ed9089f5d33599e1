// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/listener.h"

#include "examples/console/failure.h"

namespace server {

using boost::asio::ip::tcp;

Listener::~Listener() {
  if (socket_) CloseSocket(*socket_);
}

int Listener::Bind(const std::string& host, int port) {
  const auto fail = [&](const std::string& reason) {
    throw chat::Failure{chat::kRunTimeError,
                        "cannot listen on " + host + ":" + std::to_string(port) + ": " + reason};
  };
  boost::asio::io_context io{1};
  boost::system::error_code error;
  const auto addresses = tcp::resolver(io).resolve(
      host, std::to_string(port), tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error) fail(error.message());
  std::string reason;
  for (const auto& address : addresses) {
    if (const auto socket = Listen(address.endpoint(), &reason)) return Adopt(*socket);
  }
  fail(reason);
  return 0;
}

int Listener::Adopt(Socket listening) {
  socket_ = listening;
  return PortOf(listening);
}

}  // namespace server
