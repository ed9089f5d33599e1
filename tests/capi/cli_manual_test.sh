#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: cli_manual_test.sh CHAT MANUAL
# The manual page of dsv4-chat has each option of --help and no other, the same commands as the source of
# /help, and formats without a warning where there is a formatter.
set -eu
chat=$1 manual=$2
source=$(dirname "$manual")/interactive.cc
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

# Options and commands as words, one a line, sorted.
"$chat" --help | sed -n 's/^  \(-.*\)/\1/p' | sed 's/   .*//' | tr ', ' '\n\n' | grep '^-' | sort -u \
  >"$place/help"
sed -n '/^\.SH OPTIONS/,/^\.SH COMMANDS/p' "$manual" | grep -A1 '^\.TP' | sed 's/\\-/-/g; s/\\ / /g' |
  tr ' ",' '\n\n\n' | grep '^--*[a-z]' | sort -u >"$place/manual"
sed -n 's/^    "\(\/[a-z]*\) .*/\1/p' "$source" | sort -u >"$place/commands"
sed -n '/^\.SH COMMANDS/,/^\.SH JSON/p' "$manual" | grep -A1 '^\.TP' | sed 's/\\ / /g' | tr ' ' '\n' |
  grep '^/' | sort -u >"$place/manual_commands"
for list in help commands; do
  [ "$(wc -l <"$place/$list")" -gt 10 ] || { echo "FAILED: no $list found"; exit 1; }
done
diff "$place/help" "$place/manual" || { echo 'FAILED: options of --help (<) and the manual (>)'; exit 1; }
diff "$place/commands" "$place/manual_commands" ||
  { echo 'FAILED: commands of /help (<) and the manual (>)'; exit 1; }

if command -v mandoc >/dev/null; then
  mandoc -T lint -W warning "$manual" >"$place/warnings" || true
elif command -v groff >/dev/null; then
  groff -man -Tutf8 -ww "$manual" 2>"$place/warnings" >/dev/null || true
fi
[ ! -s "$place/warnings" ] || { cat "$place/warnings"; exit 1; }
