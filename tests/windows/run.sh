#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tests/windows/run.sh LINUX_BUILD_DIR
# Builds the library and the programs for Windows in build-windows and runs their tests under Wine, and what a user of
# the library does by docs/windows.md. Exits 77, with the reason, where Debian's mingw-w64, Wine or sources are missing.
set -eu
linux=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
skip() { echo "skipped: $*"; exit 77; }
command -v apt-get >/dev/null || skip "the libraries for Windows are built from Debian's sources, and this is not Debian"
for program in x86_64-w64-mingw32-g++-posix:g++-mingw-w64-x86-64-posix wine:wine dpkg-source:dpkg-dev; do
  command -v "${program%:*}" >/dev/null || skip "no ${program%:*} (apt-get install ${program#*:})"
done
begin=$(date +%s)
passed() { echo "information: $1 after $(($(date +%s) - begin)) s"; }
status=0
tools/windows_dependencies.sh || status=$?
[ $status -ne 77 ] || skip "Debian's sources of the libraries cannot be fetched"
[ $status -eq 0 ] || exit $status
passed 'libraries for Windows'
# The images of the GPU's kernels are those of the build for Linux, which has just made them.
images=
if [ -e "$linux/kernels/sm12x/images" ]; then images=-DDSV4_CUDA_IMAGES_OF=$linux; fi
cmake --preset windows $images >build-windows/configure.log 2>&1 || { cat build-windows/configure.log; exit 1; }
ninja -C build-windows >build-windows/build.log 2>&1 || { cat build-windows/build.log; exit 1; }
passed 'build for Windows'
# Wine 8 now and then does not start a program: it ends at once, without a word. What fails twice is a failure.
ctest --preset windows -j 2 --repeat until-pass:2
sh tests/windows/exchange_test.sh . build-windows "$linux"
sh tests/windows/package_test.sh . build-windows
passed 'tests under Wine'
