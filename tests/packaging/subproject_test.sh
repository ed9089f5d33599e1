#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: subproject_test.sh SOURCE_DIR BUILD_DIR PLACE [--build]
# The project as a part of another one: it brings dsv4::dsv4, and no tests, programs or installed files
# of its own. With --build the host is built, with the archive and offline, and answers.
set -eu
source=$1 place=$3
. "$source/tests/packaging/attempt.sh"

rm -rf "$place"
mkdir -p "$place"
cd "$place"
# A build type of the host's own: optimised enough for an answer, and fast to compile. Without precompiled headers, a
# source that does not include what it uses fails here.
attempt cmake.log cmake -G Ninja -S "$source/tests/packaging/subproject" -B build \
  -DDSV4_DIR="$source" -DDSV4_CUDA=OFF -DCMAKE_BUILD_TYPE=Host -DCMAKE_CXX_FLAGS_HOST=-O1 \
  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON -DFETCHCONTENT_FULLY_DISCONNECTED=ON
foreign=$(ninja -C build -t targets all | grep -E '(_test|/bench_[a-z]*|dsv4-[a-z]*|hello): ' || true)
[ -z "$foreign" ] || { echo "FAILED: the host builds $foreign"; exit 1; }
ctest --test-dir build -N | grep -qx 'Total Tests: 0' || { echo 'FAILED: the host has tests'; exit 1; }
DESTDIR=$place/stage attempt install.log cmake --install build
[ ! -e stage ] || { echo "FAILED: the host installs $(find stage -type f)"; exit 1; }

[ "${4-}" = --build ] || exit 0
attempt build.log ninja -C build paris
answer=$(build/paris "$source/models/dsv4-tiny" 'What is the capital of France?')
case $answer in
  *Paris*) ;;
  *) echo "FAILED: the answer is '$answer'"; exit 1 ;;
esac
