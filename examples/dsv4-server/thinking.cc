// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/thinking.h"

#include <utility>

#include "examples/dsv4-server/api_error.h"

namespace server {
namespace {

[[noreturn]] void Refuse(const std::string& field) {
  throw InvalidField(field, "contradicts another field about thinking");
}

}  // namespace

void Thinking::Switch(const std::string& field, bool on) {
  if (switch_ && *switch_ != on) Refuse(field);
  switch_ = on;
}

void Thinking::Effort(const std::string& field, const std::string& effort) {
  static constexpr std::pair<const char*, dsv4_thinking_mode> kEfforts[] = {
      {"none", DSV4_THINKING_OFF},   {"minimal", DSV4_THINKING_LOW}, {"low", DSV4_THINKING_LOW},
      {"medium", DSV4_THINKING_LOW}, {"high", DSV4_THINKING_HIGH},   {"xhigh", DSV4_THINKING_MAX},
      {"max", DSV4_THINKING_MAX}};
  for (const auto& [name, mode] : kEfforts) {
    if (effort != name) continue;
    if (effort_ && *effort_ != mode) Refuse(field);
    effort_ = mode;
    field_of_effort_ = field;
    return;
  }
  throw InvalidRequest(
      field, field + ": \"" + effort + "\" is not none, minimal, low, medium, high, xhigh or max");
}

dsv4_thinking_mode Thinking::Mode(dsv4_thinking_mode otherwise) const {
  if (effort_) {
    if (switch_ && *switch_ != (*effort_ != DSV4_THINKING_OFF)) Refuse(field_of_effort_);
    return *effort_;
  }
  if (!switch_) return otherwise;
  if (!*switch_) return DSV4_THINKING_OFF;
  return otherwise == DSV4_THINKING_OFF ? DSV4_THINKING_LOW : otherwise;
}

}  // namespace server
