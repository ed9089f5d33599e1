#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: headers_test.sh SOURCE_DIR
# What compilers do not say of the C headers: plain ASCII; structs of members whose layout every
# compiler and language knows, with their size first; each struct with its initialiser, and
# passed shorter and longer by a test; nothing variadic; every function
# that can fail with an error to fill, last.
set -eu
cd "$1"
export LC_ALL=C
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0
fail() { echo "$*"; failed=1; }

! grep -n '[^ -~]' include/dsv4/*.h || fail "not ASCII"

# Without comments and preprocessor lines, one declaration or member a line.
for header in include/dsv4/*.h; do
  sed -e ':join' -e '/\\$/{N;s/\\\n//;b join' -e '}' "$header" | grep -v '^#\|^DSV4_[A-Z]*_DECLS$'
done | tr '\n' ' ' | sed 's|/\*|\n&|g' | sed 's|^/\*.*\*/||' | tr -d '\n' |
  sed 's/\([;{}]\)/\1\n/g' | sed 's/  */ /g; s/^ //' >"$place/lines"

awk '
  /^typedef struct dsv4_[a-z_]+ \{$/ { name = $3; first = 1; print name > structs; next }
  name != "" && /^\}/ { next }
  name != "" && $0 ~ "^" name ";$" { name = ""; next }
  name != "" {
    if (first && $0 != "uint32_t struct_size;") print name " begins with " $0
    first = 0
    if ($0 !~ /^(const )?(u?int(8|16|32|64)_t|float|double|char|dsv4_[a-z_]+|void|const char\* const)(\* const)?\*? ?[a-z_0-9]+;$/ ||
        $0 ~ /(^|[^a-z_])(bool|enum|size_t|long|unsigned|int) /) print name " has the member " $0
  }
  /\.\.\./ { print "variadic: " $0 }
  /^DSV4_API dsv4_status / && !/dsv4_error\*\* error\) DSV4_NOEXCEPT;$/ { print "without an error at its end: " $0 }
  /^DSV4_API / && !/DSV4_NOEXCEPT;$/ { print "may throw: " $0 }
' structs="$place/structs" "$place/lines" >"$place/findings"
[ ! -s "$place/findings" ] || { cat "$place/findings"; fail "the headers break rules of the ABI"; }

[ "$(grep -c . "$place/structs")" -ge 14 ] || fail "too few structs are found"
while read -r struct; do
  init=$(echo "$struct" | tr a-z A-Z)_INIT
  grep -q "^#define $init " include/dsv4/*.h || fail "$struct has no $init"
  grep -q "$init" tests/capi/abi_test.c || fail "abi_test.c does not look at $init"
  [ "$struct" = dsv4_parser_event ] || # goes out, with the library's own size
    grep -q "sizeof($struct)\|const $struct [a-z_]*\|$struct tool_call" tests/capi/struct_size_test.c ||
    fail "struct_size_test.c does not pass $struct"
done <"$place/structs"
exit $failed
