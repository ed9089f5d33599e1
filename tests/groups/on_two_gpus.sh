#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tests/groups/on_two_gpus.sh BUILD_DIR
# Groups of two processes with a GPU each, on a machine with two: through the fastest links, and
# through sockets alone, as between two machines. Needs the targets groups_two_gpus_test and
# group_member, and libnccl.so.2.
set -u
test=$1/tests/groups/groups_two_gpus_test
export DSV4_TEST_GPUS=2
failed=0
# run WHAT FILTER [VARIABLE=VALUE ...]
run() {
  what=$1 filter=$2
  shift 2
  echo "== $what"
  env "$@" timeout 100 "$test" "$filter" -d yes || failed=1
}
run 'processes' '~[.]'
run 'forks, drafts, saved sessions' '[.long]'
run 'through sockets' 'two processes*,a follower*' NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 \
    NCCL_NET=Socket
exit $failed
