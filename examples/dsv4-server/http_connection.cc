// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/http_connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/status.hpp>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <mutex>

#include "examples/dsv4-server/sockets.h"

namespace server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr size_t kConnectionBytes = 4 << 10;  // charged for a connection as such
constexpr size_t kMostAhead = 64 << 10;       // received of further requests during an answer
constexpr size_t kMostDiscarded = 32 << 20;   // received of a refused request
constexpr size_t kKeptCapacity = 16 << 10;    // of a buffer that is empty

std::string DateNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  char text[40];
  std::snprintf(text, sizeof text, "%s, %02d %s %d %02d:%02d:%02d GMT", kDays[parts.tm_wday],
                parts.tm_mday, kMonths[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour,
                parts.tm_min, parts.tm_sec);
  return text;
}

std::string HexOf(size_t number) {
  char text[24];
  std::snprintf(text, sizeof text, "%zx", number);
  return text;
}

// Frees the memory of a string that was large.
void Clear(std::string* text) {
  text->clear();
  if (text->capacity() > kKeptCapacity) std::string().swap(*text);
}

}  // namespace

// Tells whoever answers a request that its client has gone.
struct HttpConnection::Departure {
  std::mutex mutex;
  bool gone = false;
  std::function<void()> function;

  void Happen() {
    std::function<void()> call;
    {
      const std::lock_guard lock(mutex);
      gone = true;
      call = std::exchange(function, nullptr);
    }
    if (call) call();
  }
};

// Passes an answer from any thread to the connection's.
class HttpConnection::Reply : public HttpReply {
 public:
  Reply(std::shared_ptr<HttpConnection> connection, uint64_t number,
        std::shared_ptr<Departure> departure)
      : connection_(std::move(connection)), number_(number), departure_(std::move(departure)) {}

  // A connection that ends with its last answer ends on its own thread, too.
  ~Reply() override {
    asio::io_context& io = connection_->shared_->io;
    asio::post(io, [connection = std::move(connection_), number = number_, complete = complete_] {
      if (!complete) connection->Abandon(number);
    });
  }

  void Send(HttpResponse response) override {
    complete_ = true;
    Post([response = std::move(response)](HttpConnection* c, uint64_t number) {
      c->Send(number, response);
    });
  }
  void Begin(HttpResponse response) override {
    Post([response = std::move(response)](HttpConnection* c, uint64_t number) {
      c->Begin(number, response);
    });
  }
  void Write(std::string piece) override {
    Post([piece = std::move(piece)](HttpConnection* c, uint64_t number) {
      c->Write(number, piece);
    });
  }
  void End() override {
    complete_ = true;
    Post([](HttpConnection* c, uint64_t number) { c->End(number); });
  }
  void OnGone(std::function<void()> function) override {
    {
      const std::lock_guard lock(departure_->mutex);
      if (!departure_->gone) {
        departure_->function = std::move(function);
        return;
      }
    }
    function();
  }

 private:
  template <class Function>
  void Post(Function function) {
    asio::post(connection_->shared_->io,
               [connection = connection_, number = number_, function = std::move(function)] {
                 function(connection.get(), number);
               });
  }

  std::shared_ptr<HttpConnection> connection_;
  const uint64_t number_;
  const std::shared_ptr<Departure> departure_;
  bool complete_ = false;
};

HttpConnection::HttpConnection(asio::ip::tcp::socket socket, HttpShared* shared)
    : socket_(std::move(socket)), shared_(shared) {}

HttpConnection::~HttpConnection() { shared_->held_bytes -= charged_; }

void HttpConnection::Start() {
  error_code ignored;
  socket_.non_blocking(true, ignored);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  Charge();
  AwaitInput();
}

void HttpConnection::EnterPhase(Phase phase) {
  phase_ = phase;
  since_ = Clock::now();
}

void HttpConnection::Charge() {
  size_t bytes = kConnectionBytes + in_.capacity() + out_.capacity() + request_bytes_;
  if (parser_) bytes += parser_->held_bytes();
  if (phase_ == Phase::kClosed) bytes = 0;
  shared_->held_bytes += bytes - charged_;
  const bool more = bytes > charged_;
  charged_ = bytes;
  if (more && shared_->held_bytes > shared_->limits.memory_bytes) shared_->on_pressure();
}

void HttpConnection::Close() {
  if (phase_ == Phase::kClosed) return;
  const auto self = shared_from_this();
  EnterPhase(Phase::kClosed);
  if (const auto departure = std::exchange(departure_, nullptr)) departure->Happen();
  error_code ignored;
  socket_.close(ignored);
  parser_.reset();
  request_bytes_ = 0;
  std::string().swap(in_);
  std::string().swap(out_);
  out_begin_ = 0;
  Charge();
  shared_->on_closed(this);
}

