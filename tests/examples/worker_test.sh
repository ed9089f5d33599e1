#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: worker_test.sh WORKER MODEL
# What dsv4-worker refuses, by exit code and words; tests/groups has what it does.
set -eu
worker=$1 model=$2
failures=0

refuses() {  # CODE WORDS ARGUMENT...
  code=$1 words=$2
  shift 2
  status=0
  output=$("$worker" "$@" 2>&1) || status=$?
  case $output in
    *"$words"*) [ "$status" -ne "$code" ] || return 0 ;;
  esac
  echo "FAILED: dsv4-worker $*: exit $status: $output"
  failures=$((failures + 1))
}
refuses 2 'no model: name its folder with --model DIR'
refuses 2 'no group:' --model "$model"
refuses 2 'unknown option' --model "$model" --size 2
refuses 2 '--group needs a value' --model "$model" --group
refuses 2 '--rank: "0" is not a whole number from 1 to 2147483647' --model "$model" --group x --rank 0
refuses 2 '--device: "one" is not a whole number of 0 or more' --device one
refuses 2 'option group_id = "x" is not a group id' --model "$model" --group x
"$worker" --version | grep -q '^dsv4 [0-9]' || { echo 'FAILED: --version'; failures=1; }
[ "$failures" -eq 0 ] || exit 1
