// SPDX-License-Identifier: Apache-2.0
// The framing of requests, byte by byte and in one piece.
#include "examples/dsv4-server/http_parser.h"

#include <string>

#include "tests/support/catch.h"

namespace server {
namespace {

using State = HttpParser::State;

// What becomes of `bytes`, given in pieces of `size`: the status of a refusal, else 200 for a
// complete request, else 0. *taken: how many bytes belong to it.
int StatusOf(const std::string& bytes, size_t size, size_t* taken, HttpRequest* request) {
  HttpParser parser(HttpLimits{});
  *taken = 0;
  while (*taken < bytes.size()) {
    const std::string piece = bytes.substr(*taken, size);
    size_t used = parser.Feed(piece);
    // The parser stops behind the head.
    if (used < piece.size() && parser.state() == State::kBody)
      used += parser.Feed(std::string_view(piece).substr(used));
    *taken += used;
    if (parser.state() == State::kRefused) return parser.status();
    if (parser.state() == State::kDone) {
      *request = std::move(parser.request());
      return 200;
    }
  }
  return 0;
}

// The same in one piece, and in pieces of 1, 2, 3 and 7 bytes.
int StatusOf(const std::string& bytes, size_t* taken, HttpRequest* request) {
  const int status = StatusOf(bytes, bytes.size(), taken, request);
  for (const size_t size : {1, 2, 3, 7}) {
    size_t other_taken = 0;
    HttpRequest other;
    INFO(bytes.substr(0, 200) << " in pieces of " << size);
    REQUIRE(StatusOf(bytes, size, &other_taken, &other) == status);
    if (status == 200) {
      CHECK(other_taken == *taken);
      CHECK(other.body == request->body);
      CHECK(other.headers == request->headers);
    }
  }
  return status;
}

int StatusOf(const std::string& bytes) {
  size_t taken = 0;
  HttpRequest request;
  return StatusOf(bytes, &taken, &request);
}

std::string Post(const std::string& headers, const std::string& body = "{\"a\":1}") {
  return "POST /v1/completions HTTP/1.1\r\nHost: a\r\n" + headers + "\r\n" + body;
}

}  // namespace

TEST_CASE("A request ends where its length or its last chunk says, and the next one follows") {
  const std::string next = "GET /health HTTP/1.1\r\n";
  const struct {
    std::string bytes;
    const char* body;
  } kCases[] = {
      {"GET /health?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", ""},
      {"\r\nGET /health?x=1 HTTP/1.1\r\nHost: a\r\n\r\n", ""},
      {"GET /health?x=1 HTTP/1.0\r\n\r\n", ""},
      {"GET http://a/health?x=1 HTTP/1.1\r\nHost: other\r\n\r\n", ""},
      {"DELETE /health?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nxy", "xy"},
      {"POST /health?x=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", ""},
      {"POST /health?x=1 HTTP/1.1\r\nhOST:a\r\ncontent-length:  7\t\r\n\r\n{\"a\":1}", "{\"a\":1}"},
      {"POST /health?x=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
       "3;e=\"f\"\r\n{\"a\r\n04\r\n\":1}\r\n0\r\n\r\n",
       "{\"a\":1}"},
      {"POST /health?x=1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
       "7\r\n{\"a\":1}\r\n0\r\nX-Sum: 1\r\nHost: b\r\n\r\n",
       "{\"a\":1}"},
  };
  for (const auto& [bytes, body] : kCases) {
    size_t taken = 0;
    HttpRequest request;
    INFO(bytes);
    CHECK(StatusOf(bytes + next, &taken, &request) == 200);
    CHECK(taken == bytes.size());
    CHECK(request.body == body);
    CHECK(request.path == "/health");
    CHECK(request.query == "x=1");
    CHECK(!request.HasHeader("x-sum"));
    if (bytes.find("HTTP/1.0") == std::string::npos) CHECK(request.Header("host") == "a");
    CHECK(StatusOf(bytes.substr(0, bytes.size() - 1)) == 0);
  }
}

TEST_CASE("What RFC 9112 forbids is refused") {
  const std::string length = "Content-Length: 7\r\n", chunked = "Transfer-Encoding: chunked\r\n";
  const std::string chunks = "7\r\n{\"a\":1}\r\n0\r\n\r\n";
  const struct {
    std::string bytes;
    int status = 400;
  } kCases[] = {
      {Post(length + "Content-Length: 5\r\n")},
      {Post(length + length)},
      {Post("Content-Length: 7, 7\r\n")},
      {Post("Content-Length: +7\r\n")},
      {Post("Content-Length: -7\r\n")},
      {Post("Content-Length: 7x\r\n")},
      {Post("Content-Length: 7 7\r\n")},
      {Post("Content-Length: 0x7\r\n")},
      {Post("Content-Length: 1e0\r\n")},
      {Post("Content-Length:\r\n")},
      {Post("Content-Length: 18446744073709551623\r\n")},
      {Post("Content-Length: 10485761\r\n"), 413},
      {Post("Content-Length : 7\r\n")},
      {Post("Content-Length:\r\n 7\r\n")},
      {Post(length + chunked, chunks)},
      {Post(chunked + length, chunks)},
      {Post(chunked + chunked, chunks)},
      {Post("Transfer-Encoding: gzip, chunked\r\n", chunks), 501},
      {Post("Transfer-Encoding: chunked, identity\r\n", chunks), 501},
      {Post("Transfer-Encoding: identity\r\n", chunks), 501},
      {Post("Transfer-Encoding: xchunked\r\n", chunks), 501},
      {Post("Transfer-Encoding: chunked\x0b\r\n", chunks)},
      {Post("Transfer-Encoding:\r\n chunked\r\n", chunks)},
      {Post(chunked, "-7\r\n{\"a\":1}\r\n0\r\n\r\n")},
      {Post(chunked, "+7\r\n{\"a\":1}\r\n0\r\n\r\n")},
      {Post(chunked, " 7\r\n{\"a\":1}\r\n0\r\n\r\n")},
      {Post(chunked, "0x7\r\n{\"a\":1}\r\n0\r\n\r\n")},
      {Post(chunked, "\r\n{\"a\":1}\r\n0\r\n\r\n")},
      {Post(chunked, "7\n{\"a\":1}\r\n0\r\n\r\n")},
      {Post(chunked, "7\r\n{\"a\":1}0\r\n\r\n\r\n")},
      {Post(chunked, "7 \r\n{\"a\":1}\r\n0\r\n\r\n")},
      {Post(chunked, "7;a=\"b\nc\"\r\n{\"a\":1}\r\n0\r\n\r\n")},
      {Post(chunked, "7;a=\"b\r\n{\"a\":1}\r\n0\r\n\r\n")},
      {Post(chunked, "7;a=\"b\r\n\"\r\n{\"a\":1}\r\n0\r\n\r\n")},
      {Post(chunked, "7;a\x01\r\n{\"a\":1}\r\n0\r\n\r\n")},
      {Post(chunked, "7;a\r{\"a\":1}\r\n0\r\n\r\n")},
      {Post(chunked, "7\r\n{\"a\":1}\n0\r\n\r\n")},
      {Post(chunked, "7\r\n{\"a\":1}\r\n0\r\nX: y\n\r\n")},
      {Post(chunked, "7\r\n{\"a\":1}\r\n0\r\nX : y\r\n\r\n")},
      {Post(chunked, "7\r\n{\"a\":1}\r\n0\r\n y\r\n\r\n")},
      {Post(chunked, "7\r\n{\"a\":1}\r\n0\r\n\rx")},
      {Post(chunked, "10000000000000007\r\n{\"a\":1}\r\n0\r\n\r\n"), 413},
      {Post(chunked, "FFFFFFFFFFFFFFFF\r\n{\"a\":1}\r\n0\r\n\r\n"), 413},
      {Post(chunked, "A00001\r\n{\"a\":1}\r\n0\r\n\r\n"), 413},
      {Post(""), 411},
      {Post(length + "Expect: nothing\r\n"), 417},
      {"GET / HTTP/1.1\r\n\r\n"},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"},
      {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"},
      {"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n"},
      {"GET / HTTP/1.1\nHost: a\n\n"},
      {"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n"},
      {"GET / HTTP/1.1\r\nHost: a\r\nX: b\rY: c\r\n\r\n"},
      {std::string("GET / HTTP/1.1\r\nHost: a\r\nX: b\0c\r\n\r\n", 35)},
      {"GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n"},
      {"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n"},
      {"GET / HTTP/1.1\r\nHost: a\r\nX Y: b\r\n\r\n"},
      {"GET / HTTP/1.1\r\n Host: a\r\n\r\n"},
      {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n"},
      {"GET /\r\n\r\n"},
      {"GET / a HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"GET /#a HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"GET a HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"GET / HTTX/1.1\r\nHost: a\r\n\r\n"},
      {"GET / http/1.1\r\nHost: a\r\n\r\n"},
      {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505},
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"G(T / HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"},
      {"\x16\x03\x01\x02"},
      {"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", 501},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"GET /" + std::string(9000, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
  };
  for (const auto& [bytes, status] : kCases) {
    INFO(bytes.substr(0, 200));
    CHECK(StatusOf(bytes) == status);
  }
}

TEST_CASE("Heads and framing are bounded") {
  const std::string begin = "GET / HTTP/1.1\r\nHost: a\r\n";
  const auto with_headers = [&](int count) {
    std::string bytes = begin;
    for (int i = 0; i < count; ++i) bytes += "X: a\r\n";
    return StatusOf(bytes + "\r\n");
  };
  CHECK(with_headers(99) == 200);
  CHECK(with_headers(100) == 431);
  CHECK(StatusOf(begin + "X: " + std::string(30 << 10, 'a') + "\r\n\r\n") == 200);
  CHECK(StatusOf(begin + "X: " + std::string(32 << 10, 'a')) == 431);
  const std::string chunked = Post("Transfer-Encoding: chunked\r\n", "");
  CHECK(StatusOf(chunked + "1;" + std::string(20000, 'a')) == 400);
  CHECK(StatusOf(chunked + "0\r\nX: " + std::string(20000, 'a')) == 400);
  std::string padded = chunked;
  for (int i = 0; i < 1500; ++i) padded += "1;" + std::string(4000, 'a') + "\r\nx\r\n";
  size_t taken = 0;
  HttpRequest request;
  CHECK(StatusOf(padded, 65536, &taken, &request) == 400);
  CHECK(taken < 5 << 20);
}

}  // namespace server
