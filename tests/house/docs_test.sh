#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: docs_test.sh SOURCE_DIR
# Documents name only what exists: every relative link, and every path in backquotes that begins with a
# folder of the project. CHANGELOG.md may name what is gone. A link whose text is a date leads to a file of that date.
set -eu
cd "$1"
failures=0

missing() {  # FILE WHAT
  echo "$1: there is no $2"
  failures=$((failures + 1))
}

documents=$(find . -maxdepth 1 -name '*.md' ! -name CHANGELOG.md
  find docs models tests tools examples benchmarks -name '*.md')
for document in $documents; do
  folder=$(dirname "$document")
  for link in $(grep -o '](\([^)#]*\)' "$document" | sed 's/^](//' | grep -v '^[a-z]*:' || true); do
    [ -e "$folder/$link" ] || missing "$document" "$link"
  done
  for path in $(grep -oE '`(benchmarks|capi|cmake|docs|examples|fuzz|include|kernels|lib|models|tests|tools)/[A-Za-z0-9_./-]+`' \
    "$document" | tr -d '`'); do
    [ -e "$path" ] || missing "$document" "$path"
  done
  for link in $(grep -oE '\[20[0-9-]{8}\]\([^)]*\)' "$document" || true); do
    date=$(expr "$link" : '.\(.\{10\}\)')
    case ${link#*(} in
      *"$date"*) ;;
      *) missing "$document" "file of $date in $link" ;;
    esac
  done
done
[ "$failures" -eq 0 ]
