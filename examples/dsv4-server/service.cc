// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/service.h"

#include <algorithm>
#include <utility>

#include "examples/dsv4-server/api_error.h"
#include "examples/dsv4-server/chat.h"
#include "examples/dsv4-server/completions.h"
#include "examples/dsv4-server/error_json.h"
#include "examples/dsv4-server/messages.h"
#include "examples/dsv4-server/model_info.h"
#include "examples/dsv4-server/page.h"
#include "examples/dsv4-server/response_store.h"
#include "examples/dsv4-server/responses.h"
#include "examples/dsv4-server/tokenize.h"

namespace server {
namespace {

// After so long without a token, a question for the server's health lets it compute one.
constexpr double kProbeSeconds = 10;
// A step that takes longer is not expected to end.
constexpr double kLongestStepSeconds = 300;
// Bytes whose tokens are found in about 50 ms.
constexpr size_t kLongBody = 512 << 10;
constexpr char kJsonType[] = "application/json";
constexpr char kMessages[] = "/v1/messages";
constexpr char kOneResponse[] = "/v1/responses/", kInputItems[] = "/input_items";

// In the form of the API that `path` is an endpoint of.
HttpResponse ErrorOf(const std::string& path, const ApiError& error) {
  HttpResponse response{.status = error.status};
  response.body = TextOf(path.starts_with(kMessages) ? AnthropicJsonOf(error) : JsonOf(error));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse JsonResponse(const Json& json) { return {.body = TextOf(json)}; }

// What continues the endpoint's path.
std::string_view LastPart(std::string_view path, std::string_view endpoint) {
  return path.substr(endpoint.size());
}

bool HasBody(const HttpRequest& head) {
  const std::string_view length = head.Header("content-length");
  return head.HasHeader("transfer-encoding") ||
         length.find_first_not_of('0') != std::string_view::npos;
}

bool IsJson(std::string_view type) {
  const std::string lower = LowerCase(type);
  return lower.starts_with(kJsonType) &&
         (lower.size() == sizeof kJsonType - 1 ||
          std::string_view("; \t").find(lower[sizeof kJsonType - 1]) != std::string_view::npos);
}

}  // namespace

Service::Service(Served* served, Metrics* metrics, const Threads& threads, TrustOptions trust)
    : served_(served),
      metrics_(metrics),
      threads_(threads),
      trust_(std::move(trust)),
      name_(served->model.name),
      models_(ListModels(served->model)) {
  constexpr bool kOpen = true;
  for (const PageFile& file : PageFiles()) {
    Get(
        file.path,
        [file](const HttpRequest&) {
          return HttpResponse{.type = file.type,
                              .body = std::string(file.text),
                              .headers = {{"Content-Security-Policy", kPagePolicy},
                                          {"X-Content-Type-Options", "nosniff"},
                                          {"Cache-Control", "no-cache"}}};
        },
        kOpen);
  }
  Get(
      "/health", [this](const HttpRequest&) { return Health(); }, kOpen);
  Get(
      "/health/live", [this](const HttpRequest&) { return Live(); }, kOpen);
  Get(
      "/health/ready", [this](const HttpRequest&) { return Ready(); }, kOpen);
  Get("/v1/models", [this](const HttpRequest&) { return JsonResponse(models_); });
  Get("/v1/models/", [this](const HttpRequest& request) {
    return JsonResponse(DescribeModel(served_->model, LastPart(request.path, "/v1/models/")));
  });
  Get("/tokenizer_info",
      [this](const HttpRequest&) { return JsonResponse(TokenizerInfo(served_->model)); });
  Get("/v1/responses/", [this](const HttpRequest& request) {
    std::string id(LastPart(request.path, kOneResponse));
    ResponseStore* const store = served_->model.responses;
    if (!id.ends_with(kInputItems)) return HttpResponse{.body = RetrieveResponse(store, id)};
    id.resize(id.size() - (sizeof kInputItems - 1));
    return HttpResponse{.body = ListInputItems(store, id)};
  });
  endpoints_.push_back(
      {"DELETE", kOneResponse, [this](HttpRequest request, std::shared_ptr<HttpReply> reply) {
         try {
           const std::string id(LastPart(request.path, kOneResponse));
           reply->Send(JsonResponse(DeleteResponse(served_->model.responses, id)));
         } catch (...) {
           reply->Send(ErrorOf(request.path, CurrentApiError()));
         }
       }});
  Get("/metrics", [this](const HttpRequest&) {
    return HttpResponse{.type = "text/plain; version=0.0.4",
                        .body = metrics_->Text(name_, served_->scheduler.load())};
  });
  PostAnswer<ChatAnswer>("/v1/chat/completions", ReadChat);
  PostAnswer<CompletionAnswer>("/v1/completions", ReadCompletion);
  PostAnswer<ResponsesAnswer>("/v1/responses", ReadResponses);
  PostAnswer<MessagesAnswer>(kMessages, ReadMessagesApi);
  PostText("/v1/messages/count_tokens",
           [](const Model& model, const Json& body) { return TextOf(CountTokens(model, body)); });
  PostText("/tokenize", Tokenize);
  PostText("/detokenize",
           [](const Model& model, const Json& body) { return TextOf(Detokenize(model, body)); });
}

void Service::Get(const std::string& path, std::function<HttpResponse(const HttpRequest&)> answer,
                  bool open) {
  endpoints_.push_back({"GET", path,
                        [answer = std::move(answer), path](
                            const HttpRequest& request, const std::shared_ptr<HttpReply>& reply) {
                          try {
                            reply->Send(answer(request));
                          } catch (...) {
                            reply->Send(ErrorOf(path, CurrentApiError()));
                          }
                        },
                        open});
}

template <class AnswerType, class Request>
void Service::PostAnswer(const std::string& path, Request (*read)(const Model&, const Json&)) {
  endpoints_.push_back(
      {"POST", path, [this, path, read](HttpRequest request, std::shared_ptr<HttpReply> reply) {
         // Kept as text, which is small, in case it must be read again.
         const auto body = std::make_shared<const std::string>(std::move(request.body));
         Exchange::Start(
             served_, threads_, path, body->size() > kLongBody,
             [body, read](const Model& model, Identity* identity) {
               return std::make_unique<AnswerType>(model, read(model, ParseObject(*body)),
                                                   identity);
             },
             ErrorOf, std::move(reply));
       }});
}

void Service::PostText(const std::string& path, TextAnswer answer) {
  endpoints_.push_back(
      {"POST", path, [this, answer](HttpRequest request, std::shared_ptr<HttpReply> reply) {
         auto waiting = std::make_shared<TextRequest>();
         waiting->reply = std::move(reply);
         waiting->request = std::move(request);
         waiting->reply->OnGone([weak = std::weak_ptr(waiting)] {
           const auto gone = weak.lock();
           if (!gone) return;
           const std::lock_guard lock(gone->mutex);
           gone->request.reset();
         });
         threads_.texts->Post(
             [this, waiting = std::move(waiting), answer] { AnswerText(waiting, answer); });
       }});
}

void Service::AnswerText(const std::shared_ptr<TextRequest>& waiting,
                         const TextAnswer& answer) const {
  std::optional<HttpRequest> request;
  {
    const std::lock_guard lock(waiting->mutex);
    request.swap(waiting->request);
  }
  if (!request) return;
  try {
    waiting->reply->Send({.body = answer(served_->model, ParseObject(request->body))});
  } catch (...) {
    waiting->reply->Send(ErrorOf(request->path, CurrentApiError()));
  }
}

const Service::Endpoint* Service::Find(const std::string& method, const std::string& path,
                                       std::string* methods) const {
  for (const Endpoint& endpoint : endpoints_) {
    const bool prefix = endpoint.path.size() > 1 && endpoint.path.back() == '/' &&
                        path.size() > endpoint.path.size() && path.starts_with(endpoint.path);
    if (endpoint.path != path && !prefix) continue;
    if (endpoint.method == method || (method == "HEAD" && endpoint.method == "GET"))
      return &endpoint;
    *methods += (methods->empty() ? "" : ", ") + endpoint.method;
    if (endpoint.method == "GET") *methods += ", HEAD";
  }
  return nullptr;
}

std::optional<HttpResponse> Service::Admit(const HttpRequest& head, Headers* headers) {
  *headers = trust_.PageHeaders(head);
  const auto refuse = [&](const ApiError& error) { return ErrorOf(head.path, error); };
  if (const auto error = trust_.CheckPage(head)) return refuse(*error);
  if (auto response = trust_.Preflight(head)) return response;
  std::string methods;
  const Endpoint* const endpoint = Find(head.method, head.path, &methods);
  if (draining_) return refuse(Stopping());
  if (endpoint == nullptr || !endpoint->open) {
    if (const auto error = trust_.CheckKey(head)) return refuse(*error);
  }
  const auto invalid = [&](int status, const std::string& message) {
    return refuse({status, "invalid_request_error", message});
  };
  if (endpoint == nullptr) {
    HttpResponse response =
        invalid(methods.empty() ? 404 : 405, head.method + " " + head.path + " is no endpoint");
    if (!methods.empty()) response.headers.emplace_back("Allow", methods);
    return response;
  }
  // A short body may unpack to a long one.
  if (head.HasHeader("content-encoding")) return invalid(415, "Content-Encoding is not supported");
  if (endpoint->method != "POST") {
    if (HasBody(head)) return invalid(400, head.method + " " + head.path + " takes no body");
    return std::nullopt;
  }
  // Other types may be sent by pages of any site that a browser shows.
  size_t types = 0;
  for (const auto& [name, value] : head.headers) types += name == "content-type";
  if (types != 1 || !IsJson(head.Header("content-type")))
    return invalid(415, "the body's Content-Type must be application/json");
  return std::nullopt;
}

void Service::Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) {
  std::string methods;
  const Endpoint* const endpoint = Find(request.method, request.path, &methods);
  endpoint->handle(std::move(request), std::move(reply));
}

HttpResponse Service::Refusal(const std::string& path, int status, const std::string& reason) {
  return ErrorOf(path, {status, status >= 500 ? "server_error" : "invalid_request_error", reason});
}

HttpResponse Service::Live() const {
  if (served_->scheduler.given_up()) return ErrorOf("", DeviceLost("the device is lost"));
  if (served_->scheduler.seconds_in_step() > kLongestStepSeconds)
    return ErrorOf("", {503, "server_error", "a step has not ended for 5 minutes", "", "stalled"});
  return JsonResponse({{"status", "ok"}});
}

HttpResponse Service::Health() const {
  Scheduler& scheduler = served_->scheduler;
  if (scheduler.lost()) return ErrorOf("", DeviceLost("the device is lost"));
  if (scheduler.suspended()) return JsonResponse({{"status", "suspended"}});
  // The answer does not wait for a step: what the last one has shown counts.
  scheduler.Probe(kProbeSeconds);
  if (const std::string failure = scheduler.probe_failure(); !failure.empty())
    return ErrorOf("", {503, "server_error", failure});
  return Live();
}

HttpResponse Service::Ready() const {
  if (served_->scheduler.full())
    return ErrorOf("", {503, "server_error", "too many requests are running or waiting"});
  return Health();
}

}  // namespace server
