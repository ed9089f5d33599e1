// SPDX-License-Identifier: Apache-2.0
#include "tools/gates/client.h"

#include <httplib.h>

#include <chrono>
#include <limits>

namespace gates {
namespace {

using Clock = std::chrono::steady_clock;
const Clock::time_point kBegin = Clock::now();

httplib::Client Connect(const Options& options) {
  httplib::Client client(options.url);
  client.set_connection_timeout(10);
  client.set_read_timeout(static_cast<time_t>(options.timeout_s));
  client.set_write_timeout(static_cast<time_t>(options.timeout_s));
  if (!options.api_key.empty()) client.set_bearer_token_auth(options.api_key.c_str());
  return client;
}

// What a stream's chunk adds to the answer.
void Take(const Json& chunk, Answer* answer) {
  if (chunk.contains("error")) {
    answer->error = chunk["error"].dump();
    return;
  }
  bool has_usage = false;
  if (const auto usage = chunk.find("usage"); usage != chunk.end() && usage->is_object()) {
    has_usage = true;
    answer->prompt_tokens = usage->value("prompt_tokens", int64_t{-1});
    answer->completion_tokens = usage->value("completion_tokens", int64_t{-1});
    const auto details = usage->find("prompt_tokens_details");
    if (details != usage->end() && details->is_object())
      answer->cached_tokens = details->value("cached_tokens", int64_t{-1});
  }
  const auto choices = chunk.find("choices");
  if (choices == chunk.end() || !choices->is_array() || choices->empty()) return;
  const Json& choice = (*choices)[0];
  if (choice.contains("text") && choice["text"].is_string())
    answer->text += choice["text"].get<std::string>();
  if (const auto delta = choice.find("delta"); delta != choice.end() && delta->is_object()) {
    if (const auto content = delta->find("content");
        content != delta->end() && content->is_string())
      answer->text += content->get<std::string>();
  }
  if (choice.contains("finish_reason") && choice["finish_reason"].is_string())
    answer->finish = choice["finish_reason"].get<std::string>();
  // Servers without a usage in each chunk send a token in each.
  const int64_t tokens = has_usage ? answer->completion_tokens : answer->tokens() + 1;
  if (tokens > answer->tokens()) answer->arrivals.push_back({Now(), tokens});
}

}  // namespace

double Now() { return std::chrono::duration<double>(Clock::now() - kBegin).count(); }

double Answer::first() const {
  return arrivals.empty() ? std::numeric_limits<double>::infinity() : arrivals.front().seconds;
}

int64_t Answer::TokensBetween(double begin_seconds, double end_seconds) const {
  int64_t before = 0, until = 0;
  for (const Arrival& arrival : arrivals) {
    if (arrival.seconds < begin_seconds) before = arrival.tokens;
    if (arrival.seconds <= end_seconds) until = arrival.tokens;
  }
  return until - before;
}

Client::Client(const Options& options) : options_(options) {
  const Json list = Call("/v1/models", nullptr);
  for (const Json& model : list.value("data", Json::array())) {
    const std::string name = model.value("id", "");
    if (!options.model.empty() && options.model != name) continue;
    model_ = name;
    context_tokens_ = model.value("max_model_len", size_t{0});
    break;
  }
  if (model_.empty())
    throw ServerError{"/v1/models lists no model " +
                      (options.model.empty() ? "at all" : "\"" + options.model + "\"")};
  if (context_tokens_ == 0)
    throw ServerError{"/v1/models: \"" + model_ + "\" has no max_model_len"};
}

Json Client::Call(const std::string& path, const Json* body) const {
  httplib::Client client = Connect(options_);
  const httplib::Result result =
      body == nullptr ? client.Get(path) : client.Post(path, body->dump(), "application/json");
  if (!result) throw ServerError{options_.url + path + ": " + httplib::to_string(result.error())};
  if (result->status != 200)
    throw ServerError{options_.url + path + ": status " + std::to_string(result->status) + ": " +
                      result->body.substr(0, 500)};
  try {
    return Json::parse(result->body);
  } catch (const Json::parse_error&) {
    throw ServerError{options_.url + path + ": the answer is not JSON"};
  }
}

std::vector<int32_t> Client::Tokenize(const std::string& text) const {
  const Json body = {{"model", model_}, {"prompt", text}, {"add_special_tokens", false}};
  return Call("/tokenize", &body).value("tokens", std::vector<int32_t>());
}

std::vector<int32_t> Client::TokenizeChat(const std::string& message) const {
  const Json body = {{"model", model_},
                     {"messages", Json::array({{{"role", "user"}, {"content", message}}})}};
  return Call("/tokenize", &body).value("tokens", std::vector<int32_t>());
}

Answer Client::Stream(const std::string& path, Json body,
                      const std::function<bool(const Answer&)>& on_chunk) const {
  body["model"] = model_;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}, {"continuous_usage_stats", true}};
  Answer answer;
  std::string rest, refusal;
  bool ended = false, left = false;
  int status = 0;
  httplib::Request request;
  request.method = "POST";
  request.path = path;
  request.set_header("Content-Type", "application/json");
  request.body = body.dump();
  request.response_handler = [&](const httplib::Response& response) {
    status = response.status;
    return true;
  };
  request.content_receiver = [&](const char* data, size_t size, uint64_t, uint64_t) {
    if (status != 200) {
      refusal.append(data, size);
      return true;
    }
    rest.append(data, size);
    for (size_t end; (end = rest.find("\n\n")) != std::string::npos; rest.erase(0, end + 2)) {
      if (rest.compare(0, 6, "data: ") != 0) continue;
      const std::string event = rest.substr(6, end - 6);
      if (event == "[DONE]") {
        ended = true;
        continue;
      }
      const Json chunk = Json::parse(event, nullptr, false);
      if (chunk.is_discarded()) {
        answer.error = "a chunk is not JSON: " + event.substr(0, 200);
        return false;
      }
      Take(chunk, &answer);
      if (on_chunk && !on_chunk(answer)) left = true;
      if (left) return false;
    }
    return true;
  };
  httplib::Client client = Connect(options_);
  answer.begin = Now();
  const httplib::Result result = client.send(request);
  if (left || !answer.error.empty()) return answer;
  if (!result)
    answer.error = path + ": " + httplib::to_string(result.error());
  else if (status != 200)
    answer.error = path + ": status " + std::to_string(status) + ": " + refusal.substr(0, 500);
  else if (!ended)
    answer.error = path + ": the stream has no end";
  return answer;
}

}  // namespace gates
