// SPDX-License-Identifier: Apache-2.0
#include "examples/dsv4-server/identity.h"

#include "examples/dsv4-server/common_request.h"

namespace server {
namespace {

std::string RandomDigits() {
  constexpr char kDigits[] = "0123456789abcdef";
  uint64_t bits[2] = {RandomNumber(), RandomNumber()};
  std::string digits;
  for (int i = 0; i < 24; ++i) {
    digits += kDigits[bits[i / 16] & 15];
    bits[i / 16] >>= 4;
  }
  return digits;
}

}  // namespace

Identity::Identity() : created_(SecondsSince1970()) {}

std::string Identity::NewId(const std::string& prefix) {
  if (next_ == digits_.size()) digits_.push_back(RandomDigits());
  return prefix + digits_[next_++];
}

}  // namespace server
