#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: benchmarks/e2e/residency.sh BENCH_DECODE uniform|skewed|cost|disk [GB...]
# Speed of all layers of the full width on one GPU, with so many GB of weights in its memory (76, 64, 32, 24
# and 16 by default) and the other experts in host memory, each with its floor. uniform: routers that choose
# all experts alike, decode of one and of 8 sessions, prefill of 4K and 16K tokens. skewed: decode by routers
# that choose few experts often, when those have come to the GPU. cost: what residency takes where all chosen
# experts are on the GPU, of 16 layers, whose weights fit one: without a budget, and with one that is a little
# smaller than they are. The routers choose few experts, and those have come to the GPU before the measurement.
# (With a budget that all weights fit, nothing is counted or moved, so that there is no cost.) disk: as uniform,
# with HOST_WEIGHTS GB (100) of host memory and the other experts on disk, in DISK_FILE (disk.bin, 8 GB, which is
# written if it is not there), with fewer steps: a token reads up to 3.4 GB of experts. SESSIONS (1,8), PREFILLS
# (4096) and CHUNK (4096), the tokens of a prompt that are computed at once: each chunk reads nearly all experts on
# disk. Needs a GPU of 80 GB and, for the smallest budgets without disk, 150 GB of host memory.
set -eu
bench=$1 part=$2
shift 2
model=$(dirname "$0")/flash
[ $# -gt 0 ] || set -- 76 64 32 24 16
run() {
  echo "# bench_decode $*"
  timeout 420 "$bench" --backend cuda --temperature 0 --contexts 2048 "$@" "$model" || echo "FAILED: $?"
}
case $part in
  uniform)
    for gigabytes in "$@"; do
      run --synthetic-layers 43 --device-weights "$gigabytes" --sessions 1,8 --steps 48 \
        --prefills 4096,16384 --chunk 4096
    done ;;
  disk)
    for gigabytes in "$@"; do
      run --synthetic-layers 43 --device-weights "$gigabytes" --host-weights "${HOST_WEIGHTS:-100}" \
        --disk-file "${DISK_FILE:-disk.bin}" --sessions "${SESSIONS:-1,8}" --own-tokens 2 --warm 2 --steps 4 \
        --prefills "${PREFILLS:-4096}" --chunk "${CHUNK:-4096}"
    done ;;
  skewed)
    for gigabytes in "$@"; do
      run --synthetic-layers 43 --device-weights "$gigabytes" --router-skew 0.1 --sessions 1,8 \
        --warm 600 --steps 48
    done ;;
  cost)
    for budget in '' '--device-weights 62.9'; do
      # shellcheck disable=SC2086
      run --synthetic-layers 16 $budget --router-skew 0.5 --sessions 1,8 --warm 600 --steps 96
    done ;;
  *) echo "no part $part" >&2; exit 2 ;;
esac
