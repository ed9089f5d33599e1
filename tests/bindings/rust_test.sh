#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: rust_test.sh SOURCE_DIR BUILD_DIR LIBRARY_DIR PKG_CONFIG_DIR CC
# The Rust crates of examples/rust: their tests, their layouts against the C compiler's, how they find
# the library, and the chat. All that is built lies in BUILD_DIR.
set -eu
source=$1 build=$2 libraries=$3 pkg_config=$4 cc=$5
. "$source/tests/bindings/expect.sh"
command -v cargo >/dev/null || skip 'no cargo (apt-get install rustc cargo)'
minor=$(rustc --version | sed 's/^rustc 1\.\([0-9]*\).*/\1/')
[ "$minor" -ge 63 ] || skip "rustc 1.$minor is older than 1.63"

mkdir -p "$build"
export CARGO_HOME="$build/cargo" CARGO_TARGET_DIR="$build/target" CARGO_INCREMENTAL=0
export CARGO_PROFILE_DEV_DEBUG=0 PKG_CONFIG_PATH="$pkg_config" LD_LIBRARY_PATH="$libraries"
files_of "$source/examples/rust" >"$build/before"
write_listing

cd "$source/examples/rust"
# With the ignored test, which is that of the layouts.
cargo test -q --offline --locked --workspace -- --include-ignored
cargo build -q --offline --locked --package dsv4-rust-chat
expect_chat "$build/target/debug/dsv4-rust-chat"

# pkg-config is asked first, then DSV4_LIB_DIR; without either the error names both.
rustc --edition 2021 dsv4-sys/build.rs -o "$build/build_script"
script() { env "$@" "$build/build_script" >"$build/out" 2>"$build/err"; }
script DSV4_LIB_DIR=/elsewhere
grep -qxF "cargo:rustc-link-search=native=$libraries" "$build/out"
script PKG_CONFIG=false DSV4_LIB_DIR=/elsewhere
grep -qxF 'cargo:rustc-link-search=native=/elsewhere' "$build/out"
grep -qxF 'cargo:rustc-link-lib=dsv4' "$build/out"
! script PKG_CONFIG=false
grep -q 'PKG_CONFIG_PATH.*DSV4_LIB_DIR' "$build/err"

files_of "$source/examples/rust" | diff "$build/before" - || { echo "FAILED: files in the source"; exit 1; }
