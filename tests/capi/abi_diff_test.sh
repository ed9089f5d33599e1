#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: abi_diff_test.sh SOURCE_DIR
# tools/abi_diff.sh reports a planted change of each kind, and none between equal headers. What it
# says of the headers that landed last is information: a change of them does not fail the test.
set -eu
cd "$1"
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0

# compare [OLD]: the status of abi_diff.sh against OLD, and its output in $place/log.
compare() {
  status=0
  tools/abi_diff.sh "$@" >"$place/log" 2>&1 || status=$?
}
fail() { cat "$place/log"; echo "$*"; failed=1; }

compare .
[ "$status" -ne 77 ] || { cat "$place/log"; exit 77; }
[ "$status" -eq 0 ] || fail "a tree differs from itself"

# planted NAME FILE SED TEXT: after this edit of a copy, abi_diff.sh prints TEXT.
planted() {
  rm -rf "$place/planted"
  mkdir -p "$place/planted/include" "$place/planted/capi"
  cp -r include/dsv4 "$place/planted/include"
  cp capi/dsv4.map "$place/planted/capi"
  sed -i "$3" "$place/planted/$2"
  ! cmp -s "$place/planted/$2" "$2" || fail "$1: the edit finds nothing to change"
  compare "$place/planted"
  [ "$status" -eq 1 ] && grep -q "$4" "$place/log" || fail "$1 goes unnoticed"
}
planted "another symbol version" capi/dsv4.map 's/^DSV4_[0-9.]* {/DSV4_9 {/' 'dsv4_engine_open@@DSV4_9'
planted "a new function" capi/dsv4.map '/dsv4_get_version;/d' '\[A\].*dsv4_get_version'
planted "a wider field" include/dsv4/engine.h 's/^  int32_t threads;/  int64_t threads;/' threads
planted "a removed field" include/dsv4/session.h 's/^  int64_t context_tokens; /  int64_t early; &/' early
planted "another parameter" include/dsv4/tokenizer.h \
  's/size_t length, uint32_t flags/uint32_t flags, size_t length/' 'dsv4_tokenizer_encode'
planted "another constant" include/dsv4/session.h 's/^\(#define DSV4_FINISH_STOP .*\)1)/\13)/' DSV4_FINISH_STOP

compare
case $status in
  0) cat "$place/log" ;;
  1) echo "information: $(head -n 1 "$place/log") see tools/abi_diff.sh"; sed 1d "$place/log" ;;
  77) sed 's/^skipped: /information: the ABI is compared with no other: /' "$place/log" ;;
  *) fail "the headers that landed last cannot be compared" ;;
esac
exit $failed
