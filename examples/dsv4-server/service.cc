// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/service.h"

#include <chrono>
#include <memory>
#include <utility>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/chat.h"
#include "examples/dsv4-server/completions.h"
#include "examples/dsv4-server/messages.h"
#include "examples/dsv4-server/page.h"
#include "examples/dsv4-server/responses.h"
#include "examples/dsv4-server/tokenize.h"

namespace server {
namespace {

constexpr size_t kMostBodyBytes = 10 << 20;
constexpr double kHealthySeconds = 10;
constexpr char kJsonType[] = "application/json";
constexpr char kMessages[] = "/v1/messages";
constexpr int kClientGoneStatus = 499;  // nginx's; nobody reads it

void SetJson(httplib::Response* response, const Json& json) {
  response->set_content(TextOf(json), kJsonType);
}

// In the form of the API that `path` is an endpoint of.
void SetError(const std::string& path, httplib::Response* response, const ApiError& error) {
  response->status = error.status;
  SetJson(response, path.starts_with(kMessages) ? AnthropicJsonOf(error) : JsonOf(error));
}

ApiError TooLong() {
  return {413, "invalid_request_error",
          "the body is longer than " + std::to_string(kMostBodyBytes) + " bytes"};
}

// In a time that does not tell how much of `given` is right.
bool SameKey(const std::string& given, const std::string& key) {
  unsigned different = given.size() != key.size();
  for (size_t i = 0; i < given.size(); ++i)
    different |= static_cast<unsigned>(given[i] ^ key[i % key.size()]);
  return different == 0;
}

// An answer with its generations, for as long as it is written.
class Exchange {
 public:
  Exchange(std::unique_ptr<Answer> answer, Scheduler::Generations generations)
      : answer_(std::move(answer)), generations_(std::move(generations)) {}

  // The events of the next token. *ended with the last ones.
  std::string Next(bool* ended) {
    try {
      const Token token = generations_[candidate_]->Next(HttpServer::ClientIsGone);
      const dsv4::SessionStats stats = generations_[0]->stats();
      std::string text = begun_ ? "" : answer_->Begin(stats);
      begun_ = true;
      text += answer_->Take(candidate_, token, stats);
      *ended = !Advance();
      return *ended ? text + answer_->End(stats) : text;
    } catch (const ClientGone&) {
      throw;
    } catch (...) {
      *ended = true;
      return answer_->Failure(CurrentApiError());
    }
  }

  Json Whole() {
    do {
      const Token token = generations_[candidate_]->Next(HttpServer::ClientIsGone);
      answer_->Take(candidate_, token, generations_[0]->stats());
    } while (Advance());
    return answer_->Whole(generations_[0]->stats());
  }

 private:
  // Goes to the next candidate that has not ended. False without one.
  bool Advance() {
    for (size_t i = 0; i < generations_.size(); ++i) {
      candidate_ = (candidate_ + 1) % generations_.size();
      if (!answer_->ended(candidate_)) return true;
    }
    return false;
  }

