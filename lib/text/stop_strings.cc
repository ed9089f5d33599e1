// SPDX-License-Identifier: Apache-2.0
#include "lib/text/stop_strings.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"

namespace dsv4 {

absl::StatusOr<StopStrings> StopStrings::Create(absl::Span<const std::string> strings) {
  if (strings.size() > kMaxStrings)
    return InvalidValue("stop_strings", " has ", strings.size(), " strings; expected at most ",
                        kMaxStrings);
  StopStrings stops;
  for (size_t i = 0; i < strings.size(); ++i) {
    const std::string& bytes = strings[i];
    if (bytes.empty() || bytes.size() > kMaxBytes)
      return InvalidValue(absl::StrCat("stop_strings[", i, "]"), " has ", bytes.size(),
                          " bytes; expected 1 to ", kMaxBytes);
    if (ValidUtf8Prefix(bytes) < bytes.size())
      return InvalidValue(absl::StrCat("stop_strings[", i, "]"), " is not UTF-8 at byte ",
                          ValidUtf8Prefix(bytes));
    Pattern pattern{bytes, std::vector<uint16_t>(bytes.size() + 1)};
    size_t border = 0;
    for (size_t n = 1; n < bytes.size(); ++n) {
      while (border > 0 && bytes[border] != bytes[n]) border = pattern.border[border];
      if (bytes[border] == bytes[n]) ++border;
      pattern.border[n + 1] = static_cast<uint16_t>(border);
    }
    stops.patterns_.push_back(std::move(pattern));
  }
  stops.held_.reserve(kMaxBytes);
  return stops;
}

bool StopStrings::Push(absl::string_view text, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    size_t found = 0;  // bytes of the longest stop string that ends here
    for (Pattern& pattern : patterns_) {
      size_t& matched = pattern.matched;
      while (matched > 0 && pattern.bytes[matched] != text[i]) matched = pattern.border[matched];
      if (pattern.bytes[matched] == text[i]) ++matched;
      if (matched == pattern.bytes.size()) found = std::max(found, matched);
    }
    if (found > 0) {
      Release(text.substr(0, i + 1), found, out);
      Reset();
      return true;
    }
  }
  size_t begun = 0;
  for (const Pattern& pattern : patterns_) begun = std::max(begun, pattern.matched);
  Release(text, begun, out);
  return false;
}

void StopStrings::Release(absl::string_view text, size_t kept, std::string* out) {
  const size_t released = held_.size() + text.size() - kept;
  const size_t of_held = std::min(released, held_.size()), of_text = released - of_held;
  out->append(held_, 0, of_held);
  held_.erase(0, of_held);
  out->append(text.data(), of_text);
  held_.append(text.data() + of_text, text.size() - of_text);
}

void StopStrings::Flush(std::string* out) {
  out->append(held_);
  Reset();
}

void StopStrings::Reset() {
  held_.clear();
  for (Pattern& pattern : patterns_) pattern.matched = 0;
}

}  // namespace dsv4
