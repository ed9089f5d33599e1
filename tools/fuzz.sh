#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/fuzz.sh SECONDS [NAME...]
# Builds the fuzz targets in build-asan with clang, AddressSanitizer, UndefinedBehaviorSanitizer and
# libFuzzer, and runs each (or those named, as in "json") for SECONDS on its corpus, as many at a time
# as there are cores. What it finds stays in build-asan/findings. Exits 77, with the reason, where
# clang or its runtime is missing and cannot be installed.
set -eu
cd -P "$(dirname "$0")/.."
case ${1-} in
  '' | *[!0-9]*) echo "usage: tools/fuzz.sh SECONDS [NAME...]" >&2; exit 2 ;;
esac
seconds=$1
shift
build=build-asan

if ! tools/has_clang.sh; then
  tools/install_dependencies.sh clang-14 libclang-rt-14-dev || true
  if ! tools/has_clang.sh; then
    echo "skipped: fuzzing needs clang 14 with libFuzzer (apt-get install clang-14 libclang-rt-14-dev)"
    exit 77
  fi
fi

tools/build.sh asan fuzzers
mkdir -p $build/findings

# fuzz NAME: prints one line with the result.
fuzz() {
  name=$1
  mkdir -p "$build/corpus/$name"
  set -- -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
    -artifact_prefix="$build/findings/$name-" -print_final_stats=1
  dict=$name
  case $name in chat_request | messages_request | responses_request) dict=server_request ;; esac
  [ ! -f "fuzz/$dict.dict" ] || set -- "$@" "-dict=fuzz/$dict.dict"
  # A session keeps memory from one input to the next, which libFuzzer would search for leaks each time;
  # at the end they are found all the same.
  [ "$name" != session_file ] || set -- "$@" -detect_leaks=0
  if "$build/fuzz/fuzz_$name" "$@" "$build/corpus/$name" "fuzz/corpus/$name" \
    >"$build/fuzz_$name.log" 2>&1 </dev/null; then
    echo "fuzz_$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/fuzz_$name.log")" \
      "inputs in $seconds s, no finding"
  else
    tail -n 60 "$build/fuzz_$name.log"
    echo "fuzz_$name: FAILED, input kept as $build/findings/$name-*"
    return 1
  fi
}

[ $# -gt 0 ] || set -- $(cd fuzz && ls fuzz_*.cc | sed 's/^fuzz_//; s/\.cc$//')
jobs=$(nproc)
# POSIX sh waits for a known child only.
status=0
running=
for name; do
  fuzz "$name" &
  running="$running $!"
  while [ "$(echo "$running" | wc -w)" -ge "$jobs" ]; do
    first=${running# }
    first=${first%% *}
    running=${running#" $first"}
    wait "$first" || status=1
  done
done
for process in $running; do
  wait "$process" || status=1
done
exit $status
