#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: clients_test.sh SOURCE_DIR BUILD_DIR PLACE PREFIX LIBDIR
# Clients of the library installed under PREFIX, each built as its author would and asked for a
# capital: by the CMake package, shared and static, and by pkg-config, shared and static.
set -eu
source=$1 place=$3 prefix=$4 libdir=$4/$5
model=$source/models/dsv4-tiny
consumer=$source/tests/packaging/consumer
question='What is the capital of France?'

. "$source/tests/packaging/attempt.sh"
answers() {  # COMMAND...
  answer=$("$@" "$model" "$question") || fail "$* exits with $?"
  case $answer in
    *Paris*) ;;
    *) fail "$* answers '$answer'" ;;
  esac
}
uses_shared() { readelf -d "$1" | grep -q 'NEEDED.*\[libdsv4\.so\.[0-9]*\]'; }

rm -rf "$place"
mkdir -p "$place"
cd "$place"

# By CMake. Versions are compared, components are known.
for static in OFF ON; do
  attempt cmake.log cmake -G Ninja -S "$consumer" -B cmake-$static -DCMAKE_PREFIX_PATH="$prefix" \
    -DSTATIC=$static -DCMAKE_BUILD_TYPE=Release
  attempt build.log ninja -C cmake-$static
  answers cmake-$static/paris
done
uses_shared cmake-OFF/paris || fail 'the client of the shared library does not load it'
! uses_shared cmake-ON/paris || fail 'the client of the archive loads the shared library'
# finds WHAT: a project that asks for no more than that is configured.
mkdir finds
finds() {
  printf 'cmake_minimum_required(VERSION 3.25)\nproject(finds LANGUAGES NONE)\nset(CMAKE_SIZEOF_VOID_P 8)\nfind_package(dsv4 %s REQUIRED)\n' "$1" \
    >finds/CMakeLists.txt
  cmake --fresh -S finds -B finds/build -DCMAKE_PREFIX_PATH="$prefix" >finds.log 2>&1
}
finds 0.1 || fail "version 0.1 is not found: $(cat finds.log)"
! finds 9.0 || fail 'version 9.0 is found'
! finds 'COMPONENTS cuda_static' || fail 'a component that there is not is found'
grep -q 'no component "cuda_static"' finds.log || fail "no reason is given: $(cat finds.log)"

# By pkg-config.
export PKG_CONFIG_PATH="$libdir/pkgconfig"
for word in $(pkg-config --cflags dsv4); do
  case $word in
    -I"$prefix"/*) ;;
    *) fail "dsv4.pc gives $word" ;;
  esac
done
attempt cc.log cc -std=c99 -Wall -Wextra -Werror -pedantic $(pkg-config --cflags dsv4) "$consumer/paris.c" \
  -o shared $(pkg-config --libs dsv4)
uses_shared shared || fail 'the client by pkg-config does not load the shared library'
answers env LD_LIBRARY_PATH="$libdir" ./shared
# The archive alone, as a tree without the shared library has it.
mkdir archive
cp "$libdir/libdsv4.a" archive
attempt cc.log cc $(pkg-config --cflags dsv4) "$consumer/paris.c" -o static -Larchive \
  $(pkg-config --static --libs dsv4 | sed "s,-L$prefix[^ ]*,,")
! uses_shared static || fail 'the static client by pkg-config loads the shared library'
answers ./static

# Where there is no driver, no GPU and no NCCL the library opens on the CPU and its log says so.
# Damaged ones in front stand for absent ones, so that the test means something on every machine.
mkdir none
for name in libcuda.so.1 libnvidia-ml.so.1 libnccl.so.2; do
  echo 'no library' >none/$name
done
LD_LIBRARY_PATH=$place/none cmake-OFF/log "$model" >log.out 2>log.err || fail "without a driver: $(cat log.err)"
[ ! -s log.err ] || fail "without a driver it prints $(cat log.err)"
[ "$(tail -n 1 log.out)" = 1 ] || fail "not the CPU without a driver: $(cat log.out)"
grep -q '^log: .*cpu' log.out || fail "the log does not name the CPU: $(cat log.out)"
if grep -q '^build: .*cuda' log.out; then
  grep -qi '^log: .*cuda' log.out || fail "the log does not say why not the GPU: $(cat log.out)"
fi

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
