// SPDX-License-Identifier: Apache-2.0
// Says in the log, once each, what requests have and the server leaves out.
#pragma once

#include <mutex>
#include <set>
#include <string>

namespace server {

class Notices {
 public:
  // Writes `text` to the log, unless it did before. After many different texts, further ones are
  // dropped: clients choose them. Any thread.
  void Say(const std::string& text);

 private:
  std::mutex mutex_;
  std::set<std::string> said_;
};

// How requests are read.
struct FieldRules {
  // Refuse fields, content, items and tools that are not known. Otherwise they are left out.
  bool strict = false;
  Notices* notices = nullptr;  // null: no log

  void Say(const std::string& text) const {
    if (notices != nullptr) notices->Say(text);
  }
};

}  // namespace server
