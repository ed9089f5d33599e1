#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: readme_example_test.sh SOURCE_DIR
# The C program shown in README.md is examples/hello.c, which the tests compile and run, without its
# licence line and opening comment.
set -eu
cd "$1"
shown=$(mktemp)
trap 'rm -f "$shown"' EXIT
awk '/^```c$/ { inside = 1; next } /^```$/ { inside = 0 } inside' README.md >"$shown"
[ -s "$shown" ] || { echo "README.md shows no C program"; exit 1; }
awk 'started || /^#include/ { started = 1; print }' examples/hello.c | diff "$shown" - ||
  { echo "README.md (left) and examples/hello.c (right) differ"; exit 1; }
