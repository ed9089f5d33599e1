// SPDX-License-Identifier: Apache-2.0
#include "tests/tools/gates/lying_server.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <sstream>
#include <utility>

namespace gates {
namespace {

constexpr int64_t kPromptTokensInStep = 8;
constexpr size_t kLongPrompt = 512;
constexpr size_t kMany = 3;  // requests
constexpr int64_t kContext = 65536;

uint64_t Mix(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x100000001b3; }

// One for each word and each end of a line.
std::vector<int32_t> TokensOf(const std::string& text) {
  std::vector<int32_t> tokens;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      uint64_t hash = 0xcbf29ce484222325;
      for (const char c : word) hash = Mix(hash, static_cast<uint8_t>(c));
      tokens.push_back(static_cast<int32_t>(100 + hash % 100000));
    }
    tokens.push_back(3);
  }
  return tokens;
}

std::vector<int32_t> TokensOfChat(const std::string& message) {
  std::vector<int32_t> tokens = {0, 1};
  const std::vector<int32_t> words = TokensOf(message);
  tokens.insert(tokens.end(), words.begin(), words.end());
  tokens.push_back(2);
  return tokens;
}

}  // namespace

LyingServer::LyingServer(Lie lie) : lie_(lie) {
  http_.new_task_queue = [] { return new httplib::ThreadPool(64); };
  http_.set_tcp_nodelay(true);
  http_.Get("/v1/models", [](const httplib::Request&, httplib::Response& response) {
    const Json list = {{"data", Json::array({{{"id", "liar"}, {"max_model_len", kContext}}})}};
    response.set_content(list.dump(), "application/json");
  });
  http_.Post("/tokenize", [](const httplib::Request& request, httplib::Response& response) {
    const Json body = Json::parse(request.body);
    const Tokens tokens = body.contains("messages") ? TokensOfChat(body["messages"][0]["content"])
                                                    : TokensOf(body["prompt"]);
    response.set_content(Json{{"tokens", tokens}}.dump(), "application/json");
  });
  http_.Post("/v1/completions",
             [this](const httplib::Request& request, httplib::Response& response) {
               Complete(Json::parse(request.body), &response);
             });
  http_.Post("/v1/chat/completions",
             [this](const httplib::Request& request, httplib::Response& response) {
               Chat(Json::parse(request.body), &response);
             });
  port_ = http_.bind_to_any_port("127.0.0.1");
  listener_ = std::thread([this] { http_.listen_after_bind(); });
  while (!http_.is_running()) std::this_thread::yield();
  engine_ = std::thread([this] {
    for (;;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const dsv4::MutexLock lock(&mutex_);
      if (ending_) return;
      ++step_;
      stepped_.SignalAll();
    }
  });
}

LyingServer::~LyingServer() {
  {
    const dsv4::MutexLock lock(&mutex_);
    ending_ = true;
    stepped_.SignalAll();
  }
  http_.stop();
  listener_.join();
  engine_.join();
}

void LyingServer::Complete(const Json& body, httplib::Response* response) {
  auto running = std::make_shared<Running>();
  running->prompt = body["prompt"].get<Tokens>();
  running->most_tokens = body["max_tokens"].get<int64_t>() - (lie_ == Lie::kShort);
  {
    const dsv4::MutexLock lock(&mutex_);
    std::vector<Tokens>& seen = seen_[body["cache_salt"].get<std::string>()];
    for (const Tokens& other : seen) {
      const size_t shorter = std::min(other.size(), running->prompt.size());
      const auto end = running->prompt.begin() + static_cast<ptrdiff_t>(shorter);
      const int64_t common = std::mismatch(running->prompt.begin(), end, other.begin()).first -
                             running->prompt.begin();
      running->cached = std::max(running->cached, common);
    }
    seen.push_back(running->prompt);
  }
  if (lie_ == Lie::kNoReuse) running->cached = 0;
  running->text_seed = body.value("seed", uint64_t{1});
  for (const int32_t token : running->prompt)
    running->text_seed = Mix(running->text_seed, static_cast<uint64_t>(token));
  if (lie_ == Lie::kWrongReuse && running->cached > 0) ++running->text_seed;
  Respond(std::move(running), false, response);
}

