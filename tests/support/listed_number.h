// SPDX-License-Identifier: Apache-2.0
// Numbers that the environment lists, separated by commas.
#pragma once

#include <cstdlib>
#include <sstream>
#include <string>

namespace dsv4::test {

inline bool IsListed(const char* variable, int number) {
  const char* const list = std::getenv(variable);
  std::stringstream numbers(list == nullptr ? "" : list);
  for (std::string text; std::getline(numbers, text, ',');) {
    if (std::stoi(text) == number) return true;
  }
  return false;
}

}  // namespace dsv4::test
