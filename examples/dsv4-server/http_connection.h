// SPDX-License-Identifier: Apache-2.0
// One connection of the server: reads requests, passes them on, writes answers. All functions are
// for the thread of the connections, and none of them blocks.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "examples/dsv4-server/http_message.h"
#include "examples/dsv4-server/http_parser.h"

namespace server {

struct HttpServerLimits {
  HttpLimits request = {};
  // Of all connections: heads, bodies, and answers that wait for their readers.
  size_t memory_bytes = 64 << 20;
  size_t connections = 8192;
  std::chrono::seconds first_byte{10};    // of a new connection
  std::chrono::seconds idle{75};          // between two requests: longer than proxies keep them
  std::chrono::seconds head{10};          // from its first byte on
  std::chrono::seconds request_time{60};  // the whole request, from its first byte on
  std::chrono::seconds stalled{30};       // that a reader may take nothing of what waits for it
  std::chrono::seconds farewell{120};     // that a whole answer may wait for its reader
  std::chrono::seconds linger{2};         // that a refused sender is listened to
};

// Decides on requests. Called by the thread of the connections; must not block.
class HttpHandler {
 public:
  using Headers = std::vector<std::pair<std::string, std::string>>;

  virtual ~HttpHandler() = default;
  // Called with the head, before the body is read. Returns an answer to refuse the request.
  // *headers: added to every answer to this request.
  virtual std::optional<HttpResponse> Admit(const HttpRequest& head, Headers* headers) = 0;
  // The request is complete.
  virtual void Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) = 0;
  // What a request is answered that the server itself refuses. `path`: "" if there is none.
  virtual HttpResponse Refusal(const std::string& path, int status, const std::string& reason) = 0;
};

class HttpConnection;

// What connections share.
struct HttpShared {
  HttpHandler* handler = nullptr;
  HttpServerLimits limits;
  boost::asio::io_context io{1};
  std::array<char, 64 << 10> input;  // bytes that were just received
  size_t held_bytes = 0;             // charged to limits.memory_bytes
  bool draining = false;             // connections end after the request that they are in
  std::function<void(HttpConnection*)> on_closed;
  std::function<void()> on_pressure;  // held_bytes is over its limit
};

class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Clock = std::chrono::steady_clock;

  HttpConnection(boost::asio::ip::tcp::socket socket, HttpShared* shared);
  ~HttpConnection();

  void Start();
  // Ends what has waited too long.
  void CheckTime(Clock::time_point now);
  // The server is stopping: ends a connection without a complete request.
  void Drain();
  // Closes at once.
  void Close();

  // For the choice of a connection to end when memory is short.
  // Whether no complete request is being answered.
  bool waits_for_client() const { return phase_ != Phase::kAnswering; }
  Clock::time_point since() const { return since_; }
  size_t held_bytes() const { return charged_; }
  size_t unread_bytes() const { return out_.size() - out_begin_; }
  // The request that is being received is refused for lack of memory.
  void RefuseForMemory();

 private:
  class Reply;
  struct Departure;
  enum class Phase {
    kIdle,       // between two requests
    kReceiving,  // a request has begun
    kAnswering,  // a request is complete, its answer is not
    kFlushing,   // the answer is complete; the connection closes after its last byte
    kLingering,  // everything is sent; takes what the client still sends
    kClosed,
  };

  void AwaitInput();
  void OnReadable();
  void OnInput(std::string_view bytes);
  // Gives received bytes to the parser until a request is complete.
  std::string_view Parse(std::string_view bytes);
  void Dispatch();
  void Refuse(HttpResponse response);
  // The head of an answer.
  void PutHead(const HttpResponse& response, std::optional<size_t> length);
  void Put(std::string_view text);
  // The answer to request `number`, from its reply. Ignored if that request has ended.
  void Send(uint64_t number, const HttpResponse& response);
  void Begin(uint64_t number, const HttpResponse& response);
  void Write(uint64_t number, std::string_view piece);
  void End(uint64_t number);
  void Abandon(uint64_t number);
  bool Answers(uint64_t number) const;
  // The answer is complete.
  void EndAnswer();
  void StartRequest();
  void Flush();
  void AwaitOutput();
  void Linger();
  void EnterPhase(Phase phase);
  void Charge();

  boost::asio::ip::tcp::socket socket_;
  HttpShared* const shared_;
  Phase phase_ = Phase::kIdle;
  Clock::time_point since_ = Clock::now();     // the phase began; kReceiving: its first byte came
  Clock::time_point progress_ = Clock::now();  // output was taken
  std::unique_ptr<HttpParser> parser_;
  bool admitted_ = false;
  HttpHandler::Headers headers_;  // for the answer
  std::string in_;                // received during an answer
  std::string out_;
  size_t out_begin_ = 0;
  size_t charged_ = 0, request_bytes_ = 0, discarded_bytes_ = 0;
  bool reading_ = false, writing_ = false;
  bool first_ = true;
  // Of the request that is being answered.
  uint64_t number_ = 0;
  bool begun_ = false, chunked_ = false, head_only_ = false, http10_ = false, close_ = false;
  std::shared_ptr<Departure> departure_;
};

}  // namespace server
