#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: readme_example_test.sh SOURCE_DIR
# The programs in C and C++ that README.md and docs/embed.md show are examples/hello.c and examples/hello.cc, which the
# tests compile and run, without their opening comments.
set -eu
cd "$1"
shown=$(mktemp)
trap 'rm -f "$shown"' EXIT
for example in c:hello.c cpp:hello.cc; do
  language=${example%%:*} file=${example#*:}
  awk -v fence="\`\`\`$language hello/$file" '$0 == fence { inside = 1; next } /^```$/ { inside = 0 } inside' \
    README.md docs/embed.md >"$shown"
  [ -s "$shown" ] || { echo "README.md and docs/embed.md do not show hello/$file"; exit 1; }
  awk 'started || /^#include/ { started = 1; print }' "examples/$file" | diff "$shown" - ||
    { echo "README.md or docs/embed.md (left) and examples/$file (right) differ"; exit 1; }
done
