// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/http_parser.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>

namespace server {
namespace {

namespace http = boost::beast::http;
using boost::beast::error_code;
using boost::beast::string_view;

std::string TextOf(string_view text) { return {text.data(), text.size()}; }

}  // namespace

// Receives what Beast finds in a head. Bodies are read here.
class HttpParser::Beast : public http::basic_parser<true> {
 public:
  Beast(HttpRequest* request, const HttpLimits& limits) : request_(request) {
    header_limit(static_cast<uint32_t>(limits.head_bytes + 1));
    body_limit(limits.body_bytes);
    eager(false);
  }

 private:
  void on_request_impl(http::verb, string_view method, string_view target, int,
                       error_code&) override {
    request_->method = TextOf(method);
    request_->target = TextOf(target);
  }
  void on_response_impl(int, string_view, int, error_code&) override {}
  void on_field_impl(http::field, string_view name, string_view value, error_code&) override {
    request_->headers.emplace_back(LowerCase(TextOf(name)), Trimmed(TextOf(value)));
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(boost::optional<uint64_t> const&, error_code&) override {}
  size_t on_body_impl(string_view, error_code&) override { return 0; }
  void on_chunk_header_impl(uint64_t, string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t, string_view, error_code&) override { return 0; }
  void on_finish_impl(error_code&) override {}

  HttpRequest* const request_;
};

HttpParser::HttpParser(const HttpLimits& limits)
    : limits_(limits), beast_(std::make_unique<Beast>(&request_, limits_)) {}

HttpParser::~HttpParser() = default;

void HttpParser::Refuse(int status, std::string reason) {
  state_ = State::kRefused;
  status_ = status;
  reason_ = std::move(reason);
  head_ = {};
  request_.body = {};
}

void HttpParser::RefuseBody() {
  Refuse(413, "the body is longer than " + std::to_string(limits_.body_bytes) + " bytes");
}

size_t HttpParser::held_bytes() const {
  size_t bytes = head_.capacity() + request_.body.capacity();
  for (const auto& [name, value] : request_.headers)
    bytes += sizeof(request_.headers[0]) + name.capacity() + value.capacity();
  return bytes;
}

size_t HttpParser::Feed(std::string_view bytes) {
  if (state_ == State::kHead) return FeedHead(bytes);
  if (state_ == State::kBody) return FeedBody(bytes);
  return 0;
}

size_t HttpParser::FeedHead(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    const bool after_cr = !head_.empty() && head_.back() == '\r';
    if (after_cr != (c == '\n')) {
      Refuse(400, "a line of the request's head does not end with CR LF");
      return i;
    }
    const bool text = c == '\r' || c == '\n' || c == '\t' || static_cast<unsigned char>(c) >= 0x20;
    if (!text || c == 0x7f || (head_.empty() && c != '\r' && !IsHttpToken({&c, 1}))) {
      Refuse(400, "the request's head has a byte that HTTP does not allow there");
      return i;
    }
    head_ += c;
    if (++head_bytes_ > limits_.head_bytes) {
      const bool in_target = lines_ == 0;
      Refuse(in_target ? 414 : 431,
             "the request's head is longer than " + std::to_string(limits_.head_bytes) + " bytes");
      return i;
    }
    if (c != '\n') continue;
    const std::string_view line =
        std::string_view(head_).substr(line_begin_, head_.size() - line_begin_ - 2);
    if (lines_ == 0 && line.empty()) {
      // An empty line may come before the first request line.
      if (head_bytes_ > 2) Refuse(400, "the request begins with empty lines");
      head_.clear();
      if (state_ == State::kRefused) return i;
      continue;
    }
    line_begin_ = head_.size();
    if (line.empty()) {
      EndHead();
      return i + 1;
    }
    CheckLine(line);
    if (state_ == State::kRefused) return i;
    ++lines_;
  }
  return bytes.size();
}

void HttpParser::CheckLine(std::string_view line) {
  if (lines_ == 0) return CheckRequestLine(line);
  if (lines_ > limits_.headers)
    return Refuse(431, "the request has more than " + std::to_string(limits_.headers) + " headers");
  const size_t colon = line.find(':');
  if (!IsHttpToken(line.substr(0, colon)) || colon == std::string_view::npos)
    Refuse(400, "a header is not a name, a colon and a value");
}

void HttpParser::CheckRequestLine(std::string_view line) {
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (!IsHttpToken(line.substr(0, first)) || first == last)
    return Refuse(400, "the request line is not a method, a target and a version");
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (target.size() > limits_.target_bytes)
    return Refuse(414,
                  "the target is longer than " + std::to_string(limits_.target_bytes) + " bytes");
  if (target.empty() || std::any_of(target.begin(), target.end(), [](char c) {
        return c <= 0x20 || c == 0x7f || c == '#' || c == '"' || c == '<' || c == '>';
      }))
    return Refuse(400, "the target has a character that a URI cannot have");
  http10_ = version == "HTTP/1.0";
  if (http10_ || version == "HTTP/1.1") return;
  const bool http = version.size() == 8 && version.substr(0, 5) == "HTTP/" && version[6] == '.';
  Refuse(http ? 505 : 400, "the version is not HTTP/1.1 or HTTP/1.0");
}

void HttpParser::EndHead() {
  error_code error;
  beast_->put(boost::asio::buffer(head_), error);
  if (!error && !beast_->is_header_done()) beast_->put(boost::asio::buffer(head_.data(), 0), error);
  if (error == http::error::body_limit) return RefuseBody();
  if (error) return Refuse(400, "the request's head is malformed: " + error.message());
  head_.clear();
  CheckFraming();
  if (state_ != State::kRefused) CheckTarget();
  if (state_ == State::kRefused) return;
  keep_alive_ = !http10_ && beast_->keep_alive();
  state_ = beast_->is_done() ? State::kDone : State::kBody;
  if (beast_->chunked()) {
    chunks_.emplace(limits_.body_bytes);
  } else if (const auto length = beast_->content_length()) {
    length_ = static_cast<size_t>(*length);
  }
}

void HttpParser::CheckFraming() {
  size_t hosts = 0, lengths = 0, encodings = 0, expectations = 0;
  for (const auto& [name, value] : request_.headers) {
    if (name == "host") {
      ++hosts;
      const bool bad = value.find_first_of(" \t,/@?#") != std::string::npos;
      if (bad) return Refuse(400, "Host is not a host and a port");
    } else if (name == "content-length") {
      const bool digits = !value.empty() && std::all_of(value.begin(), value.end(), [](char c) {
        return c >= '0' && c <= '9';
      });
      if (++lengths > 1 || !digits) return Refuse(400, "Content-Length is not one number");
    } else if (name == "transfer-encoding") {
      if (http10_) return Refuse(400, "HTTP/1.0 has no Transfer-Encoding");
      if (++encodings > 1 || LowerCase(value) != "chunked")
        return Refuse(501, "Transfer-Encoding is not chunked");
    } else if (name == "expect") {
      if (++expectations > 1 || LowerCase(value) != "100-continue")
        return Refuse(417, "Expect is not 100-continue");
    }
  }
  if (hosts > 1 || (hosts == 0 && !http10_))
    return Refuse(400, "the request has not exactly one Host");
  if (lengths > 0 && encodings > 0)
    return Refuse(400, "Content-Length and Transfer-Encoding exclude each other");
  const bool has_body = lengths > 0 || encodings > 0;
  if (!has_body &&
      (request_.method == "POST" || request_.method == "PUT" || request_.method == "PATCH"))
    return Refuse(411, "the request has no Content-Length");
  expects_continue_ = !http10_ && expectations > 0 && has_body;
}

void HttpParser::CheckTarget() {
  std::string_view target = request_.target;
  if (request_.method == "CONNECT")
    return Refuse(501, "CONNECT is for proxies, which this server is not");
  if (target != "*" && target[0] != '/') {
    const size_t scheme = target.find("://");
    const bool absolute =
        scheme != std::string_view::npos && (LowerCase(target.substr(0, scheme)) == "http" ||
                                             LowerCase(target.substr(0, scheme)) == "https");
    if (!absolute) return Refuse(400, "the target is neither a path nor a URI");
    target.remove_prefix(scheme + 3);
    const size_t end = std::min(target.find_first_of("/?"), target.size());
    const std::string authority(target.substr(0, end));
    if (authority.empty() || authority.find('@') != std::string::npos)
      return Refuse(400, "the target's authority is not a host and a port");
    // The target's authority replaces Host.
    for (auto& [name, value] : request_.headers) {
      if (name == "host") value = authority;
    }
    target.remove_prefix(end);
  }
  const size_t question = std::min(target.find('?'), target.size());
  request_.path = target.substr(0, question);
  if (request_.path.empty()) request_.path = "/";
  request_.query = target.substr(std::min(question + 1, target.size()));
}

size_t HttpParser::FeedBody(std::string_view bytes) {
  if (!chunks_) {
    const size_t taken = std::min(bytes.size(), length_ - request_.body.size());
    request_.body.append(bytes.substr(0, taken));
    if (request_.body.size() == length_) state_ = State::kDone;
    return taken;
  }
  const size_t taken = chunks_->Feed(bytes, &request_.body);
  switch (chunks_->state()) {
    case ChunkDecoder::State::kMore:
      break;
    case ChunkDecoder::State::kDone:
      state_ = State::kDone;
      break;
    case ChunkDecoder::State::kBad:
      Refuse(400, "the body's chunks are malformed");
      break;
    case ChunkDecoder::State::kTooLarge:
      RefuseBody();
      break;
    case ChunkDecoder::State::kTooLong:
      Refuse(400, "the body's chunks have headers that are too long");
  }
  return taken;
}

}  // namespace server
