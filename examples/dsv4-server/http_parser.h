// SPDX-License-Identifier: Apache-2.0
// The framing of one request, from bytes in pieces of any size: the head by Boost.Beast's parser
// behind checks that leave nothing to interpretation, the body by its length or a ChunkDecoder.
// What RFC 9112 forbids, or leaves to the recipient to refuse or repair, is refused: proxies in
// front of the server may read it otherwise. Knows no sockets.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "examples/dsv4-server/chunk_decoder.h"
#include "examples/dsv4-server/http_message.h"

namespace server {

struct HttpLimits {
  size_t head_bytes = 32 << 10;  // request line and headers
  size_t target_bytes = 8 << 10;
  size_t headers = 100;
  size_t body_bytes = 10 << 20;
};

class HttpParser {
 public:
  enum class State {
    kHead,     // the request line or a header is incomplete
    kBody,     // the head is complete, the body is not
    kDone,     // the request is complete
    kRefused,  // the connection must be closed
  };

  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();
  HttpParser(const HttpParser&) = delete;
  HttpParser& operator=(const HttpParser&) = delete;

  // Takes bytes of the connection. Returns how many belong to this request; the rest belongs to the
  // next one. Stops after the head, so that its sender can be refused before the body is read.
  size_t Feed(std::string_view bytes);

  State state() const { return state_; }
  // Whether bytes have come that belong to a request.
  bool begun() const { return head_bytes_ > 0; }
  // After kRefused: the status and the reason.
  int status() const { return status_; }
  const std::string& reason() const { return reason_; }

  // From kBody on. The body is there after kDone.
  HttpRequest& request() { return request_; }
  bool http10() const { return http10_; }
  // Whether the client allows a further request on the connection.
  bool keep_alive() const { return keep_alive_; }
  // The client waits for "100 Continue" before it sends the body.
  bool expects_continue() const { return expects_continue_; }
  // Bytes in memory for this request.
  size_t held_bytes() const;

 private:
  class Beast;

  size_t FeedHead(std::string_view bytes);
  size_t FeedBody(std::string_view bytes);
  // Checks one complete line of the head, without its end.
  void CheckLine(std::string_view line);
  void CheckRequestLine(std::string_view line);
  void EndHead();
  // Checks the headers that say where the request ends.
  void CheckFraming();
  void CheckTarget();
  void Refuse(int status, std::string reason);
  void RefuseBody();  // it is too long

  const HttpLimits limits_;
  State state_ = State::kHead;
  int status_ = 0;
  std::string reason_;
  std::string head_;  // until it is complete
  size_t head_bytes_ = 0, lines_ = 0, line_begin_ = 0;
  std::optional<ChunkDecoder> chunks_;  // of a body in chunks
  size_t length_ = 0;                   // of another body
  HttpRequest request_;
  bool http10_ = false, keep_alive_ = false, expects_continue_ = false;
  std::unique_ptr<Beast> beast_;
};

}  // namespace server
