#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: cuda_auto_test.sh SOURCE_DIR
# cmake/Dsv4Cuda.cmake where the first nvcc in PATH is a wrapper whose toolkit was removed: AUTO says so and
# builds without CUDA, ON fails, and an nvcc that the user names must work.
set -eu
source=$1
. "$(dirname "$0")/../support/expect.sh"

configure() {  # OPTION...
  status=0
  env -u CUDACXX -u CUDA_PATH PATH="$place/bin:$PATH" cmake -S . -B build "$@" >log 2>&1 || status=$?
}

mkdir bin
printf '#!/bin/sh\nexec %s/removed/bin/nvcc "$@"\n' "$place" >bin/nvcc
chmod +x bin/nvcc
cat >CMakeLists.txt <<PROJECT
cmake_minimum_required(VERSION 3.25)
project(cuda_auto_test C CXX)
include($source/cmake/Dsv4Cuda.cmake)
message(STATUS "with CUDA: \${DSV4_HAVE_CUDA}")
PROJECT

# The second time, with a cache.
for time in first second; do
  configure
  expect "AUTO continues, the $time time" test "$status" -eq 0
  expect "AUTO names the nvcc, the $time time" \
    test "$(grep -c "^-- $place/bin/nvcc does not work .*: the CUDA backend is not built$" log)" -eq 1
  expect "AUTO builds without CUDA, the $time time" grep -qx -- '-- with CUDA: OFF' log
  expect "no warning or error, the $time time" sh -c '! grep -i "CMake \(warning\|error\) " log'
done
configure -DDSV4_CUDA=ON
expect 'ON fails' test "$status" -ne 0
configure --fresh -DCMAKE_CUDA_COMPILER="$place/bin/nvcc"
expect 'AUTO fails with an nvcc that the user names' test "$status" -ne 0

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
