#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: server_test.sh SERVER GATES MODEL
# dsv4-server on the bundled model passes all gates, small: a long prompt is 1024 tokens, in steps of 32.
set -eu
server=$1 gates=$2 model=$3
. "$(dirname "$0")/../../examples/dsv4-server/start.sh"
start_server "$server" --model "$model" --max-sessions 8 --context 2048 --cache-tokens 16384 --chunk 32

others=$("$gates" --list | cut -f 1 | grep -vx recall | paste -s -d ,)
"$gates" --url "$url" --gates "$others" --depths 64,1024 --concurrency 1,4 --chunk 64 --output 16 --requests 8 \
  -o "$place/report" || { cat "$place/report"; exit 1; }
"$gates" --url "$url" --gates recall --depths 256 --needles 2 -o "$place/recall" ||
  { cat "$place/recall"; exit 1; }
[ "$(grep -h '"passed": true' "$place/report" "$place/recall" | wc -l)" -eq 10 ] ||
  { echo 'FAILED: not all gates were run'; cat "$place/report"; exit 1; }

status=0
"$gates" --url "$url" --model another 2>"$place/error" || status=$?
[ $status -eq 3 ] && grep -q '"another"' "$place/error" ||
  { echo "FAILED: exit code $status for a model that is not there"; cat "$place/error"; exit 1; }
