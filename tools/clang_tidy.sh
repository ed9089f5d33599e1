#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/clang_tidy.sh BUILD_DIR
# The checks of .clang-tidy over all sources of the library that BUILD_DIR compiles for the host (lib,
# kernels, capi), as errors; and over sources with planted defects, which must be found. CUDA sources
# are among them where BUILD_DIR has the emulated GPU: they are checked as tests/emulation compiles them.
set -eu
build=$(cd "$1" && pwd)
cd -P "$(dirname "$0")/.."
for tidy in clang-tidy-14 clang-tidy ''; do
  [ -n "$tidy" ] || { echo "skipped: clang-tidy is not installed (apt-get install clang-tidy-14)"; exit 77; }
  ! command -v "$tidy" >/dev/null || break
done
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# check_together COMMAND SOURCE...: headers take nine tenths of the time, so sources of one folder are included by one
# file. Where that has a finding, which may be a name that two of them have, its halves are checked, and what counts
# is what a source alone has.
cat >"$place/check_together" <<'EOF'
set -eu
command=$1
shift
work=$(mktemp -d "$place/sources.XXXXXX")
file=$1
if [ $# -gt 1 ]; then
  file=$work/sources.cc
  printf '#include "%s"\n' "$@" >"$file"
fi
printf '[{"directory": "%s", "command": "%s -c %s", "file": "%s"}]\n' \
  "$PWD" "$command" "$file" "$file" >"$work/compile_commands.json"
# GCC's warning options are unknown to clang; thread safety is what lib/base/mutex.h annotates. A cudaStream_t is a
# pointer, which is const and not what it points to.
checks=
case $1 in
  *.cu) checks=--checks=-misc-misplaced-const ;;
esac
if "$tidy" --quiet $checks -p "$work" --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wthread-safety \
  "$file" >"$work/log" 2>&1; then
  exit 0
fi
if [ $# -eq 1 ]; then
  cat "$work/log"
  exit 1
fi
half=$(($# / 2))
first=
while [ "$half" -gt 0 ]; do
  first="$first $1"
  shift
  half=$((half - 1))
done
status=0
sh "$place/check_together" "$command" $first || status=1
sh "$place/check_together" "$command" "$@" || status=1
exit $status
EOF
export place tidy

cp .clang-tidy "$place"
mkdir "$place/lib"
printf 'struct Explicit {\n  explicit Explicit(int value);\n};\n' >"$place/lib/clean.cc"
printf 'struct Implicit {\n  Implicit(int value);\n};\n' >"$place/lib/implicit.cc"
cat >"$place/lib/unlocked.cc" <<'EOF'
#include "lib/base/mutex.h"
struct Counter {
  void Add() { ++count; }
  dsv4::Mutex mutex;
  int count ABSL_GUARDED_BY(mutex) = 0;
};
EOF
# planted NAME CHECK: what NAME.cc does wrong is found by CHECK.
planted() {
  if sh "$place/check_together" "c++ -std=c++20 -I$PWD" "$place/lib/$1.cc" "$place/lib/clean.cc" >"$place/log" 2>&1; then
    echo "what was planted in $1.cc is not found"
    exit 1
  fi
  grep -q "$2" "$place/log" || { cat "$place/log"; exit 1; }
}
planted implicit google-explicit-constructor
planted unlocked clang-diagnostic-thread-safety-analysis

# Without headers that GCC has precompiled, which clang cannot read. Tab-separated: whom a source goes with, its
# command, and its path. Alone go those with using-declarations, which misc-unused-using-decls sees in no included
# file, those that Highway includes again for each instruction set, and CUDA sources, which share names.
sed -n 's| -Winvalid-pch -include [^ ]*/cmake_pch\.hxx||; s|^ *"command": "\(.*\)",$|\1|p; s|^ *"file": "\(.*\)".*|file \1|p' \
  "$build/compile_commands.json" |
  awk -v root="$PWD/" -v OFS='\t' '
    $1 != "file" { sub(/ -o [^ ]* -c .*/, ""); command = $0; next }
    { source = substr($0, 6) }
    index(source, root) != 1 { next }
    { name = substr(source, length(root) + 1) }
    name !~ /^(lib|kernels|capi)\/.*\.cc$/ && !(name ~ /^kernels\/.*\.cu$/ && command ~ /tests\/emulation\/device\.h/) { next }
    seen[source]++ { next }
    {
      together = name
      if (name !~ /\.cu$/) sub(/\/[^\/]*$/, "", together)
      while ((getline line <source) > 0) {
        if (line ~ /^ *using [A-Za-z0-9_:]*::[A-Za-z0-9_]*;|foreach_target/) together = name
      }
      close(source)
      print together, command, source
    }' | sort >"$place/sources"
[ -s "$place/sources" ] || { echo "$build/compile_commands.json names no source"; exit 1; }
# Pairs that a zero ends each: a command, and its sources.
awk -F '\t' '
  $1 "\t" $2 != group { if (group != "") printf "%c", 0; group = $1 "\t" $2; printf "%s%c", $2, 0 }
  { printf "%s ", $3 }
  END { printf "%c", 0 }' "$place/sources" |
  xargs -0 -P "$(nproc)" -n 2 sh -c 'exec sh "$place/check_together" "$1" $2' check_together
echo "$(wc -l <"$place/sources") sources"
