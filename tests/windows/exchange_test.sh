#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: exchange_test.sh SOURCE_DIR BUILD_DIR LINUX_BUILD_DIR
# Sessions saved on Linux continue on Windows with the same bits, and the other way; answers are the same.
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
linux=$(cd "$3" && pwd)
model=$source/models/dsv4-tiny
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
WINEPATH=$build/capi
export WINEPATH
windows() { "$source/tests/windows/wine.sh" "$@" </dev/null | tr -d '\r'; }
cc -std=c99 -I"$source/include" -o "$work/exchange" "$source/tests/windows/session_exchange.c" \
  -L"$linux/capi" -ldsv4 -Wl,-rpath,"$linux/capi"
exchange=$build/tests/windows/session_exchange.exe

"$work/exchange" save "$model" "$work/linux.session" >"$work/linux"
windows "$exchange" save "$model" "$work/windows.session" >"$work/windows"
windows "$exchange" load "$model" "$work/linux.session" >"$work/windows-from-linux"
"$work/exchange" load "$model" "$work/windows.session" >"$work/linux-from-windows"
[ "$(wc -l <"$work/linux")" -gt 3 ] || { cat "$work/linux"; echo "FAILED: too short"; exit 1; }
for file in windows windows-from-linux linux-from-windows; do
  diff "$work/linux" "$work/$file" || { echo "FAILED: $file"; exit 1; }
done
cmp "$work/linux.session" "$work/windows.session" ||
  echo "information: the saved files differ, as above"

"$linux/examples/hello" "$model" 'What is the capital of France?' >"$work/hello"
windows "$build/examples/hello.exe" "$model" 'What is the capital of France?' | diff "$work/hello" -
