#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: clang_test.sh SOURCE_DIR
# The public headers for another compiler than the one that builds the project: clang, as C99, C++17
# and C++20.
set -eu
for clang in clang-14 clang ''; do
  [ -n "$clang" ] || { echo "skipped: clang is not installed (apt-get install clang-14)"; exit 77; }
  ! command -v "$clang" >/dev/null || break
done
options="-Wall -Wextra -Werror -pedantic -fsyntax-only -I$1/include"
printf '#include <dsv4/dsv4.h>\n' | $clang -x c -std=c99 $options -
for standard in c++17 c++20; do
  printf '#include <dsv4/dsv4.hpp>\n' | $clang -x c++ -std=$standard $options -
done
