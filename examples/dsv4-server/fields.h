// SPDX-License-Identifier: Apache-2.0
// The members of a request. The parser reads each by name. Members that it has not read are
// refused, so that none is ignored by accident. A member that is null counts as missing.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "examples/dsv4-server/json.h"

namespace server {

class Fields {
 public:
  // `object` must outlive this. `path` is its place in the request, "" for the request itself.
  // Throws an ApiError when it is no object, as all functions here do for values of a wrong type.
  explicit Fields(const Json& object, std::string path = {});

  // The place of a member, as errors name it.
  std::string PathOf(std::string_view name) const;

  // Null when there is none.
  const Json* Any(const char* name);
  std::optional<bool> Bool(const char* name);
  // Refuses a null, and one that is not there.
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

  // Members that change nothing of the answer.
  void Ignore(std::initializer_list<const char*> names);
  // Throws an ApiError that names a member that was not read.
  void RefuseOthers() const;

 private:
  const Json& object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

// The token ids in `list`, at `path` of the request. Throws an ApiError.
std::vector<int32_t> TokensOf(const Json& list, const std::string& path);

}  // namespace server
