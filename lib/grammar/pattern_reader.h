// SPDX-License-Identifier: Apache-2.0
// The base of the readers of EBNF and of regular expressions.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace dsv4::grammar {

class PatternReader {
 protected:
  explicit PatternReader(absl::string_view text) : all_(text), rest_(text) {}
  ~PatternReader() = default;

  // The message `what` with the current place.
  virtual std::string Located(absl::string_view what) const = 0;

  absl::Status Bad(absl::string_view what) const;      // InvalidArgument
  absl::Status Refused(absl::string_view what) const;  // Unsupported: "`what` not supported"
  size_t Place() const { return all_.size() - rest_.size(); }
  bool At(absl::string_view text) const { return rest_.substr(0, text.size()) == text; }
  bool Take(absl::string_view text);
  // After "{": "3}", "3,}" or "3,5}". Without a maximum `max` is kUnbounded.
  absl::Status Repetitions(uint32_t* min, uint32_t* max);
  absl::StatusOr<uint32_t> Hex(size_t digits);

  const absl::string_view all_;
  absl::string_view rest_;

 private:
  absl::Status Number(uint32_t* number);
};

}  // namespace dsv4::grammar
