// SPDX-License-Identifier: Apache-2.0
// The ids and the time of an answer. An answer that is computed again keeps them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace server {

class Identity {
 public:
  Identity();

  int64_t created() const { return created_; }  // seconds since 1970
  // The next id: `prefix` and 24 random digits.
  std::string NewId(const std::string& prefix);
  // Returns the same ids again, from the first one on.
  void Rewind() { next_ = 0; }

 private:
  const int64_t created_;
  std::vector<std::string> digits_;  // of the ids
  size_t next_ = 0;
};

}  // namespace server
