// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/messages_form.h"

#include <dsv4/dsv4.hpp>

#include <utility>

#include "examples/dsv4-server/api_error.h"

namespace server {
namespace {

bool IsUsers(const Json& message) { return message["role"] == "user" || message["role"] == "tool"; }

void ArrangeSystem(Json* messages) {
  Json arranged = Json::array();
  size_t users_begin = 0;  // of the user's messages at the end of `arranged`
  for (size_t i = 0; i < messages->size(); ++i) {
    Json& message = (*messages)[i];
    if (message["role"] == "system" && users_begin < arranged.size()) {
      size_t next = i + 1;
      while (next < messages->size() && (*messages)[next]["role"] == "system") ++next;
      if (next == messages->size() || !IsUsers((*messages)[next])) {
        arranged.insert(arranged.begin() + static_cast<ptrdiff_t>(users_begin++),
                        std::move(message));
        continue;
      }
    }
    const bool users = IsUsers(message) || message["role"] == "system";
    arranged.push_back(std::move(message));
    if (!users || arranged.back()["role"] == "system") users_begin = arranged.size();
  }
  *messages = std::move(arranged);
}

}  // namespace

bool FinishMessages(Json* messages, const std::string& field) {
  if (messages->empty()) throw InvalidField(field, "has no message");
  ArrangeSystem(messages);
  if (messages->back()["role"] == "system")
    messages->push_back({{"role", "user"}, {"content", ""}});
  Json& last = messages->back();
  const bool begun = last["role"] == "assistant";
  if (begun && last.contains("tool_calls") && !last["tool_calls"].empty())
    throw InvalidRequest(field,
                         field + ": the last message calls tools; their results are missing");
  if (begun) last["prefix"] = true;
  dsv4::RenderChatText(TextOf(*messages));
  return begun;
}

void AddToSystem(Json* messages, const char* key, Json value) {
  if (messages->front()["role"] != "system")
    messages->insert(messages->begin(), Json{{"role", "system"}, {"content", ""}});
  messages->front()[key] = std::move(value);
}

Json ArgumentsOf(const Json& given) {
  const bool empty = given.is_string() && given.get_ref<const std::string&>().find_first_not_of(
                                              " \t\r\n") == std::string::npos;
  return empty ? Json("{}") : given;
}

}  // namespace server
