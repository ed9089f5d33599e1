#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: package_test.sh SOURCE_DIR BUILD_DIR
# The archive for Windows has all that a user of the library needs: its programs answer where it is unpacked, and
# hello.c is compiled and linked from it alone by the commands of docs/windows.md. Where they are here, also LLVM's tools
# in MSVC's place, Go, Rust, and the installer.
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wine() { "$source/tests/windows/wine.sh" "$@" </dev/null; }
fail() { echo "FAILED: $*"; exit 1; }

(cd "$build" && cpack -G ZIP >"$work/cpack.log" 2>&1) || { cat "$work/cpack.log"; fail "no archive"; }
(cd "$work" && cmake -E tar xf "$build"/packages/dsv4-*-windows-x86_64.zip)
root=$(echo "$work"/dsv4-*-windows-x86_64)
for file in bin/libdsv4.dll bin/libdsv4.dll.debug bin/dsv4-chat.exe bin/dsv4-server.exe bin/dsv4-gates.exe \
  bin/dsv4-bench.exe bin/dsv4-verify.exe lib/libdsv4.dll.a lib/dsv4.lib lib/libdsv4.def include/dsv4/dsv4.h include/dsv4/dsv4.hpp LICENSE NOTICE \
  licenses/abseil.txt models/dsv4-tiny/config.json doc/windows.md; do
  [ -s "$root/$file" ] || fail "the archive has no $file"
done
WINEPATH=
export WINEPATH
cd "$root"
wine bin/dsv4-chat.exe -m models/dsv4-tiny -p 'What is the capital of France?' | grep -q Paris || fail dsv4-chat
wine bin/dsv4-server.exe --version | grep -q '^dsv4 ' || fail dsv4-server

# The commands of the document, between its lines of the language `sh windows`.
awk '/^```sh windows$/ { inside = 1; next } /^```$/ { inside = 0 } inside' doc/windows.md >"$work/steps"
[ -s "$work/steps" ] || fail "doc/windows.md has no commands"
sh -e "$work/steps" || fail "the commands of doc/windows.md"
wine ./hello.exe models/dsv4-tiny 'What is the capital of France?' | grep -q Paris || fail "hello.exe"

# LLVM's tools in MSVC's place: its rules for the headers, its objects, and a linker that takes dsv4.lib. Without a C
# library, which would be MSVC's.
if command -v clang >/dev/null && command -v lld-link >/dev/null; then
  kernel32=$(x86_64-w64-mingw32-gcc-posix -print-file-name=libkernel32.a)
  clang --target=x86_64-pc-windows-msvc -std=c99 -ffreestanding -Iinclude -Wall -Wextra -Werror \
    -c "$source/tests/windows/msvc_client.c" -o "$work/client.obj"
  lld-link /entry:start /subsystem:console "/out:client.exe" "$work/client.obj" lib/dsv4.lib "$kernel32"
  wine ./client.exe | grep -q '^dsv4 ' || fail "a client linked as MSVC links"
else
  echo "information: no clang and lld-link: no client in MSVC's place"
fi

# Go, cross-compiled. Its cache does not know that what pkg-config says has changed.
if command -v go >/dev/null; then
  (cd "$source/examples/go" && GOCACHE=$work/go PKG_CONFIG_LIBDIR=$root/lib/pkgconfig GOOS=windows GOARCH=amd64 CGO_ENABLED=1 \
    CC=x86_64-w64-mingw32-gcc-posix go build -o "$root/gochat.exe" ./chat) || fail "the package for Go"
  wine ./gochat.exe models/dsv4-tiny 'What is the capital of France?' | grep -q Paris || fail "gochat.exe"
else
  echo "information: no Go"
fi

# Rust, cross-compiled, by a compiler that has the target; Debian's has a package for it.
target=x86_64-pc-windows-gnu
rust=
for compiler in "${RUSTC:-rustc}" /usr/bin/rustc; do
  sysroot=$($compiler --print sysroot 2>/dev/null) || continue
  if [ -d "$sysroot/lib/rustlib/$target" ]; then rust=$(command -v "$compiler"); break; fi
done
if [ -n "$rust" ]; then
  cargo=$(dirname "$rust")/cargo
  [ -x "$cargo" ] || cargo=/usr/bin/cargo
  (cd "$source/examples/rust" && PKG_CONFIG_LIBDIR=$root/lib/pkgconfig RUSTC=$rust CARGO_TARGET_DIR=$work/rust \
    CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc-posix \
    "$cargo" build --quiet --offline --target $target -p dsv4-rust-chat) || fail "the crates for Rust"
  cp "$work/rust/$target/debug/dsv4-rust-chat.exe" "$root/bin"
  wine bin/dsv4-rust-chat.exe models/dsv4-tiny 'What is the capital of France?' | grep -q Paris || fail "the crates for Rust"
else
  echo "information: no Rust with the target $target (Debian: rustc, cargo, libstd-rust-dev-windows)"
fi

# The installer, without questions, puts the same files where it is told.
if command -v makensis >/dev/null; then
  (cd "$build" && cpack -G NSIS >"$work/cpack.log" 2>&1) || { cat "$work/cpack.log"; fail "no installer"; }
  wine "$build"/packages/dsv4-*-windows-x86_64.exe /S '/D=C:\dsv4-test' || fail "the installer"
  installed=${DSV4_WINE:-$source/build-windows/wine}/drive_c/dsv4-test
  cmp "$root/bin/libdsv4.dll" "$installed/bin/libdsv4.dll" || fail "what the installer puts"
  rm -rf "$installed"
else
  echo "information: no makensis (Debian: nsis): no installer"
fi
