// SPDX-License-Identifier: Apache-2.0
#include "tests/examples/dsv4-server/raw_client.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "tests/support/catch.h"

namespace dsv4::test {

RawConnection::RawConnection(int port, int receive_buffer)
    : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
  REQUIRE(socket_ >= 0);
  if (receive_buffer > 0)
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
}

RawConnection::RawConnection(RawConnection&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)) {}

RawConnection::~RawConnection() {
  if (socket_ >= 0) close(socket_);
}

bool RawConnection::Send(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

void RawConnection::EndSending() { shutdown(socket_, SHUT_WR); }

std::string RawConnection::Some(double seconds) {
  pollfd wait{socket_, POLLIN, 0};
  if (poll(&wait, 1, static_cast<int>(seconds * 1000)) <= 0) return "";
  char buffer[65536];
  const ssize_t count = recv(socket_, buffer, sizeof buffer, 0);
  return count > 0 ? std::string(buffer, static_cast<size_t>(count)) : "";
}

std::string RawConnection::Receive(double seconds, bool* closed) {
  std::string all;
  for (std::string some; !(some = Some(seconds)).empty();) all += some;
  pollfd wait{socket_, POLLIN, 0};
  if (closed != nullptr) *closed = poll(&wait, 1, 0) > 0;
  return all;
}

int CountOfResponses(const std::string& text) {
  int count = 0;
  for (size_t at = 0; (at = text.find("HTTP/1.1 ", at)) != std::string::npos; at += 9)
    count += at + 9 < text.size() && text[at + 9] >= '1' && text[at + 9] <= '5';
  return count;
}

int StatusOf(const std::string& text) {
  return text.starts_with("HTTP/1.1 ") ? std::atoi(text.c_str() + 9) : 0;
}

}  // namespace dsv4::test
