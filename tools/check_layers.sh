#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/check_layers.sh [ROOT]
# Holds the source tree at ROOT (default: this project) to the house rules that a machine can see; the
# rules, with the table of who may include whom, are in check_layers.awk. Prints FILE:LINE: finding
# for each breach and fails if there is one.
set -eu
tools=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$tools/..}"
export LC_ALL=C

# The folders that hold sources; what lies elsewhere (models, build folders) is not ours to check.
folders=
for folder in .ci benchmarks capi cmake examples fuzz include kernels lib tests tools; do
  [ ! -d "$folder" ] || folders="$folders $folder"
done
[ -n "$folders" ] || { echo "error: no source folder under $PWD" >&2; exit 2; }

{
  find $folders -type f \( -name '*.h' -o -name '*.hpp' -o -name '*.cc' -o -name '*.c' -o -name '*.cu' \
    -o -name '*.cuh' -o -name '*.proto' -o -name '*.cmake' -o -name CMakeLists.txt -o -name '*.map' \
    -o -name '*.sh' -o -name '*.awk' -o -name '*.py' -o -path .ci/run \) ! -path '*/__pycache__/*'
  for file in CMakeLists.txt quickstart check; do
    [ ! -f "$file" ] || echo "$file"
  done
} | sort | awk -f "$tools/check_layers.awk"
