// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/api_error.h"

#include <algorithm>
#include <dsv4/error.hpp>
#include <exception>
#include <new>
#include <utility>

namespace server {
namespace {

// Fields of requests that the library calls otherwise.
constexpr std::pair<const char*, const char*> kFieldNames[] = {
    {"bias_tokens", "logit_bias"},
    {"biases", "logit_bias"},
    {"ids", "prompt"},
    {"log_probs", "logprobs"},
    {"max_thinking_tokens", "thinking.budget_tokens"},
    {"stop_strings", "stop"},
    {"stop_tokens", "stop_token_ids"},
    {"tokens", "prompt"},
};

// The field of the request that the library's error is about; "" for none.
std::string FieldOf(const dsv4::Error& error) {
  const std::string& argument = error.argument();
  const std::string message = error.what();
  // Messages that came as JSON are named by the text alone.
  if (argument.empty() && message.starts_with("messages["))
    return message.substr(0, message.find_first_of(": "));
  if (argument.starts_with("messages")) return argument;
  std::string name = argument.substr(argument.rfind('.') + 1);
  name.resize(std::min(name.find('['), name.size()));
  for (const auto& [ours, theirs] : kFieldNames) {
    if (name == ours) return theirs;
  }
  return name;
}

ApiError ErrorOf(const dsv4::Error& error) {
  switch (error.code()) {
    case DSV4_ERR_INVALID_ARGUMENT:
    case DSV4_ERR_UNSUPPORTED:
    case DSV4_ERR_CORRUPT:
    case DSV4_ERR_NOT_FOUND:
      return InvalidRequest(FieldOf(error), error.what());
    case DSV4_ERR_CONTEXT_FULL:
      return {400, "invalid_request_error", error.what(), FieldOf(error),
              "context_length_exceeded"};
    case DSV4_ERR_OUT_OF_BLOCKS:
      return {503, "server_error", error.what(), "", "out_of_cache"};
    case DSV4_ERR_OUT_OF_HOST_MEMORY:
      return {503, "server_error", error.what(), "", "out_of_memory"};
    case DSV4_ERR_CANCELLED:
      return Stopping();
    case DSV4_ERR_DEVICE_LOST:
      return DeviceLost(error.what());
    default:
      return {500, "server_error", error.what(), "", error.name()};
  }
}

}  // namespace

ApiError InvalidRequest(const std::string& param, const std::string& message) {
  return {400, "invalid_request_error", message, param};
}

ApiError InvalidField(const std::string& field, const std::string& what) {
  return InvalidRequest(field, field + " " + what);
}

ApiError Stopping() { return {503, "server_error", "the server is stopping", "", "stopping"}; }

ApiError DeviceLost(const std::string& message) {
  return {503, "server_error", message, "", "device_lost"};
}

ApiError CurrentApiError() {
  try {
    throw;
  } catch (const ApiError& error) {
    return error;
  } catch (const dsv4::Error& error) {
    return ErrorOf(error);
  } catch (const std::bad_alloc&) {
    return {500, "server_error", "out of memory"};
  } catch (const std::exception& error) {
    return {500, "server_error", error.what()};
  }
}

}  // namespace server
