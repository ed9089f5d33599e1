#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tests/arm/run.sh BUILD_DIR [TEST_ARGUMENT...]
# Builds the CPU kernels and their tests for 64-bit Arm in BUILD_DIR and runs them under QEMU: NEON
# against the reference. Needs g++-aarch64-linux-gnu, qemu-user and a Debian mirror, from which the
# arm64 packages of Abseil and Highway are unpacked into BUILD_DIR; exits 77, with the reason, without.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
build=$(cd "$1" && pwd)
shift
skip() { echo "skipped: $*"; exit 77; }
for program in aarch64-linux-gnu-g++ qemu-aarch64; do
  command -v $program >/dev/null ||
    skip "no $program (apt-get install g++-aarch64-linux-gnu qemu-user)"
done

root=$build/root
if [ ! -e "$build/unpacked" ]; then
  # Lists and downloads of its own, so that the machine's stay as they are.
  apt=$build/apt
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$root"
  : >"$apt/status"
  arm_apt() {
    (cd "$apt" && apt-get -q -o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
      -o APT::Sandbox::User=root -o Dir::State="$apt" -o Dir::State::status="$apt/status" \
      -o Dir::Cache="$apt" "$@")
  }
  arm_apt update || skip "no list of Debian's arm64 packages"
  arm_apt download libabsl-dev libabsl20220623 libhwy-dev libhwy1 ||
    skip "Debian's arm64 packages of Abseil and Highway cannot be fetched"
  for package in "$apt"/*.deb; do dpkg-deb -x "$package" "$root"; done
  : >"$build/unpacked"
fi

# Headers alone, apart from those of this machine.
mkdir -p "$build/include"
ln -sfn /usr/include/catch2 "$build/include/catch2"
cmake -G Ninja -S "$here" -B "$build/tree" -DCMAKE_TOOLCHAIN_FILE="$here/toolchain.cmake" \
  -DDSV4_ARM_ROOT="$root" -DDSV4_CATCH2_DIR="$build/include" -DCMAKE_BUILD_TYPE=Release >"$build/cmake.log" ||
  { cat "$build/cmake.log"; exit 1; }
cmake --build "$build/tree" -- -k 0
exec qemu-aarch64 -L /usr/aarch64-linux-gnu \
  -E LD_LIBRARY_PATH="$root/usr/lib/aarch64-linux-gnu" "$build/tree/arm_kernels_test" "$@"
