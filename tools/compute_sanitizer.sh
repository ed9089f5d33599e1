#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/compute_sanitizer.sh [BUILD_DIR]
# Runs the GPU tests of a build (default: build-cuda-portable) under compute-sanitizer, on the current
# GPU: memcheck and initcheck on every test, racecheck on the operator tests with their first config.
# Racecheck of whole sessions takes hours and is left out. Prints a line per run and exits with 1 when
# one found an error.
set -u
build=${1:-build-cuda-portable}
command -v compute-sanitizer >/dev/null || {
  echo "error: compute-sanitizer is not on PATH" >&2
  exit 2
}
log=$(mktemp)
tests=$(mktemp)
trap 'rm -f "$log" "$tests"' EXIT
# Tab-separated: name, environment and command of each GPU test. Left out are a test whose kernel faults on purpose,
# and tests with CUDA graphs that run without them as well: a tool sees what a graph runs as one launch.
ctest --test-dir "$build" -N -V -L '^gpu$' | awk -v OFS='\t' '
  sub(/^[0-9]+: Test command: /, "") { command = $0; environment = "DSV4_TEST_GRAPHS=off"; next }
  sub(/^[0-9]+:  /, "") { environment = environment " " $0; next }
  /^ *Test +#[0-9]+: / && $NF !~ /^(capi_device_lost|cuda_calls|sessions_cuda)$/ { print $NF, environment, command }
' >"$tests"
[ -s "$tests" ] || {
  echo "error: $build has no GPU tests; build the preset cuda-portable" >&2
  exit 2
}
failed=0

# check TOOL NAME ENVIRONMENT COMMAND
check() {
  result=passed
  eval "set -- $1 $2 env $3 compute-sanitizer --tool $1 --error-exitcode 9 --show-backtrace no $4"
  tool=$1 name=$2
  shift 2
  "$@" >"$log" 2>&1 </dev/null
  case $? in
    0) ;;
    77) result=skipped ;;
    *) result=FAILED failed=1 ;;
  esac
  printf '%-9s %-7s %s | %s\n' "$tool" "$result" "$name" \
    "$(grep -hE 'ERROR SUMMARY|RACECHECK SUMMARY|^skipped' "$log" | tail -n 1)"
  [ "$result" != FAILED ] || tail -n 40 "$log"
}

tab=$(printf '\t')
while IFS="$tab" read -r name environment command; do
  check memcheck "$name" "$environment" "$command"
  check initcheck "$name" "$environment" "$command"
  case $name in
    *_config[0-9]) ;;
    sm12x_*) check racecheck "$name" "$environment" "$command" ;;
  esac
done <"$tests"
exit "$failed"
