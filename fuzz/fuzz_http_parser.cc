// SPDX-License-Identifier: Apache-2.0
// Any bytes as the requests of a connection to dsv4-server. Pieces do not change what is
// understood: the bytes are given whole, and in pieces whose size the first byte says. What is
// understood as one request has one length, and no line of its head can be read otherwise.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "examples/dsv4-server/http_parser.h"

namespace {

using server::HttpParser;

void Require(bool holds) {
  if (!holds) __builtin_trap();
}

struct Outcome {
  std::vector<server::HttpRequest> requests;
  std::vector<size_t> ends;
  int status = 0;  // of the refusal
};

void CheckRequest(const server::HttpRequest& request, const server::HttpLimits& limits) {
  Require(server::IsHttpToken(request.method));
  Require(request.headers.size() <= limits.headers);
  Require(request.body.size() <= limits.body_bytes);
  Require(request.path == "*" || request.path.starts_with('/'));
  int lengths = 0, codings = 0, hosts = 0;
  for (const auto& [name, value] : request.headers) {
    Require(server::IsHttpToken(name) && name == server::LowerCase(name));
    Require(value.find_first_of(std::string_view("\0\r\n", 3)) == std::string::npos);
    lengths += name == "content-length";
    codings += name == "transfer-encoding";
    hosts += name == "host";
    if (name == "content-length") Require(std::stoull(value) == request.body.size());
  }
  Require(lengths + codings <= 1 && hosts <= 1);
  if (lengths + codings == 0) Require(request.body.empty());
}

Outcome Parse(std::string_view bytes, size_t piece) {
  server::HttpLimits limits;
  limits.body_bytes = 4096;
  Outcome outcome;
  size_t at = 0;
  while (at < bytes.size() && outcome.status == 0) {
    HttpParser parser(limits);
    while (at < bytes.size() && parser.state() != HttpParser::State::kDone &&
           parser.state() != HttpParser::State::kRefused)
      at += parser.Feed(bytes.substr(at, piece));
    if (parser.state() == HttpParser::State::kRefused) {
      outcome.status = parser.status();
      Require(outcome.status >= 400 && !parser.reason().empty());
    }
    if (parser.state() == HttpParser::State::kDone) {
      CheckRequest(parser.request(), limits);
      outcome.requests.push_back(std::move(parser.request()));
      outcome.ends.push_back(at);
    }
  }
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Outcome whole = Parse(bytes, bytes.size());
  const Outcome pieces = Parse(bytes, size_t{1} + data[0] % 31);
  Require(whole.ends == pieces.ends && whole.status == pieces.status);
  for (size_t i = 0; i < whole.requests.size(); ++i) {
    Require(whole.requests[i].body == pieces.requests[i].body);
    Require(whole.requests[i].headers == pieces.requests[i].headers);
  }
  return 0;
}
