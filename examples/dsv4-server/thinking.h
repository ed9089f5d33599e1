// SPDX-License-Identifier: Apache-2.0
// Whether the model thinks, and with how much effort.
#pragma once

#include <dsv4/dsv4.hpp>

#include <optional>
#include <string>

namespace server {

// Combines the fields in which clients specify it. Contradicting fields are an ApiError.
class Thinking {
 public:
  void Switch(const std::string& field, bool on);
  // none, minimal, low, medium, high, xhigh or max.
  void Effort(const std::string& field, const std::string& effort);
  // `otherwise`: for requests that do not specify it.
  dsv4_thinking_mode Mode(dsv4_thinking_mode otherwise) const;

 private:
  std::optional<bool> switch_;
  std::optional<dsv4_thinking_mode> effort_;
  std::string field_of_effort_;
};

}  // namespace server
