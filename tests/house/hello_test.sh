#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: hello_test.sh HELLO MODEL_DIR
# An example of README.md answers, and reports a missing model on stderr with exit code 1.
set -eu
answer=$("$1" "$2" 'What is the capital of France?')
case $answer in
  *Paris*) ;;
  *) echo "FAILED: the answer is '$answer'"; exit 1 ;;
esac
status=0
message=$("$1" "$2/nowhere" 'Hello' 2>&1 >/dev/null) || status=$?
[ "$status" -eq 1 ] || { echo "FAILED: exit code $status for a missing model"; exit 1; }
case $message in
  NOT_FOUND:*nowhere*) ;;
  *) echo "FAILED: the message for a missing model is '$message'"; exit 1 ;;
esac
