// SPDX-License-Identifier: Apache-2.0
// The members of a request. The parser reads each by name. Those that would change the answer and
// are not supported are refused by name. All others are left out, which the log says once; with
// strict rules they are refused, too. A member that is null counts as missing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "examples/dsv4-server/json.h"
#include "examples/dsv4-server/notices.h"

namespace server {

class Fields {
 public:
  // The arguments must outlive this. `path` is the object's place in the request, "" for the
  // request itself. Throws an ApiError if it is not an object. All functions here throw for values
  // of a wrong type.
  Fields(const FieldRules& rules, const Json& object, std::string path = {});

  const FieldRules& rules() const { return rules_; }
  // The members of an object in this one.
  Fields Sub(const Json& object, const std::string& name) const {
    return {rules_, object, PathOf(name)};
  }

  // The place of a member, for error messages.
  std::string PathOf(std::string_view name) const;

  // Null when there is none.
  const Json* Any(const char* name);
  std::optional<bool> Bool(const char* name);
  // Throws if the member is null or missing.
  const Json& Required(const char* name);
  std::optional<std::string> String(const char* name);
  std::string RequiredString(const char* name);
  std::optional<double> Number(const char* name);
  std::optional<int64_t> Integer(const char* name, int64_t low, int64_t high);
  // A list; null without one.
  const Json* List(const char* name);
  // A list of strings; empty without one.
  std::vector<std::string> Strings(const char* name, const char* expected = "a list of strings");
  // A list of token ids; empty without one.
  std::vector<int32_t> Tokens(const char* name);

  // Accepts members that do not change the answer.
  void Ignore(std::initializer_list<const char*> names);
  // Throws an ApiError if a member of these names is there, unless it is false, empty, or a value
  // that asks for nothing.
  struct Neutral {
    const char* name;
    Json values = Json::array();
  };
  void RefuseUnless(std::initializer_list<Neutral> members);
  // Ends reading: says in the log which members were not read, or throws an ApiError about them.
  void LeaveOutOthers() const;

 private:
  const FieldRules& rules_;
  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

// A place in a request without its indices: "messages[].name".
std::string KindOfPlace(const std::string& path);

// The token ids in `list`, at `path` of the request. Throws an ApiError.
std::vector<int32_t> TokensOf(const Json& list, const std::string& path);

}  // namespace server
