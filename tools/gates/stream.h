// SPDX-License-Identifier: Apache-2.0
// Requests that are answered while others are.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lib/base/mutex.h"
#include "tools/gates/client.h"

namespace gates {

// A request in a thread of its own.
class Stream {
 public:
  // Reads no chunk for `pause_s` after each.
  Stream(const Client& client, std::string path, Json request, double pause_s = 0);
  // Leaves the request.
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Waits until so many tokens have come. False when the answer has ended before.
  bool AwaitTokens(int64_t tokens);
  // Leaves the request after its next chunk.
  void Leave();
  // Waits for the end.
  Answer Join();

 private:
  bool OnChunk(const Answer& answer);

  const double pause_s_;
  dsv4::Mutex mutex_;
  dsv4::CondVar changed_;
  int64_t tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false, left_ ABSL_GUARDED_BY(mutex_) = false;
  Answer answer_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

// All at once; the answers in the order of the requests.
std::vector<Answer> StreamAll(const Client& client, const std::string& path,
                              const std::vector<Json>& requests);

}  // namespace gates
