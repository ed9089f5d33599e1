#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/fuzz.sh SECONDS [NAME...]
# Builds the fuzz targets in build-fuzz with clang, AddressSanitizer, UndefinedBehaviorSanitizer and
# libFuzzer, and runs each (or those named, as in "json") for SECONDS on its corpus, as many at a time
# as there are cores. What it finds stays in build-fuzz/findings. Exits 77, with the reason, where
# clang or its runtime is missing and cannot be installed.
set -eu
cd -P "$(dirname "$0")/.."
case ${1-} in
  '' | *[!0-9]*) echo "usage: tools/fuzz.sh SECONDS [NAME...]" >&2; exit 2 ;;
esac
seconds=$1
shift
build=build-fuzz

# Whether this clang links a fuzz target.
can_fuzz() {
  probe=$(mktemp -d)
  echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' \
    >"$probe/probe.cc"
  clang++-14 -fsanitize=fuzzer,address,undefined "$probe/probe.cc" -o "$probe/probe" 2>/dev/null &&
    status=0 || status=1
  rm -r "$probe"
  return $status
}
if ! can_fuzz; then
  tools/install_dependencies.sh clang-14 libclang-rt-14-dev || true
  if ! can_fuzz; then
    echo "skipped: fuzzing needs clang 14 with libFuzzer (apt-get install clang-14 libclang-rt-14-dev)"
    exit 77
  fi
fi

# A build folder that came with a copy of the tree still points at the original.
home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' $build/CMakeCache.txt 2>/dev/null || true)
if [ "$home" != "$PWD" ] || [ ! -f $build/build.ninja ]; then
  cmake --fresh -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang-14 \
    -DCMAKE_CXX_COMPILER=clang++-14 "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -g1" -DDSV4_FUZZ=ON \
    -DDSV4_BUILD_TESTS=OFF -DDSV4_BUILD_BENCHMARKS=OFF -DDSV4_BUILD_PROGRAMS=OFF -DDSV4_CUDA=OFF \
    -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >&2
fi
ninja -C $build fuzzers >&2
mkdir -p $build/findings

# fuzz NAME: prints one line with the result.
fuzz() {
  name=$1
  mkdir -p "$build/corpus/$name"
  set -- -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
    -artifact_prefix="$build/findings/$name-" -print_final_stats=1
  [ ! -f "fuzz/$name.dict" ] || set -- "$@" "-dict=fuzz/$name.dict"
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
