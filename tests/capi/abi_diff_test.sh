#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: abi_diff_test.sh SOURCE_DIR
# The headers' ABI is the baseline's (capi/abi/libdsv4.abi), and keeps all that frozen releases
# promise; planted changes are noticed.
set -eu
cd "$1"
for tool in abidw abidiff; do
  command -v $tool >/dev/null || { echo "skipped: no $tool (apt-get install abigail-tools)"; exit 77; }
done
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
export LC_ALL=C
failed=0
fail() { echo "$*"; failed=1; }

capi/abi/skeleton.sh include capi/dsv4.map "$place/today.so"
abidiff capi/abi/libdsv4.abi "$place/today.so" >"$place/diff" ||
  { cat "$place/diff"; fail "the ABI differs from capi/abi/libdsv4.abi: if that is meant, capi/abi/renew.sh"; }

# promises FROZEN INCLUDE LIBRARY: all that FROZEN promises holds in the headers of INCLUDE. LIBRARY is
# the skeleton of these headers. Additions at the end do not matter.
promises() {
  capi/abi/skeleton.sh "$1" "$1/dsv4.map" "$place/frozen.so" &&
    abidiff --suppressions capi/abi/appended.suppr --no-added-syms "$place/frozen.so" "$3" &&
    constants "$1" >"$place/frozen.constants" && constants "$2" >"$place/today.constants" &&
    [ -s "$place/frozen.constants" ] &&
    ! comm -23 "$place/frozen.constants" "$place/today.constants" | grep .
}
constants() { cat "$1"/dsv4/*.h | sed -n 's/^#define \(DSV4_[A-Z0-9_]*\) *\(((.*)-*[0-9]*)\|[0-9]*u\)\( .*\)*$/\1 \2/p' | sort; }
for frozen in capi/abi/frozen/*/; do
  [ -d "$frozen" ] || continue
  promises "${frozen%/}" include "$place/today.so" ||
    fail "what $frozen promises does not hold: undo the change, or make a new major ABI"
done

# The client that releases keep calls every function.
for function in $(sed -n 's/^ *\(dsv4_[a-z0-9_]*\);$/\1/p' capi/dsv4.map); do
  grep -q "[^a-z_]$function(" tests/capi/client_test.c || fail "client_test.c does not call $function"
done

# planted NAME FILE SED: after this edit of a copy, the ABI is told from today's.
planted() {
  rm -rf "$place/planted"
  mkdir "$place/planted"
  cp -r include/dsv4 capi/dsv4.map "$place/planted"
  sed -i "$3" "$place/planted/$2"
  ! cmp -s "$place/planted/$2" "include/$2" || fail "$1: the edit finds nothing to change"
  if [ "$1" = "a removed function" ]; then
    sed -i '/dsv4_get_version;/d' "$place/planted/dsv4.map"
  fi
  capi/abi/skeleton.sh "$place/planted" "$place/planted/dsv4.map" "$place/planted.so"
  ! abidiff capi/abi/libdsv4.abi "$place/planted.so" >/dev/null || fail "$1 goes unnoticed"
}
planted "a removed function" dsv4/abi.h '/dsv4_get_version(void)/d'
planted "a wider field" dsv4/engine.h 's/^  int32_t threads;/  int64_t threads;/'
planted "a field inserted" dsv4/session.h 's/^  int64_t context_tokens; /  int64_t early; int64_t context_tokens; /'
planted "another parameter" dsv4/tokenizer.h 's/size_t length, uint32_t flags/uint32_t flags, size_t length/'
exit $failed
