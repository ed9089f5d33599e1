#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/check_format.sh [--fix]
# Compares every C and C++ source with what clang-format 14 (Debian 12's) makes of it by .clang-format,
# or rewrites the files with --fix. Exits 77, with the reason, where that version is not installed:
# others format differently.
set -eu
cd "$(dirname "$0")/.."
for formatter in clang-format-14 clang-format ''; do
  case $($formatter --version 2>/dev/null || true) in
    *'version 14.'*) break ;;
  esac
done
if [ -z "$formatter" ]; then
  echo "skipped: clang-format 14 is not installed (apt-get install clang-format)"
  exit 77
fi
case ${1-} in
  '') mode='--dry-run -Werror' ;;
  --fix) mode=-i ;;
  *) echo "usage: tools/check_format.sh [--fix]" >&2; exit 2 ;;
esac
find benchmarks capi examples fuzz include kernels lib tests tools -type f \
  \( -name '*.h' -o -name '*.hpp' -o -name '*.cc' -o -name '*.c' \) -print0 |
  xargs -0 -P "$(nproc)" -n 16 "$formatter" $mode
