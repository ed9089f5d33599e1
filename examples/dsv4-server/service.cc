// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/service.h"

#include <chrono>
#include <memory>
#include <utility>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/chat.h"
#include "examples/dsv4-server/completions.h"
#include "examples/dsv4-server/error_json.h"
#include "examples/dsv4-server/exchange.h"
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
constexpr int kClientGoneStatus = 499;  // nginx's code; the client is gone and cannot read it

using Response = httplib::Response;

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

void Respond(Host* host, const Exchange::Read& read, Response* response) {
  auto exchange = std::make_shared<Exchange>(host, read, HttpServer::ClientIsGone);
  if (!exchange->stream()) return SetJson(response, exchange->Whole());
  // What fails before the first token has a status of its own.
  bool ended = false;
  std::string text = exchange->Next(&ended);
  response->set_header("Cache-Control", "no-store");
  response->set_chunked_content_provider(
      "text/event-stream", [exchange, text, ended](size_t, httplib::DataSink& sink) mutable {
        try {
          if (text.empty() && !ended) text = exchange->Next(&ended);
          // An empty chunk would be the last one.
          if (!text.empty() && !sink.write(text.data(), text.size())) return false;
          text.clear();
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

Service::Service(Host* host, Metrics* metrics, std::string api_key)
    : host_(host), metrics_(metrics), api_key_(std::move(api_key)) {
  const std::shared_ptr<Opened> opened = host->Current();
  name_ = opened->model.name;
  models_ = {{"object", "list"},
             {"data", Json::array({{{"id", name_},
                                    {"object", "model"},
                                    {"created", opened->model.opened},
                                    {"owned_by", "dsv4"},
                                    {"max_model_len", opened->engine.info().context_tokens}}})}};
}

bool Service::Admits(const httplib::Request& request, Response* response) const {
  if (draining_) {
    SetError(request.path, response, Stopping());
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
  server->Get("/v1/models",
              [this](const httplib::Request&, Response& response) { SetJson(&response, models_); });
  server->Get("/metrics", [this](const httplib::Request&, Response& response) {
    const std::shared_ptr<Opened> opened = host_->Current();
    response.set_content(metrics_->Text(name_, opened ? opened->scheduler.load() : Load()),
                         "text/plain; version=0.0.4");
  });
  PostAnswer<ChatAnswer>(server, "/v1/chat/completions", ReadChat);
  PostAnswer<CompletionAnswer>(server, "/v1/completions", ReadCompletion);
  PostAnswer<ResponsesAnswer>(server, "/v1/responses", ReadResponses);
  PostAnswer<MessagesAnswer>(server, kMessages, ReadMessagesApi);
  PostText(server, "/v1/messages/count_tokens", CountTokens);
  PostText(server, "/tokenize", Tokenize);
  PostText(server, "/detokenize", Detokenize);
}

template <class AnswerType, class Request>
void Service::PostAnswer(HttpServer* server, const std::string& path,
                         Request (*read)(const Model&, const Json&)) {
  Post(server, path, [this, read](const Json& body, Response* response) {
    Respond(
        host_,
        [body, read](const Model& model, Identity* identity) {
          return std::make_unique<AnswerType>(model, read(model, body), identity);
        },
        response);
  });
}

void Service::PostText(HttpServer* server, const std::string& path,
                       Json (*answer)(const Model&, const Json&)) {
  Post(server, path, [this, answer](const Json& body, Response* response) {
    SetJson(response, answer(host_->Get(HttpServer::ClientIsGone)->model, body));
  });
}

void Service::Health(Response* response) const {
  const std::shared_ptr<Opened> opened = host_->Current();
  if (!opened) throw DeviceLost("the device is lost");
  if (opened->scheduler.suspended()) return SetJson(response, {{"status", "suspended"}});
  if (opened->scheduler.seconds_since_token() > kHealthySeconds) {
    Prompt prompt;
    prompt.tokens = {opened->engine.info().bos_token};
    prompt.sampling.max_tokens = 1;
    const auto begin = std::chrono::steady_clock::now();
    const auto too_late = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() >
             kHealthySeconds;
    };
    try {
      opened->scheduler.Open({{&prompt, 0}}, too_late, Scheduler::Purpose::kProbe)[0]->Next(
          too_late);
    } catch (const ClientGone&) {
      throw ApiError{503, "server_error", "no token was computed for 10 seconds"};
    } catch (const dsv4::Error& error) {
      if (error.code() == DSV4_ERR_DEVICE_LOST) host_->Lost(opened, error.what());
      throw;
    }
  }
  SetJson(response, {{"status", "ok"}});
}

}  // namespace server
