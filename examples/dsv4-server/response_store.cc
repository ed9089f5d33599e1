// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/response_store.h"

#include <utility>

#include "examples/dsv4-server/api_error.h"

namespace server {
namespace {

constexpr size_t kEntryBytes = 512;  // of an entry beside its texts

std::shared_ptr<const StoredResponse> Known(ResponseStore* store, const std::string& id) {
  if (auto response = store->Get(id)) return response;
  throw ApiError{404, "invalid_request_error", "no response with the id \"" + id + "\" is kept",
                 "id", "response_not_found"};
}

}  // namespace

void ResponseStore::Put(const std::string& id, StoredResponse response) {
  const size_t bytes =
      kEntryBytes + response.response.size() + response.input.size() + response.messages.size();
  if (bytes > most_bytes_) return;
  auto shared = std::make_shared<const StoredResponse>(std::move(response));
  const std::lock_guard lock(mutex_);
  if (const auto known = by_id_.find(id); known != by_id_.end()) Drop(known->second);
  while (!entries_.empty() && (entries_.size() >= most_responses_ || bytes_ + bytes > most_bytes_))
    Drop(std::prev(entries_.end()));
  entries_.push_front({id, std::move(shared), bytes});
  by_id_[id] = entries_.begin();
  bytes_ += bytes;
}

std::shared_ptr<const StoredResponse> ResponseStore::Get(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto known = by_id_.find(id);
  if (known == by_id_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, known->second);
  return known->second->response;
}

bool ResponseStore::Remove(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto known = by_id_.find(id);
  if (known == by_id_.end()) return false;
  Drop(known->second);
  return true;
}

void ResponseStore::Drop(Entries::iterator entry) {
  bytes_ -= entry->bytes;
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

std::string RetrieveResponse(ResponseStore* store, const std::string& id) {
  return Known(store, id)->response;
}

std::string ListInputItems(ResponseStore* store, const std::string& id) {
  return Known(store, id)->input;
}

Json DeleteResponse(ResponseStore* store, const std::string& id) {
  if (!store->Remove(id)) Known(store, id);
  return {{"id", id}, {"object", "response"}, {"deleted", true}};
}

}  // namespace server
