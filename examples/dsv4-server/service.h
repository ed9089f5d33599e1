// SPDX-License-Identifier: Apache-2.0
// The endpoints.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/dsv4-server/exchange.h"
#include "examples/dsv4-server/http_connection.h"
#include "examples/dsv4-server/http_message.h"
#include "examples/dsv4-server/json.h"
#include "examples/dsv4-server/metrics.h"
#include "examples/dsv4-server/served.h"
#include "examples/dsv4-server/trust.h"

namespace server {

class Service : public HttpHandler {
 public:
  // What the pointers point to must outlive this object, and this object the HTTP server's thread.
  Service(Served* served, Metrics* metrics, const Threads& threads, TrustOptions trust);

  // Refuses requests from then on.
  void Drain() { draining_ = true; }

  std::optional<HttpResponse> Admit(const HttpRequest& head, Headers* headers) override;
  void Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) override;
  HttpResponse Refusal(const std::string& path, int status, const std::string& reason) override;

 private:
  struct Endpoint {
    std::string method;
    std::string path;  // one that ends with "/" stands for all paths that continue it
    std::function<void(HttpRequest, std::shared_ptr<HttpReply>)> handle;
    bool open = false;  // needs no key
  };

  // Null: `path` is no endpoint, or not with this method. *methods: those that it has.
  const Endpoint* Find(const std::string& method, const std::string& path,
                       std::string* methods) const;
  // Endpoints that answer at once, on the thread of the connections.
  void Get(const std::string& path, std::function<HttpResponse(const HttpRequest&)> answer,
           bool open = false);
  // Endpoints that generate. `read` parses the request of an AnswerType.
  template <class AnswerType, class Request>
  void PostAnswer(const std::string& path, Request (*read)(const Model&, const Json&));
  // Endpoints that do not generate. `answer` returns the text of a JSON value.
  using TextAnswer = std::function<std::string(const Model&, const Json&)>;
  void PostText(const std::string& path, TextAnswer answer);
  // A request that waits for the thread that answers it. If its client leaves, its memory is freed.
  struct TextRequest {
    std::shared_ptr<HttpReply> reply;
    std::mutex mutex;
    std::optional<HttpRequest> request;
  };
  void AnswerText(const std::shared_ptr<TextRequest>& waiting, const TextAnswer& answer) const;

  // The server computes, and does not stop.
  HttpResponse Health() const;
  // Its process need not be restarted.
  HttpResponse Live() const;
  // It takes a request now.
  HttpResponse Ready() const;

  Served* const served_;
  Metrics* const metrics_;
  const Threads threads_;
  const Trust trust_;
  std::string name_;  // of the model
  Json models_;       // the answer of /v1/models
  std::vector<Endpoint> endpoints_;
  std::atomic<bool> draining_ = false;
};

}  // namespace server
