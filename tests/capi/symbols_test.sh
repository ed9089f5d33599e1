#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: symbols_test.sh SOURCE_DIR LIBRARY NM
# The functions that the headers declare, the version script and the library's exports are one list;
# client_test.c calls each of them. Version nodes are those of releases up to this version.
set -eu
source=$1 library=$2 nm=$3
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export LC_ALL=C

# A declaration is DSV4_API, a type, the name and an opening bracket.
cat "$source"/include/dsv4/*.h | grep -v '^#' | tr '\n' ' ' |
  grep -o 'DSV4_API [a-z0-9_ *]*(' | sed 's/ *($//; s/.*[ *]//' | sort >"$place/headers"
sed -n 's/^ *\(dsv4_[a-z0-9_]*\);$/\1/p' "$source/capi/dsv4.map" >"$place/map"
# Leaves out the version node, an absolute symbol.
"$nm" -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
  sort >"$place/library"

failed=0
[ -s "$place/headers" ] || { echo "the headers declare nothing"; failed=1; }
sort -c "$place/map" || failed=1
diff "$place/headers" "$place/map" || { echo "headers (<) and dsv4.map (>) differ"; failed=1; }
diff "$place/map" "$place/library" || { echo "dsv4.map (<) and the library (>) differ"; failed=1; }
# The nodes of the map, oldest first, none newer than this version.
{ sed -n 's/^DSV4_\([0-9.]*\) {$/\1/p' "$source/capi/dsv4.map"
  sed -n 's/^project(dsv4 VERSION \([0-9.]*\) .*/\1/p' "$source/CMakeLists.txt"; } >"$place/nodes"
[ "$(wc -l <"$place/nodes")" -ge 2 ] && sort -VC "$place/nodes" ||
  { echo "dsv4.map has a node of a later version:"; cat "$place/nodes"; failed=1; }
for function in $(cat "$place/map"); do
  grep -q "[^a-z0-9_]$function(" "$source/tests/capi/client_test.c" ||
    { echo "client_test.c does not call $function"; failed=1; }
done
exit $failed