void HttpConnection::AwaitInput() {
  if (reading_ || phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kAnswering && in_.size() >= kMostAhead) return;
  reading_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](const error_code& error) {
                       self->reading_ = false;
                       if (self->phase_ == Phase::kClosed) return;
                       if (error) return self->Close();
                       self->OnReadable();
                     });
}

void HttpConnection::OnReadable() {
  error_code error;
  const size_t count = socket_.read_some(asio::buffer(shared_->input), error);
  if (error == asio::error::would_block || error == asio::error::try_again) return AwaitInput();
  // A client that has closed its side cannot use an incomplete answer.
  if (error && (phase_ != Phase::kFlushing || error != asio::error::eof)) return Close();
  if (!error) OnInput({shared_->input.data(), count});
  if (!error && phase_ != Phase::kClosed) AwaitInput();
}

void HttpConnection::OnInput(std::string_view bytes) {
  if (phase_ == Phase::kFlushing || phase_ == Phase::kLingering) {
    discarded_bytes_ += bytes.size();
    if (discarded_bytes_ > kMostDiscarded) Close();
    return;
  }
  if (phase_ != Phase::kAnswering) bytes = Parse(bytes);
  if (phase_ == Phase::kAnswering) in_ += bytes;
  Charge();
}

std::string_view HttpConnection::Parse(std::string_view bytes) {
  while (!bytes.empty() && (phase_ == Phase::kIdle || phase_ == Phase::kReceiving)) {
    if (phase_ == Phase::kIdle) StartRequest();
    bytes.remove_prefix(parser_->Feed(bytes));
    const HttpParser::State state = parser_->state();
    if (state == HttpParser::State::kRefused) {
      Refuse(
          shared_->handler->Refusal(parser_->request().path, parser_->status(), parser_->reason()));
      return {};
    }
    if (state == HttpParser::State::kHead) continue;
    if (!admitted_) {
      admitted_ = true;
      head_only_ = parser_->request().method == "HEAD";
      http10_ = parser_->http10();
      if (auto refusal = shared_->handler->Admit(parser_->request(), &headers_)) {
        Refuse(std::move(*refusal));
        return {};
      }
      if (parser_->expects_continue() && bytes.empty() && state == HttpParser::State::kBody) {
        Put("HTTP/1.1 100 Continue\r\n\r\n");
        Flush();
      }
    }
    if (state == HttpParser::State::kDone) Dispatch();
  }
  return bytes;
}

void HttpConnection::StartRequest() {
  parser_ = std::make_unique<HttpParser>(shared_->limits.request);
  admitted_ = false;
  headers_.clear();
  head_only_ = http10_ = false;
  first_ = false;
  EnterPhase(Phase::kReceiving);
}

void HttpConnection::Dispatch() {
  close_ = !parser_->keep_alive();
  begun_ = chunked_ = false;
  HttpRequest request = std::move(parser_->request());
  request_bytes_ = request.body.capacity();
  parser_.reset();
  EnterPhase(Phase::kAnswering);
  departure_ = std::make_shared<Departure>();
  auto reply = std::make_shared<Reply>(shared_from_this(), ++number_, departure_);
  shared_->handler->Handle(std::move(request), std::move(reply));
}

void HttpConnection::Refuse(HttpResponse response) {
  close_ = true;
  PutHead(response, response.body.size());
  if (!head_only_) Put(response.body);
  EndAnswer();
}

void HttpConnection::RefuseForMemory() {
  if (phase_ != Phase::kReceiving) return Close();
  Refuse(shared_->handler->Refusal("", 503, "the server has no memory for the request"));
}

void HttpConnection::PutHead(const HttpResponse& response, std::optional<size_t> length) {
  namespace http = boost::beast::http;
  // A client whose request was refused may not agree with the server on where it ends.
  if (response.status >= 400 || shared_->draining) close_ = true;
  chunked_ = !length && !http10_;
  if (!length && http10_) close_ = true;
  const auto reason = http::obsolete_reason(http::int_to_status(response.status));
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " ";
  head.append(reason.data(), reason.size());
  head += "\r\nDate: " + DateNow() + "\r\n";
  if (!response.type.empty()) head += "Content-Type: " + response.type + "\r\n";
  if (length && response.status != 204)
    head += "Content-Length: " + std::to_string(*length) + "\r\n";
  if (chunked_) head += "Transfer-Encoding: chunked\r\n";
  if (close_) head += "Connection: close\r\n";
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  for (const auto& [name, value] : headers_) head += name + ": " + value + "\r\n";
  Put(head + "\r\n");
}

void HttpConnection::Put(std::string_view text) {
  if (unread_bytes() == 0) progress_ = Clock::now();
  out_ += text;
}

bool HttpConnection::Answers(uint64_t number) const {
  return phase_ == Phase::kAnswering && number == number_;
}

