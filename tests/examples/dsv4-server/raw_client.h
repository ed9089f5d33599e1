// SPDX-License-Identifier: Apache-2.0
// A client that sends bytes as they are, valid HTTP or not.
#pragma once

#include <string>

namespace dsv4::test {

// A TCP connection to a port of this machine.
class RawConnection {
 public:
  explicit RawConnection(int port, int receive_buffer = 0);
  RawConnection(RawConnection&& other) noexcept;
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // False if the other side has closed.
  bool Send(const std::string& bytes);
  void EndSending();
  // What comes until the other side closes or nothing has come for so long. *closed: it has closed.
  std::string Receive(double seconds, bool* closed = nullptr);
  // Some of what comes; "" after the other side has closed or `seconds` without a byte.
  std::string Some(double seconds);

 private:
  int socket_;
};

// The number of responses in `text`.
int CountOfResponses(const std::string& text);
// The status of the first one; 0 for none.
int StatusOf(const std::string& text);

}  // namespace dsv4::test
