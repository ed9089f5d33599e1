#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/clang_tidy.sh BUILD_DIR
# The checks of .clang-tidy over all C++ sources of the library that BUILD_DIR compiles (lib, kernels,
# capi), as errors; and over a source with a planted defect, which must be found.
set -eu
build=$(cd "$1" && pwd)
cd -P "$(dirname "$0")/.."
for tidy in clang-tidy-14 clang-tidy ''; do
  [ -n "$tidy" ] || { echo "skipped: clang-tidy is not installed (apt-get install clang-tidy-14)"; exit 77; }
  ! command -v "$tidy" >/dev/null || break
done
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

cp .clang-tidy "$place"
printf 'struct Implicit {\n  Implicit(int value);\n};\n' >"$place/planted.cc"
if (cd "$place" && $tidy --quiet planted.cc -- -std=c++20) >"$place/log" 2>&1; then
  echo "a planted implicit constructor is not found"
  exit 1
fi
grep -q google-explicit-constructor "$place/log" || { cat "$place/log"; exit 1; }

# Without headers that GCC has precompiled, which clang cannot read.
sed 's| -Winvalid-pch -include [^ ]*/cmake_pch\.hxx||' "$build/compile_commands.json" >"$place/compile_commands.json"
# GCC's warning options are unknown to clang; thread safety is what lib/base/mutex.h annotates.
sed -n "s|^ *\"file\": \"$PWD/\(.*\.cc\)\".*|\1|p" "$place/compile_commands.json" |
  grep -E '^(lib|kernels|capi)/' | sort -u >"$place/sources"
[ -s "$place/sources" ] || { echo "$build/compile_commands.json names no source"; exit 1; }
xargs -P "$(nproc)" -n 4 $tidy --quiet -p "$place" --extra-arg=-Wno-unknown-warning-option \
  --extra-arg=-Wthread-safety \
  <"$place/sources" 2>/dev/null
echo "$(wc -l <"$place/sources") sources"
