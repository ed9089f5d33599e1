#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: declarations_test.sh SOURCE_DIR
# The bindings have all that the C headers have: what generate.sh writes is as it would write it now,
# it declares the functions of dsv4.map, and the packages above use every function, constant and field.
set -eu
source=$1
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export LC_ALL=C
failures=0

fail() {
  echo "FAILED: $1"
  failures=$((failures + 1))
}

sh "$source/tests/bindings/generate.sh" "$place/new"
(cd "$place/new" && find examples -type f) | while read -r file; do
  diff -u "$source/$file" "$place/new/$file" || echo "$file" >>"$place/old"
done
[ ! -f "$place/old" ] ||
  fail "written from other headers (run tests/bindings/generate.sh): $(tr '\n' ' ' <"$place/old")"

sed -n 's/^ *\(dsv4_[a-z0-9_]*\);$/\1/p' "$source/capi/dsv4.map" | sort >"$place/map"
sed -n 's/^    pub fn \([a-z0-9_]*\)(.*/\1/p' "$source/examples/rust/dsv4-sys/src/bindings.rs" |
  sort >"$place/functions"
diff "$place/map" "$place/functions" || fail 'dsv4.map (<) and the Rust declarations (>) differ'
[ "$(wc -l <"$place/functions")" -gt 50 ] || fail 'too few functions'

words=$(cat "$place/functions"
  sed -n 's/^pub const \([A-Z0-9_]*\):.*/\1/p' "$source/examples/rust/dsv4-sys/src/bindings.rs"
  sed -n 's/^    pub \(r#\)\{0,1\}\([a-z0-9_]*\): .*/\2/p' \
    "$source/examples/rust/dsv4-sys/src/bindings.rs" | grep -v '^reserved[0-9]*$' | sort -u)
cat "$source"/examples/rust/dsv4/src/*.rs >"$place/rust"
cat "$source"/examples/go/dsv4/*.go >"$place/go"
for word in $words; do
  case $word in
    struct_size) continue ;;  # dsv4-sys sets it
  esac
  grep -qE "(^|[^A-Za-z0-9_])$word([^A-Za-z0-9_]|\$)" "$place/rust" ||
    fail "the crate dsv4 does not use $word"
  grep -qE "[^A-Za-z0-9]_?$word([^A-Za-z0-9_]|\$)" "$place/go" ||
    fail "the Go package does not use $word"
done

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
