#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: capi/abi/renew.sh
# Writes libdsv4.abi, the baseline that the test abi_diff holds the headers to, anew: for a change of
# the ABI that is meant. Its diff is what a reviewer of that change reads. Needs abigail-tools.
set -eu
cd -P "$(dirname "$0")/../.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
capi/abi/skeleton.sh include capi/dsv4.map "$place/libdsv4.so"
(cd "$place" && abidw --no-show-locs --no-corpus-path --no-comp-dir-path libdsv4.so) \
  >capi/abi/libdsv4.abi
