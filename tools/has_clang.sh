#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/has_clang.sh
# Succeeds where clang 14, the C++ library and the runtimes of its sanitizers and of libFuzzer are installed.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cat >"$place/probe.cc" <<'PROBE'
#include <string>
extern "C" int LLVMFuzzerTestOneInput(const char* data, std::size_t size) {
  return std::string(data, size).empty() ? 0 : -1;
}
PROBE
clang++-14 -std=c++20 -fsanitize=fuzzer,address,undefined "$place/probe.cc" -o "$place/probe" 2>/dev/null
