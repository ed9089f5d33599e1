// SPDX-License-Identifier: Apache-2.0
// Whether, and how hard, the model is to think.
#pragma once

#include <dsv4/dsv4.hpp>

#include <optional>
#include <string>

namespace server {

// Joins the ways in which clients say it. Fields that contradict each other are an ApiError.
class Thinking {
 public:
  void Switch(const std::string& field, bool on);
  // none, minimal, low, medium, high, xhigh or max.
  void Effort(const std::string& field, const std::string& effort);
  // `otherwise`: of requests that say nothing.
  dsv4_thinking_mode Mode(dsv4_thinking_mode otherwise) const;

 private:
  std::optional<bool> switch_;
  std::optional<dsv4_thinking_mode> effort_;
  std::string field_of_effort_;
};

}  // namespace server
