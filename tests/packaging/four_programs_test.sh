#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: four_programs_test.sh SOURCE_DIR BUILD_DIR PLACE LIBDIR
# `cmake --install` to a fresh prefix; then a program in C, one in C++, the chat in Rust and the chat in
# Go, each built against that prefix by its own language's road, answer one question.
set -eu
source=$1 build=$2 place=$3 prefix=$3/prefix libdir=$4
for tool in cargo rustc go; do
  command -v $tool >/dev/null || { echo "skipped: $tool is not installed (cargo, rustc, golang-go)"; exit 77; }
done

. "$source/tests/packaging/attempt.sh"
answers() {  # COMMAND...
  answer=$("$@" "$source/models/dsv4-tiny" 'What is the capital of France?') || failures=$((failures + 1))
  case $answer in
    *Paris*) ;;
    *) echo "FAILED: $* answers '$answer'"; failures=$((failures + 1)) ;;
  esac
}

rm -rf "$place"
mkdir -p "$place"
cd "$place"
attempt install.log cmake --install "$build" --prefix "$prefix"
export PKG_CONFIG_PATH="$prefix/$libdir/pkgconfig" LD_LIBRARY_PATH="$prefix/$libdir"
flags=$(pkg-config --cflags --libs dsv4)

attempt c.log cc -std=c99 -Wall -Wextra -Werror "$source/tests/packaging/consumer/paris.c" -o c $flags
answers ./c
attempt cxx.log c++ -std=c++17 -Wall -Wextra -Werror "$source/examples/hello.cc" -o cxx $flags
answers ./cxx
CARGO_TARGET_DIR=$place/cargo attempt rust.log cargo build --offline --locked \
  --manifest-path "$source/examples/rust/Cargo.toml" --package dsv4-rust-chat
answers cargo/debug/dsv4-rust-chat
cd "$source/examples/go"
GOCACHE=$place/go-cache GOPROXY=off attempt "$place/go.log" go build -o "$place/go" ./chat
cd "$place"
answers ./go

[ "$failures" -eq 0 ]
