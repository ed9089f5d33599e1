#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: cuda_test.sh SOURCE_DIR BUILD_DIR
# The CUDA backend of a build for Windows under Wine, with a driver that runs no kernel (fake_nvcuda.c): without a
# driver the library says so; with one, every kernel of the build is found by its name and launched, and an engine,
# which launches them with their arguments, refuses the GPU for its answers.
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
model=$source/models/dsv4-tiny
work=$(mktemp -d)
system32=${DSV4_WINE:-$source/build-windows/wine}/drive_c/windows/system32
trap 'rm -rf "$work" "$system32/nvcuda.dll"' EXIT
WINEPATH=$build/capi
export WINEPATH
fail() {
  echo "FAILED: $*"
  cat "$work/out"
  exit 1
}
wine() { "$source/tests/windows/wine.sh" "$@" >"$work/out" 2>&1 </dev/null; }
bench() { wine "$build/benchmarks/dsv4-bench/dsv4-bench.exe" -m "$model" --backend cuda -p 64 -n 8 -r 1 "$@"; }

rm -f "$system32/nvcuda.dll"
! bench || fail 'an engine without a driver'
grep -qi 'driver' "$work/out" || fail 'no word of the driver'

cp "$build/tests/windows/nvcuda.dll" "$system32"
wine "$build/tests/windows/kernels_windows_test.exe" || fail 'kernels'
cat "$work/out"
DSV4_FAKE_NVCUDA="Z:$work/kernels"
export DSV4_FAKE_NVCUDA
! bench || fail 'a GPU that gives no answers is taken'
grep -q '(Fake GPU) is refused: it failed its known answers' "$work/out" || fail 'no word of the answers'
[ -s "$work/kernels" ] || fail 'no kernel was launched'
launched=$(sed -n 's/^found [0-9]* launched \([0-9]*\)\r*$/\1/p' "$work/kernels")
echo "$launched kernels launched by an engine"
[ "$launched" -gt 1 ] || fail "too few kernels: $launched"
