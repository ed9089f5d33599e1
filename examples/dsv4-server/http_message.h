// SPDX-License-Identifier: Apache-2.0
// Requests and responses of HTTP as endpoints see them. Nothing here depends on the HTTP library.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace server {

struct HttpRequest {
  std::string method, target;
  std::string path, query;  // of the target, as they came: percent signs are not decoded
  // In the order of their arrival, names in lower case. Fields of trailers are not among them.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;

  // The value of the first header with this name, in lower case; "" for none.
  std::string_view Header(std::string_view name) const;
  bool HasHeader(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";  // of the content; "" for none
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
};

// Receives the answer to one request. Any thread may call the functions, one at a time. A reply
// that is destroyed before its answer is complete closes the connection.
class HttpReply {
 public:
  virtual ~HttpReply() = default;

  // The whole answer.
  virtual void Send(HttpResponse response) = 0;
  // An answer in pieces: its head, whose body is the first piece, then further ones. They are
  // kept until the client reads them. A client that leaves too many unread is cut off.
  virtual void Begin(HttpResponse response) = 0;
  virtual void Write(std::string piece) = 0;
  virtual void End() = 0;
  // `function` is called once, by any thread and without blocking it, if nobody reads the answer
  // any more: the client has closed its connection or its side of it, or was cut off. At once if
  // that has happened. Not after the end of the answer.
  virtual void OnGone(std::function<void()> function) = 0;
};

// Whether `text` names a token of HTTP's syntax, such as a method.
bool IsHttpToken(std::string_view text);

// Without spaces and tabs at both ends.
std::string_view Trimmed(std::string_view text);

// `text` in lower case, ASCII only.
std::string LowerCase(std::string_view text);

// Replaces %XX by bytes. Empty if a percent sign is not followed by two digits, or the result has
// control characters.
std::string PercentDecoded(std::string_view text);

}  // namespace server
