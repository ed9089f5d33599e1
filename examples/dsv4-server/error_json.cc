// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/error_json.h"

#include <cstdio>
#include <string>
#include <utility>

namespace server {
namespace {

// By these words clients of Anthropic's API know that they must shorten the conversation.
std::string AnthropicMessageOf(const ApiError& error) {
  long long tokens = 0, most = 0;
  if (std::sscanf(error.message.c_str(), "the prompt has %lld tokens; the context holds %lld",
                  &tokens, &most) != 2)
    return error.message;
  return "prompt is too long: " + std::to_string(tokens) + " tokens > " + std::to_string(most) +
         " maximum";
}

}  // namespace

Json JsonOf(const ApiError& error) {
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Json() : Json(text);
  };
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

Json AnthropicJsonOf(const ApiError& error) {
  static constexpr std::pair<int, const char*> kTypes[] = {
      {401, "authentication_error"}, {404, "not_found_error"}, {413, "request_too_large"},
      {429, "rate_limit_error"},     {500, "api_error"},       {503, "overloaded_error"}};
  const char* type = "invalid_request_error";
  for (const auto& [status, name] : kTypes) {
    if (error.status == status) type = name;
  }
  return {{"type", "error"}, {"error", {{"type", type}, {"message", AnthropicMessageOf(error)}}}};
}

}  // namespace server
