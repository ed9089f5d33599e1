#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: manual_test.sh PROGRAM MANUAL
# The manual page of a program has each option of --help and no other, and formats without a warning where
# there is a formatter.
set -eu
program=$1 manual=$2
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

"$program" --help | sed -n 's/^  \(-[a-z], \)\{0,1\}\(--[a-z-]*\).*/\2/p' | sort >"$place/help"
awk '/^\.SH/ { options = $2 == "OPTIONS" } options' "$manual" | sed -n 's/\\-/-/g; s/^\.BI* \(--[a-z-]*\).*/\1/p' |
  sort >"$place/manual"
[ "$(wc -l <"$place/help")" -gt 5 ] || { echo 'FAILED: no options found'; exit 1; }
diff "$place/help" "$place/manual" || { echo 'FAILED: options of --help (<) and the manual (>)'; exit 1; }

if command -v mandoc >/dev/null; then
  mandoc -T lint -W warning "$manual" >"$place/warnings" || true
elif command -v groff >/dev/null; then
  groff -man -Tutf8 -ww "$manual" 2>"$place/warnings" >/dev/null || true
fi
[ ! -s "$place/warnings" ] || { cat "$place/warnings"; exit 1; }