// Answers with the number that the message asks for.
void LyingServer::Chat(const Json& body, httplib::Response* response) {
  const std::string message = body["messages"][0]["content"];
  const std::string question = "What is ";
  const size_t name = message.rfind(question) + question.size();
  const std::string line = message.substr(name, message.find('\'', name) - name) + " = ";
  const size_t at = message.find("\n" + line) + 1;
  auto running = std::make_shared<Running>();
  running->prompt = TokensOfChat(message);
  running->most_tokens = 1;
  running->whole_text = message.substr(at + line.size(), 2);
  const size_t position = TokensOfChat(message.substr(0, at)).size() - 1;
  if (lie_ == Lie::kForgetsPosition3 && position % 8 == 3) running->whole_text = "none";
  Respond(std::move(running), true, response);
}

void LyingServer::Respond(std::shared_ptr<Running> running, bool chat,
                          httplib::Response* response) {
  running->to_prefill = static_cast<int64_t>(running->prompt.size()) - running->cached;
  {
    const dsv4::MutexLock lock(&mutex_);
    running->number = next_number_++;
    running_.push_back(running.get());
    running->cut = lie_ == Lie::kCutStream && running_.size() > kMany;
    if (lie_ == Lie::kMixes && running_.size() > 1) ++running->text_seed;
  }
  response->set_chunked_content_provider(
      "text/event-stream",
      [this, running, chat](size_t, httplib::DataSink& sink) {
        AwaitToken(running.get());
        const std::string chunk = Chunk(running.get(), chat);
        if (!sink.write(chunk.data(), chunk.size())) return false;
        if (running->tokens < running->most_tokens) return true;
        if (!running->cut) sink.write("data: [DONE]\n\n", 14);
        sink.done();
        return true;
      },
      [this, running](bool) {
        const dsv4::MutexLock lock(&mutex_);
        running_.erase(std::find(running_.begin(), running_.end(), running.get()));
      });
}

bool LyingServer::Serves(const Running& running) const {
  const auto is_long = [](const Running* other) {
    return other->to_prefill > 0 && other->prompt.size() > kLongPrompt;
  };
  const bool long_prompt_waits = std::any_of(running_.begin(), running_.end(), is_long);
  if (running.to_prefill > 0) {
    return lie_ != Lie::kInOrder ||
           std::none_of(running_.begin(), running_.end(), [&](const Running* other) {
             return other->number < running.number && other->to_prefill > 0;
           });
  }
  if (!long_prompt_waits) return true;
  if (lie_ == Lie::kStalls) return false;
  return lie_ != Lie::kUnfair || running.number % 4 != 0 || step_ % 2 == 0;
}

void LyingServer::AwaitToken(Running* running) {
  const dsv4::MutexLock lock(&mutex_);
  for (;;) {
    const int64_t step = step_;
    while (step_ == step && !ending_) stepped_.Wait(&mutex_);
    if (ending_) return;
    if (!Serves(*running)) continue;
    if (running->to_prefill <= 0) return;
    running->to_prefill -= kPromptTokensInStep;
  }
}

std::string LyingServer::Chunk(Running* running, bool chat) {
  const dsv4::MutexLock lock(&mutex_);
  const int64_t number = ++running->tokens;
  const std::string text =
      chat ? running->whole_text
           : " " + std::to_string(Mix(running->text_seed, static_cast<uint64_t>(number)) % 1000);
  Json choice = {{"index", 0}};
  if (chat)
    choice["delta"] = {{"content", text}};
  else
    choice["text"] = text;
  if (number == running->most_tokens) choice["finish_reason"] = "length";
  Json chunk = {{"choices", Json::array({std::move(choice)})}};
  chunk["usage"] = {{"prompt_tokens", running->prompt.size()},
                    {"completion_tokens", number},
                    {"prompt_tokens_details", {{"cached_tokens", running->cached}}}};
  return "data: " + chunk.dump() + "\n\n";
}

}  // namespace gates
