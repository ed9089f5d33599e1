#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: capi/abi/skeleton.sh INCLUDE_DIR MAP OUT
# Makes the library that the C headers of INCLUDE_DIR and the version script MAP describe: every
# function declared, with its types as debug information, and no body worth calling. libdsv4's own
# sources define the same functions under the same headers, so this is its ABI, without a build of
# the library and without a path of this machine. Uses $CC, or cc.
set -eu
include=$1 map=$2 out=$3
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir -p "$place/include/dsv4"
for header in "$include"/dsv4/*.h; do
  # What stands behind every declaration becomes a body.
  sed 's/^#define DSV4_NOEXCEPT$/#define DSV4_NOEXCEPT { __builtin_trap(); }/' "$header" \
    >"$place/include/dsv4/${header##*/}"
done
grep -q builtin_trap "$place/include/dsv4/abi.h"
echo '#include <dsv4/dsv4.h>' >"$place/dsv4.c"
cp "$map" "$place/dsv4.map"
(cd "$place" && ${CC:-cc} -std=gnu99 -g -O0 -fPIC -shared -fvisibility=hidden -Iinclude dsv4.c \
  -Wl,--version-script=dsv4.map -Wl,-soname,libdsv4.so -nostdlib -o dsv4.so)
cp "$place/dsv4.so" "$out"