void HttpConnection::Send(uint64_t number, const HttpResponse& response) {
  if (!Answers(number) || begun_) return;
  PutHead(response, response.body.size());
  if (!head_only_) Put(response.body);
  EndAnswer();
}

void HttpConnection::Begin(uint64_t number, const HttpResponse& response) {
  if (!Answers(number) || begun_) return;
  begun_ = true;
  PutHead(response, std::nullopt);
  Write(number, response.body);
}

void HttpConnection::Write(uint64_t number, std::string_view piece) {
  if (!Answers(number) || !begun_ || piece.empty() || head_only_) return;
  if (chunked_) Put(HexOf(piece.size()) + "\r\n");
  Put(piece);
  if (chunked_) Put("\r\n");
  Flush();
  if (unread_bytes() > shared_->limits.memory_bytes / 4) return Close();
  Charge();
}

void HttpConnection::End(uint64_t number) {
  if (!Answers(number) || !begun_) return;
  if (chunked_ && !head_only_) Put("0\r\n\r\n");
  EndAnswer();
}

void HttpConnection::Abandon(uint64_t number) {
  if (Answers(number)) Close();
}

void HttpConnection::EndAnswer() {
  parser_.reset();
  if (const auto departure = std::exchange(departure_, nullptr)) {
    const std::lock_guard lock(departure->mutex);
    departure->function = nullptr;
  }
  request_bytes_ = 0;
  if (close_) {
    Clear(&in_);
    EnterPhase(Phase::kFlushing);
    Flush();
    if (phase_ != Phase::kClosed) AwaitInput();
    return Charge();
  }
  EnterPhase(Phase::kIdle);
  Flush();
  if (phase_ == Phase::kClosed) return;
  // Requests that came meanwhile. One answer more does not make the stack deeper.
  if (!in_.empty()) {
    asio::post(shared_->io, [self = shared_from_this()] {
      if (self->phase_ != Phase::kIdle || self->in_.empty()) return;
      const std::string ahead = std::exchange(self->in_, {});
      self->OnInput(ahead);
      self->AwaitInput();
    });
  }
  Charge();
  if (phase_ != Phase::kClosed && in_.empty()) AwaitInput();
}

void HttpConnection::Flush() {
  if (writing_ || phase_ == Phase::kClosed) return;
  while (out_begin_ < out_.size()) {
    error_code error;
    const size_t count =
        socket_.write_some(asio::buffer(out_.data() + out_begin_, out_.size() - out_begin_), error);
    if (error == asio::error::would_block || error == asio::error::try_again) return AwaitOutput();
    if (error) return Close();
    out_begin_ += count;
    progress_ = Clock::now();
  }
  Clear(&out_);
  out_begin_ = 0;
  if (phase_ == Phase::kFlushing) Linger();
}

void HttpConnection::AwaitOutput() {
  // What was sent need not stay.
  if (out_begin_ > out_.size() / 2) {
    out_.erase(0, out_begin_);
    out_begin_ = 0;
  }
  writing_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_write,
                     [self = shared_from_this()](const error_code& error) {
                       self->writing_ = false;
                       if (self->phase_ == Phase::kClosed) return;
                       if (error) return self->Close();
                       self->Flush();
                       self->Charge();
                     });
}

void HttpConnection::Linger() {
  // A socket that is closed with unread input resets the connection, and the client may lose the
  // answer: takes what the client still sends.
  EnterPhase(Phase::kLingering);
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  AwaitInput();
}

void HttpConnection::Drain() {
  if (phase_ == Phase::kIdle || phase_ == Phase::kReceiving) Close();
}

void HttpConnection::CheckTime(Clock::time_point now) {
  const HttpServerLimits& limits = shared_->limits;
  const auto waited = now - since_;
  switch (phase_) {
    case Phase::kIdle:
      if (unread_bytes() > 0 && now - progress_ > limits.stalled) return Close();
      if (waited > (first_ ? limits.first_byte : limits.idle)) Close();
      return;
    case Phase::kReceiving: {
      const bool in_head = parser_->state() == HttpParser::State::kHead;
      if (waited > (in_head ? limits.head : limits.request_time))
        Refuse(shared_->handler->Refusal(in_head ? "" : parser_->request().path, 408,
                                         "the request was not complete in time"));
      return;
    }
    case Phase::kAnswering:
      if (unread_bytes() > 0 && now - progress_ > limits.stalled) return Close();
      // Where the client's bytes are not read, its end is not seen.
      if (!reading_ && ClientClosed(socket_.native_handle())) Close();
      return;
    case Phase::kFlushing:
      if (now - progress_ > limits.stalled || waited > limits.farewell) Close();
      return;
    case Phase::kLingering:
      if (waited > limits.linger) Close();
      return;
    case Phase::kClosed:
      return;
  }
}

}  // namespace server
