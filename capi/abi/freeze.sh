#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: capi/abi/freeze.sh [--again] VERSION
# Keeps what a release VERSION (as in 1.0) promises: in capi/abi/frozen/VERSION its C headers and its
# version script, in tests/capi/clients a client. From then on tests build that client with those
# headers, run it with the library as it is, and hold today's headers to the frozen ones. What is
# frozen is never edited; a candidate that was never published may be frozen again with --again.
set -eu
cd -P "$(dirname "$0")/../.."
again=
[ "${1-}" != --again ] || { again=1; shift; }
case ${1-} in
  [1-9]*.*[0-9]) ;;
  *) echo "usage: capi/abi/freeze.sh [--again] VERSION" >&2; exit 2 ;;
esac
to=capi/abi/frozen/$1
if [ -e "$to" ] && [ -z "$again" ]; then
  echo "freeze.sh: $to is there: what is frozen stays" >&2
  exit 1
fi
rm -rf "$to"
mkdir -p "$to/dsv4"
cp include/dsv4/*.h "$to/dsv4"
cp capi/dsv4.map "$to"
mkdir -p tests/capi/clients
cp tests/capi/client_test.c "tests/capi/clients/client_$1.c"
