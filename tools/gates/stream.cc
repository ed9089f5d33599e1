// SPDX-License-Identifier: Apache-2.0
#include "tools/gates/stream.h"

#include <chrono>
#include <utility>

namespace gates {

Stream::Stream(const Client& client, std::string path, Json request, double pause_s)
    : pause_s_(pause_s),
      thread_([this, &client, path = std::move(path), request = std::move(request)] {
        Answer answer =
            client.Stream(path, request, [this](const Answer& so_far) { return OnChunk(so_far); });
        const dsv4::MutexLock lock(&mutex_);
        answer_ = std::move(answer);
        ended_ = true;
        changed_.SignalAll();
      }) {}

Stream::~Stream() {
  Leave();
  if (thread_.joinable()) thread_.join();
}

bool Stream::OnChunk(const Answer& answer) {
  {
    const dsv4::MutexLock lock(&mutex_);
    tokens_ = answer.tokens();
    changed_.SignalAll();
    if (left_) return false;
  }
  if (pause_s_ > 0) std::this_thread::sleep_for(std::chrono::duration<double>(pause_s_));
  return true;
}

bool Stream::AwaitTokens(int64_t tokens) {
  const dsv4::MutexLock lock(&mutex_);
  while (!ended_ && tokens_ < tokens) changed_.Wait(&mutex_);
  return tokens_ >= tokens;
}

void Stream::Leave() {
  const dsv4::MutexLock lock(&mutex_);
  left_ = true;
}

Answer Stream::Join() {
  thread_.join();
  const dsv4::MutexLock lock(&mutex_);
  return answer_;
}

std::vector<Answer> StreamAll(const Client& client, const std::string& path,
                              const std::vector<Json>& requests) {
  std::vector<std::unique_ptr<Stream>> streams;
  for (const Json& request : requests)
    streams.push_back(std::make_unique<Stream>(client, path, request));
  std::vector<Answer> answers;
  for (const auto& stream : streams) answers.push_back(stream->Join());
  return answers;
}

}  // namespace gates
