// SPDX-License-Identifier: Apache-2.0
// Which config tests of the CUDA backend run kernels with: DSV4_TEST_CONFIG = N in the environment
// is the N-th of each entry's, counted from 0, its first where there are fewer. So every test of a
// kernel is one of all its configs.
#pragma once

#include <cstdlib>

#include "kernels/registry/kernel_entry.h"

namespace dsv4::test {

inline size_t& TestConfigIndex() {
  static size_t index = [] {
    const char* text = std::getenv("DSV4_TEST_CONFIG");
    return text == nullptr ? size_t{0} : static_cast<size_t>(std::strtoul(text, nullptr, 10));
  }();
  return index;
}

// Null for the entry's first.
inline const KernelConfig* TestConfigOf(const KernelEntry& entry) {
  const size_t index = TestConfigIndex();
  return index < entry.knobs.configs.size() ? &entry.knobs.configs[index] : nullptr;
}

// Calls f(index) once for each config of the entry, while launches of it run with that one.
template <class F>
void ForEachConfig(const KernelEntry& entry, F f) {
  const size_t before = TestConfigIndex();
  for (size_t i = 0; i < entry.knobs.configs.size(); ++i) {
    TestConfigIndex() = i;
    f(i);
  }
  TestConfigIndex() = before;
}

}  // namespace dsv4::test
