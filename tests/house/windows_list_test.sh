#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: windows_list_test.sh SOURCE_DIR
# Every test of tests/ runs under Wine, by its name in tests/windows/CMakeLists.txt, or is in the list of docs/windows.md
# with a reason, by its path in tests/ as a pattern of the shell. Not both.
set -eu
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# Tests by path.
find tests \( -name '*_test.c' -o -name '*_test.cc' -o -name '*_test.sh' -o -name '*_test.cu' \) |
  sed 's|^tests/||' | sort >"$work/tests"
# What is compiled there, or called.
sed 's/#.*//' tests/windows/CMakeLists.txt | tr ' ()' '\n\n\n' |
  sed 's|^\${tests}/||; s|_test\.[a-z]*$||' | grep '^[a-z0-9_]*/[a-z0-9_/]*$' | sort -u >"$work/named"
grep -ho 'tests/[a-z0-9_/-]*_test\.sh' tests/windows/*.sh | sed 's|^tests/||; s|_test\.sh$||' >>"$work/named"
# The first cells of the rows with a path in them.
awk '/^Not run there, and why/ { inside = 1 } /^#/ { inside = 0 } inside && /^\| `/' docs/windows.md |
  cut -d '|' -f 2 | tr -d ' ' | tr ',' '\n' | tr -d '`' >"$work/patterns"
[ "$(wc -l <"$work/tests")" -gt 200 ] && [ "$(wc -l <"$work/named")" -gt 100 ] && [ -s "$work/patterns" ] ||
  fail 'too few tests, or none in the list'

: >"$work/used"
while read -r test; do
  case $test in windows/*) continue ;; esac
  reason=
  while read -r pattern; do
    case $test in
      $pattern) reason=$pattern; echo "$pattern" >>"$work/used" ;;
    esac
  done <"$work/patterns"
  runs=
  if grep -qx "${test%_test.*}" "$work/named"; then runs=yes; fi
  [ -z "$reason" ] || [ -z "$runs" ] || fail "$test runs under Wine, and docs/windows.md says why not: $reason"
  [ -n "$reason" ] || [ -n "$runs" ] ||
    fail "$test neither runs under Wine (tests/windows/CMakeLists.txt) nor is in the list of docs/windows.md"
done <"$work/tests"
while read -r pattern; do
  grep -qxF "$pattern" "$work/used" || fail "docs/windows.md says why $pattern does not run, and there is none"
done <"$work/patterns"
[ $failures -eq 0 ] || exit 1
