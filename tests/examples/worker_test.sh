#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: worker_test.sh WORKER MODEL
# What dsv4-worker refuses, by exit code and words; tests/groups has what it does.
set -eu
worker=$1 model=$2
. "$(dirname "$0")/../support/expect.sh"

refuses() {  # CODE WORDS ARGUMENT...
  code=$1 words=$2
  shift 2
  status=0
  "$worker" "$@" >out 2>&1 || status=$?
  expect "dsv4-worker $*: exit code $code, not $status" test "$status" -eq "$code"
  expect "dsv4-worker $*: $words" grep -qF -- "$words" out
}
printf 'from-file\n' >id
printf 'a\nb\n' >lines
refuses 2 'no model: name its folder with --model DIR'
refuses 2 'no group:' --model "$model"
refuses 2 'unknown option' --model "$model" --size 2
refuses 2 '--group needs a value' --model "$model" --group
refuses 2 '--rank: "0" is not a whole number from 1 to 2147483647' --model "$model" --group x --rank 0
refuses 2 '--device: "one" is not a whole number of 0 or more' --device one
refuses 2 'option group_id = "x" is not a group id' --model "$model" --group x
# The id by ways that other users do not see.
refuses 2 'option group_id = "from-file" is not a group id' --model "$model" --group-file id
refuses 2 'lines: expected one line' --model "$model" --group-file lines
refuses 2 'cannot read none' --model "$model" --group-file none
refuses 2 '--group and --group-file exclude each other' --model "$model" --group x --group-file id
status=0
echo from-input | "$worker" --model "$model" --group-file - >out 2>&1 || status=$?
expect 'id from standard input' grep -qF 'group_id = "from-input"' out
status=0
DSV4_GROUP=from-variable "$worker" --model "$model" >out 2>&1 || status=$?
expect 'id from the environment' grep -qF 'group_id = "from-variable"' out
"$worker" --version >out
expect '--version' grep -q '^dsv4 [0-9]' out
[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
