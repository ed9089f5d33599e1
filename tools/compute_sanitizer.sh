#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/compute_sanitizer.sh [BUILD_DIR]
# Runs the GPU tests of a build (default: build-cuda-portable) under compute-sanitizer, on the current
# GPU: memcheck and initcheck on every test, racecheck on the operator tests. Racecheck of whole
# sessions takes hours and is left out. Prints a line per run and exits with 1 when one found an error.
set -u
build=${1:-build-cuda-portable}
command -v compute-sanitizer >/dev/null || {
  echo "error: compute-sanitizer is not on PATH" >&2
  exit 2
}
[ -x "$build/tests/kernels/sm12x_dense_test" ] || {
  echo "error: $build has no GPU tests; build the preset cuda-portable" >&2
  exit 2
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

# check TOOL TEST [ARGUMENT...]
check() {
  tool=$1
  shift
  result=passed
  compute-sanitizer --tool "$tool" --error-exitcode 9 --show-backtrace no "$@" >"$log" 2>&1 || {
    result=FAILED
    failed=1
  }
  printf '%-9s %-6s %s | %s\n' "$tool" "$result" "$(basename "$*")" \
    "$(grep -hE 'ERROR SUMMARY|RACECHECK SUMMARY|^skipped' "$log" | tail -n 1)"
  [ "$result" = passed ] || tail -n 40 "$log"
}

for tool in memcheck initcheck racecheck; do
  for test in attention configs dense hc moe token_candidates; do
    check "$tool" "$build/tests/kernels/sm12x_${test}_test"
  done
done
export DSV4_TEST_GRAPHS=off # a tool sees what a graph runs as one launch
for tool in memcheck initcheck; do
  check "$tool" "$build/tests/lib/runtime/sessions_cuda_test" "~[forks]~[reference]~[.]"
  check "$tool" "$build/tests/lib/runtime/cuda_calls_test" "[without_graphs]"
  check "$tool" "$build/tests/tools/verify_cuda_test"
done
exit "$failed"
