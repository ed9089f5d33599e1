// SPDX-License-Identifier: Apache-2.0
// What tells an answer from others: its ids and its time. An answer that is computed again, because
// the device was lost, has the same ones.
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
  // The next ids are those which were given from the first one on.
  void Rewind() { next_ = 0; }

 private:
  const int64_t created_;
  std::vector<std::string> digits_;  // of the ids
  size_t next_ = 0;
};

}  // namespace server
