// SPDX-License-Identifier: Apache-2.0
// A server with OpenAI's API and no model behind it. It keeps what gates ask for, or breaks one of
// their promises on purpose.
#pragma once

#include <httplib.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"

namespace gates {

enum class Lie {
  kNone,
  kShort,             // answers have a token less than was asked for
  kForgetsPosition3,  // facts at positions that are 3 modulo 8
  kStalls,            // no request decodes while a long prompt is computed
  kInOrder,           // prompts are computed one after the other
  kCutStream,         // with many requests, one of them ends without a word
  kNoReuse,           // no prompt is found again
  kWrongReuse,        // prompts that are found again are continued otherwise
  kMixes,             // the text depends on who else is there
  kUnfair,            // one of the decoding sessions waits for the others
};

class LyingServer {
 public:
  explicit LyingServer(Lie lie);
  ~LyingServer();
  LyingServer(const LyingServer&) = delete;
  LyingServer& operator=(const LyingServer&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  using Json = nlohmann::ordered_json;
  using Tokens = std::vector<int32_t>;

  // A request that runs. A step of the made-up engine computes some tokens of its prompt, or one of
  // its answer.
  struct Running {
    int number = 0;  // requests are counted
    Tokens prompt;
    int64_t cached = 0, to_prefill = 0;
    int64_t most_tokens = 0, tokens = 0;  // sent
    uint64_t text_seed = 0;
    std::string whole_text;  // of a chat
    bool cut = false;
  };

  void Complete(const Json& body, httplib::Response* response);
  void Chat(const Json& body, httplib::Response* response);
  void Respond(std::shared_ptr<Running> running, bool chat, httplib::Response* response);
  // Runs the request until it has a token to send.
  void AwaitToken(Running* running);
  // Whether the engine's step of now does anything for the request.
  bool Serves(const Running& running) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Chunk(Running* running, bool chat);

  const Lie lie_;
  httplib::Server http_;
  int port_ = 0;
  std::thread listener_, engine_;
  dsv4::Mutex mutex_;
  dsv4::CondVar stepped_;
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  int next_number_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Running*> running_ ABSL_GUARDED_BY(mutex_);  // in order of arrival
  std::map<std::string, std::vector<Tokens>> seen_
      ABSL_GUARDED_BY(mutex_);  // prompts by cache_salt
};

}  // namespace gates
