#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: programs_test.sh SOURCE_DIR BUILD_DIR
# The programs for Windows under Wine: answers, the records of the published model, paths of any letters and length,
# folders that are no models, and streams of bytes.
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
model=$source/models/dsv4-tiny
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
WINEPATH=$build/capi
export WINEPATH
failures=0
wine() { "$source/tests/windows/wine.sh" "$@"; }
hello=$build/examples/hello.exe
verify=$build/tools/verify/dsv4-verify.exe

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# runs WHAT EXIT_CODE COMMAND...: its output is in $work/out and $work/err.
runs() {
  what=$1 wanted=$2
  shift 2
  status=0
  "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
  [ "$status" -eq "$wanted" ] || { cat "$work/out" "$work/err"; fail "$what: exit code $status, not $wanted"; }
}
has() { grep -q -- "$2" "$work/$1" || { cat "$work/out" "$work/err"; fail "$what: no \"$2\""; }; }

# Answers.
runs hello 0 wine "$hello" "$model" 'What is the capital of France?'
has out Paris

# Records.
runs canary 0 wine "$verify" canary "$model"
runs gates 0 wine "$verify" gates "$model"
has out '100'
runs hash 0 wine "$verify" hash "$model"
if grep -q "$(printf '\r')" "$work/out"; then fail "carriage returns in what a program reads"; fi
oracle=$source/tests/oracle
for case in odd mixed; do
  [ -e "$oracle/cases/$case.json" ] || { fail "no case $case"; continue; }
  runs "oracle $case exact" 0 wine "$verify" oracle --mode exact "$oracle/cases/$case.json" \
    "$oracle/expected/$case.exact.safetensors"
  runs "oracle $case published" 0 wine "$verify" oracle --mode published --backend cpu "$oracle/cases/$case.json" \
    "$oracle/expected/$case.published.safetensors"
done
runs device 0 wine "$verify" device --backend cpu --rows 40

# Paths.
deep=$work/$(printf '%0100d/%0100d/%0100d' 1 2 3)/ü模😀
mkdir -p "$deep"
cp "$model"/* "$deep"
ln -s "$deep" "$work/ü模😀"
runs 'letters' 0 wine "$verify" canary "$work/ü模😀"
runs 'letters and 300 characters' 0 wine "$verify" canary "$deep"
runs 'backslashes' 0 wine "$verify" canary "Z:$(echo "$model" | tr / '\\')"
runs 'a slash at the end' 0 wine "$verify" canary "$model/"

# Folders that are no models.
runs 'no folder' 3 wine "$verify" canary "$work/nowhere"
has err nowhere
runs 'a file for a folder' 3 wine "$verify" canary "$model/config.json"
mkdir "$work/empty" "$work/short" "$work/folder"
runs 'an empty folder' 3 wine "$verify" canary "$work/empty"
cp "$model"/* "$work/short"
for shard in "$work"/short/*.safetensors; do head -c 1000 "$shard" >"$work/part" && cp "$work/part" "$shard"; done
runs 'shards cut short' 3 wine "$verify" canary "$work/short"
has err safetensors
cp "$model"/* "$work/folder"
rm "$work/folder/config.json"
mkdir "$work/folder/config.json"
runs 'a folder for a file' 3 wine "$verify" canary "$work/folder"
has err 'not a regular file'

# The other programs. Paths that they open themselves have any letters, too.
chat=$build/examples/dsv4-chat/dsv4-chat.exe
runs chat 0 wine "$chat" -m "$work/ü模😀" -p 'What is the capital of France?'
has out Paris
if grep -q "$(printf '\r')" "$work/out"; then fail "carriage returns in an answer"; fi
printf 'What is the capital of France?\r\nWhat is the capital of France?\n' >"$work/questions"
status=0
wine "$chat" -m "$model" <"$work/questions" >"$work/out" 2>"$work/err" || status=$?
what='chat from a file'
[ "$status" -eq 0 ] && has out Paris || { cat "$work/err"; fail "chat from a file: exit code $status"; }
runs 'chat without a model' 3 wine "$chat" -m "$work/nowhere/model" -p Hello
has err nowhere
bench=$build/benchmarks/dsv4-bench/dsv4-bench.exe
runs bench 0 wine "$bench" -m "$model" -p 16 -n 4 -r 1
runs 'bench with random weights' 0 wine "$bench" -m "$model" --synthetic-layers 2 -p 16 -n 4 -r 1

[ "$failures" -eq 0 ] || exit 1
