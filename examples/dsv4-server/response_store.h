// SPDX-License-Identifier: Apache-2.0
// Answers of /v1/responses that clients may read again and continue, in memory. When there are too
// many, the one that was not used for longest goes.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "examples/dsv4-server/json.h"

namespace server {

// An answer and what it answered, as texts, which are small.
struct StoredResponse {
  std::string response;  // the object that was answered
  std::string input;     // the list of its items
  std::string messages;  // of the conversation so far with the answer, for the library; JSON
  bool kept = false;     // its session may be kept
};

// Any thread.
class ResponseStore {
 public:
  // The most bytes and answers that are kept.
  explicit ResponseStore(size_t most_bytes = size_t{64} << 20, size_t most_responses = 10000)
      : most_bytes_(most_bytes), most_responses_(most_responses) {}

  // Keeps an answer that is not larger than all that may be kept.
  void Put(const std::string& id, StoredResponse response);
  // Null if there is none of this id.
  std::shared_ptr<const StoredResponse> Get(const std::string& id);
  // False if there is none.
  bool Remove(const std::string& id);

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<const StoredResponse> response;
    size_t bytes;
  };
  using Entries = std::list<Entry>;

  void Drop(Entries::iterator entry);

  const size_t most_bytes_, most_responses_;
  std::mutex mutex_;
  Entries entries_;  // the last used one first
  std::unordered_map<std::string, Entries::iterator> by_id_;
  size_t bytes_ = 0;
};

// The answers of the endpoints of one response. Throw an ApiError with status 404 for an unknown
// id.
std::string RetrieveResponse(ResponseStore* store, const std::string& id);
std::string ListInputItems(ResponseStore* store, const std::string& id);
Json DeleteResponse(ResponseStore* store, const std::string& id);

}  // namespace server
