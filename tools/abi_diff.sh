#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/abi_diff.sh [REVISION | FOLDER]
# Prints how the C ABI of this tree differs from that of a git revision, or of another tree of this
# project in FOLDER: functions, types and symbol versions as abidiff compares them, then macros.
# Without an argument, from the commit at which this branch left main: the headers that landed last.
# Exit status: 0 no difference, 1 a difference, 77 nothing to compare with, 2 any other failure; 77
# and 2 print the reason. Uses $CC, or cc.
set -eu
[ $# -le 1 ] || { echo "usage: tools/abi_diff.sh [REVISION | FOLDER]" >&2; exit 2; }
folder=
[ $# -eq 0 ] || [ ! -d "$1/include/dsv4" ] || folder=$(cd -P "$1" && pwd)
cd -P "$(dirname "$0")/.."
export LC_ALL=C
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

failure() { echo "abi_diff.sh: $*"; exit 2; }
skip() { echo "skipped: $*"; exit 77; }
command -v abidiff >/dev/null || skip "no abidiff (apt-get install abigail-tools)"

# landed: the newest commit that this branch and main share.
landed() {
  for branch in origin/HEAD origin/main main; do
    ! git merge-base HEAD "$branch" 2>/dev/null || return 0
  done
  return 1
}

# skeleton TREE OUT: in OUT.so the library that the C headers and the version script of TREE describe,
# every function declared, with its types as debug information, and no body worth calling; in
# OUT.macros the headers' macros. The sources of libdsv4 define the same functions under the same
# headers, so this is its ABI, without a build of the library.
skeleton() {
  mkdir -p "$2/dsv4"
  for header in "$1"/include/dsv4/*.h; do
    # The macro that ends each declaration becomes a body.
    sed 's/^#define DSV4_NOEXCEPT$/#define DSV4_NOEXCEPT { __builtin_trap(); }/' "$header" \
      >"$2/dsv4/${header##*/}"
  done
  grep -q builtin_trap "$2/dsv4/abi.h" && echo '#include <dsv4/dsv4.h>' >"$2/dsv4.c" &&
    ${CC:-cc} -std=gnu99 -g -O0 -fPIC -shared -fvisibility=hidden "-I$2" "$2/dsv4.c" \
      "-Wl,--version-script=$1/capi/dsv4.map" -Wl,-soname,libdsv4.so -nostdlib -o "$2.so" &&
    ${CC:-cc} -std=gnu99 -E -dM "-I$2" "$2/dsv4.c" >"$2.all" &&
    grep '^#define DSV4_' "$2.all" | sort >"$2.macros"
}

if [ -n "$folder" ]; then
  old=$folder name=$folder
else
  git rev-parse --verify HEAD >"$place/git" 2>&1 || skip "no git revision: $(tail -n 1 "$place/git")"
  if [ $# -gt 0 ]; then
    revision=$(git rev-parse --verify -q "$1^{commit}") || failure "$1 is neither a revision nor a tree"
  else
    revision=$(landed) || skip "this clone has no commit of main"
  fi
  old=$place/tree name=$(git rev-parse --short "$revision")
  mkdir "$old"
  git archive -o "$place/tree.tar" "$revision" include/dsv4 capi/dsv4.map || failure "$name has other files"
  tar -xf "$place/tree.tar" -C "$old"
fi
skeleton "$old" "$place/old" || failure "the headers of $name do not compile"
skeleton . "$place/new" || failure "the headers of this tree do not compile"

# Of abidiff's status, bits 0 and 1 are failures, and the others differences.
status=0
abidiff "$place/old.so" "$place/new.so" >"$place/difference" || status=$?
[ $((status & 3)) -eq 0 ] || { cat "$place/difference"; failure "abidiff failed"; }
diff "$place/old.macros" "$place/new.macros" >"$place/macros" || status=4
if [ "$status" -eq 0 ]; then
  echo "the ABI is that of $name"
  exit 0
fi
echo "the ABI differs from that of $name:"
cat "$place/difference"
cat "$place/macros"
exit 1
