// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/json.h"

#include <cstddef>
#include <vector>

#include "examples/dsv4-server/api_error.h"

namespace server {
namespace {

constexpr size_t kMostLevels = 64;
constexpr size_t kMostMembers = 1024;  // Json looks for a name among all members

// Bounds what the parser is given. Text that is not JSON may pass: the parser refuses it.
void CheckShape(std::string_view text) {
  std::vector<size_t> colons;  // of each open bracket
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      colons.push_back(0);
      if (colons.size() > kMostLevels)
        throw InvalidRequest(
            "", "the body is nested deeper than " + std::to_string(kMostLevels) + " levels");
    } else if (c == '}' || c == ']') {
      if (!colons.empty()) colons.pop_back();
    } else if (c == ':' && !colons.empty() && ++colons.back() > kMostMembers) {
      throw InvalidRequest(
          "", "the body has an object of more than " + std::to_string(kMostMembers) + " members");
    }
  }
}

}  // namespace

Json ParseObject(std::string_view text) {
  CheckShape(text);
  try {
    Json json = Json::parse(text);
    if (json.is_object()) return json;
  } catch (const Json::parse_error& error) {
    throw InvalidRequest("", "the body is not JSON: error at byte " + std::to_string(error.byte));
  } catch (const Json::out_of_range&) {
    throw InvalidRequest("", "the body has a number that is too large");
  }
  throw InvalidRequest("", "the body is not a JSON object");
}

std::string TextOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace server
