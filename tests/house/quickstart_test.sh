#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: quickstart_test.sh SOURCE_DIR
# ./quickstart in a tree that is built: from another directory and through a link, with the bundled
# model or another; on stdout nothing but what dsv4-chat itself writes there, and its exit code.
set -eu
source=$(cd "$1" && pwd -P)
chat=$source/build/examples/dsv4-chat/dsv4-chat
. "$(dirname "$0")/../support/expect.sh"

question='What is the capital of France?'
"$chat" -m "$source/models/dsv4-tiny" -p "$question" >direct 2>/dev/null </dev/null
"$source/quickstart" -p "$question" >out 2>err </dev/null
expect 'the answer names Paris' grep -q Paris out
expect 'the model text alone is on stdout' cmp -s direct out

ln -s "$source/quickstart" link
./link -m "$source/models/dsv4-tiny" -p "$question" >out 2>err </dev/null
expect 'the same through a link and with -m' cmp -s direct out

# Another model is taken as given: here one that does not exist, which is exit code 3.
status=0
"$source/quickstart" -m nowhere -p "$question" >out 2>err </dev/null || status=$?
expect 'the exit code of dsv4-chat' test "$status" -eq 3
expect 'the model given with -m' grep -q nowhere err
expect 'nothing on stdout after an error' test ! -s out

# Standard input goes to dsv4-chat, not to the build.
echo "$question" | "$source/quickstart" >out 2>err
expect 'a piped question is answered' grep -q Paris out

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