  const std::unique_ptr<Answer> answer_;
  const Scheduler::Generations generations_;
  size_t candidate_ = 0;
  bool begun_ = false;
};

void Respond(Scheduler* scheduler, std::unique_ptr<Answer> answer, httplib::Response* response) {
  const bool stream = answer->stream();
  auto generations = scheduler->Open(answer->candidates(), HttpServer::ClientIsGone);
  auto exchange = std::make_shared<Exchange>(std::move(answer), std::move(generations));
  if (!stream) return SetJson(response, exchange->Whole());
  response->set_header("Cache-Control", "no-store");
  response->set_chunked_content_provider(
      "text/event-stream", [exchange](size_t, httplib::DataSink& sink) {
        try {
          bool ended = false;
          const std::string text = exchange->Next(&ended);
          // An empty chunk would be the last one.
          if (!text.empty() && !sink.write(text.data(), text.size())) return false;
          if (ended) sink.done();
          return true;
        } catch (...) {
          return false;  // the client has gone, or there is no memory to tell it anything
        }
      });
}

// Runs `answer`; what it throws is the response.
template <class Function>
void Guard(const std::string& path, httplib::Response* response, Function&& answer) {
  try {
    answer();
  } catch (const ClientGone&) {
    response->status = kClientGoneStatus;
    HttpServer::CloseAfterwards();
  } catch (...) {
    SetError(path, response, CurrentApiError());
  }
}

}  // namespace

Service::Service(const Model& model, Scheduler* scheduler, Metrics* metrics, std::string api_key)
    : model_(model), scheduler_(scheduler), metrics_(metrics), api_key_(std::move(api_key)) {}

bool Service::Admits(const httplib::Request& request, Response* response) const {
  if (draining_) {
    SetError(request.path, response,
             {503, "server_error", "the server is stopping", "", "stopping"});
  } else if (!api_key_.empty() && request.path != "/health" && request.path != "/" &&
             !SameKey(request.get_header_value("Authorization"), "Bearer " + api_key_) &&
             !SameKey(request.get_header_value("x-api-key"), api_key_)) {
    response->set_header("WWW-Authenticate", "Bearer");
    SetError(
        request.path, response,
        {401, "invalid_request_error",
         "the header Authorization: Bearer KEY, or x-api-key: KEY, is missing or has another key",
         "", "invalid_api_key"});
  } else if (request.has_header("Content-Encoding")) {
    // A short body may unpack to a long one.
    SetError(request.path, response,
             {415, "invalid_request_error", "Content-Encoding is not supported"});
  } else {
    return true;
  }
  HttpServer::CloseAfterwards();
  return false;
}

void Service::Post(HttpServer* server, const std::string& path,
                   std::function<void(const Json& body, Response* response)> answer) {
  server->Post(path,
               [answer = std::move(answer)](const httplib::Request& request, Response& response) {
                 Guard(request.path, &response, [&] {
                   // Other types may be sent by pages of any site that a browser shows.
                   if (!request.get_header_value("Content-Type").starts_with(kJsonType))
                     throw ApiError{415, "invalid_request_error",
                                    "the body's Content-Type must be application/json"};
                   if (request.body.size() > kMostBodyBytes) throw TooLong();
                   answer(ParseObject(request.body), &response);
                 });
               });
}

void Service::Route(HttpServer* server) {
  server->set_payload_max_length(kMostBodyBytes);
  server->set_pre_routing_handler([this](const httplib::Request& request, Response& response) {
    return Admits(request, &response) ? httplib::Server::HandlerResponse::Unhandled
                                      : httplib::Server::HandlerResponse::Handled;
  });
  // For what no endpoint has answered.
  server->set_error_handler(
      httplib::Server::Handler([](const httplib::Request& request, Response& response) {
        if (!response.body.empty() || response.status == kClientGoneStatus) return;
        if (response.status == 413) return SetError(request.path, &response, TooLong());
        const std::string message = response.status == 404
                                        ? request.method + " " + request.path + " is no endpoint"
                                        : "the request is malformed";
        SetError(request.path, &response, {response.status, "invalid_request_error", message});
      }));
  server->Get("/", [](const httplib::Request&, Response& response) {
    response.set_header("Content-Security-Policy", kPagePolicy);
    response.set_content(kPage, "text/html; charset=utf-8");
  });
  server->Get("/health", [this](const httplib::Request& request, Response& response) {
    Guard(request.path, &response, [&] { Health(&response); });
  });
  server->Get("/v1/models", [this](const httplib::Request&, Response& response) {
    SetJson(&response,
            {{"object", "list"},
             {"data", Json::array({{{"id", model_.name},
                                    {"object", "model"},
                                    {"created", model_.opened},
                                    {"owned_by", "dsv4"},
                                    {"max_model_len", model_.engine.info().context_tokens}}})}});
  });
  server->Get("/metrics", [this](const httplib::Request&, Response& response) {
    response.set_content(metrics_->Text(model_.name, scheduler_->load()),
                         "text/plain; version=0.0.4");
  });
  Post(server, "/v1/chat/completions", [this](const Json& body, Response* response) {
    Respond(scheduler_, std::make_unique<ChatAnswer>(model_, ReadChat(model_, body)), response);
  });
  Post(server, "/v1/completions", [this](const Json& body, Response* response) {
    Respond(scheduler_, std::make_unique<CompletionAnswer>(model_, ReadCompletion(model_, body)),
            response);
  });
  Post(server, "/v1/responses", [this](const Json& body, Response* response) {
    Respond(scheduler_, std::make_unique<ResponsesAnswer>(model_, ReadResponses(model_, body)),
            response);
  });
  Post(server, kMessages, [this](const Json& body, Response* response) {
    Respond(scheduler_, std::make_unique<MessagesAnswer>(model_, ReadMessagesApi(model_, body)),
            response);
  });
  Post(server, "/v1/messages/count_tokens", [this](const Json& body, Response* response) {
    SetJson(response, CountTokens(model_, body));
  });
  Post(server, "/tokenize",
       [this](const Json& body, Response* response) { SetJson(response, Tokenize(model_, body)); });
  Post(server, "/detokenize", [this](const Json& body, Response* response) {
    SetJson(response, Detokenize(model_, body));
  });
}

void Service::Health(Response* response) const {
  if (scheduler_->seconds_since_token() > kHealthySeconds) {
    Prompt prompt;
    prompt.tokens = {model_.engine.info().bos_token};
    prompt.sampling.max_tokens = 1;
    const auto begin = std::chrono::steady_clock::now();
    const auto too_late = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >
             kHealthySeconds;
    };
    try {
      scheduler_->Open({{&prompt, 0}}, too_late)[0]->Next(too_late);
    } catch (const ClientGone&) {
      throw ApiError{503, "server_error", "no token was computed for 10 seconds"};
    }
  }
  SetJson(response, {{"status", "ok"}});
}

}  // namespace server
