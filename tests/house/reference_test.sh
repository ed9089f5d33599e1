#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: reference_test.sh SOURCE_DIR
# Doxygen makes the API reference without a warning; it describes every function and type of the
# public headers, and has every function that the library exports.
set -eu
cd "$1"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
status=0
tools/reference.sh "$place" >"$place/log" 2>&1 || status=$?
cat "$place/log"
[ "$status" -eq 0 ] || exit "$status"
[ -s "$place/html/index.html" ] || { echo "there is no html/index.html"; exit 1; }
cat "$place"/xml/*_8h.xml "$place"/xml/struct*.xml "$place"/xml/class*.xml \
  "$place"/xml/namespacedsv4.xml | awk -f tests/house/undocumented.awk >"$place/found"
functions=$(tail -n 1 "$place/found")
exported=$(grep -c '^ *dsv4_[a-z_]*;' capi/dsv4.map)
if [ "$functions" -ne "$exported" ]; then
  echo "the reference has $functions functions of C, capi/dsv4.map $exported"
  exit 1
fi
[ "$(wc -l <"$place/found")" -eq 1 ] || { echo "not documented:"; sed '$d' "$place/found"; exit 1; }
