#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: symbols_test.sh SOURCE_DIR FILE.dll
# The library exports what capi/dsv4.map names, which tests/capi compares with the headers, and loads no library but
# the system's.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
x86_64-w64-mingw32-objdump -p "$2" >"$work/headers"
sed -n 's/^ *\(dsv4x*_[a-z0-9_]*\);$/\1/p' "$1/capi/dsv4.map" | sort >"$work/wanted"
sed -n '/^\[Ordinal\/Name Pointer\] Table/,$s/^\t*\[ *[0-9]*\] \([A-Za-z0-9_]*\)$/\1/p' "$work/headers" |
  sort >"$work/exported"
[ -s "$work/wanted" ] || { echo "FAILED: no symbol in capi/dsv4.map"; exit 1; }
diff "$work/wanted" "$work/exported" || { echo "FAILED: the exports differ"; exit 1; }
sed -n 's/^\tDLL Name: //p' "$work/headers" | sort -f >"$work/libraries"
others=$(grep -viE '^(kernel32|advapi32|msvcrt|dbghelp|api-ms-win-core-synch-l1-2-0)\.dll$' "$work/libraries" || true)
[ -z "$others" ] || { echo "FAILED: it also loads" $others; exit 1; }
grep -qi '^kernel32.dll$' "$work/libraries" || { echo "FAILED: no library found"; exit 1; }
