#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/fuzz.sh SECONDS [NAME...]
# Builds the fuzz targets in build-fuzz with clang, AddressSanitizer, UndefinedBehaviorSanitizer and
# libFuzzer, and runs each (or those named, as in "json") for SECONDS on its corpus. What it finds
# stays in build-fuzz/findings. Exits 77, with the reason, where clang or its runtime is missing and
# cannot be installed.
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
  if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends clang-14 \
      libclang-rt-14-dev >&2 </dev/null || true
  fi
  if ! can_fuzz; then
    echo "skipped: clang 14 with libFuzzer is not installed (apt-get install clang-14 libclang-rt-14-dev)"
    exit 77
  fi
fi

# A build folder that came with a copy of the tree still points at the original.
home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' $build/CMakeCache.txt 2>/dev/null || true)
if [ "$home" != "$PWD" ] || [ ! -f $build/build.ninja ]; then
  cmake --fresh -S . -B $build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_COMPILER=clang-14 \
    -DCMAKE_CXX_COMPILER=clang++-14 "-DCMAKE_CXX_FLAGS_RELEASE=-O1 -g1" -DDSV4_FUZZ=ON \
    -DDSV4_BUILD_TESTS=OFF -DDSV4_BUILD_BENCHMARKS=OFF >&2
fi
ninja -C $build fuzzers >&2
mkdir -p $build/findings

[ $# -gt 0 ] || set -- $(cd fuzz && ls fuzz_*.cc | sed 's/^fuzz_//; s/\.cc$//')
status=0
for name; do
  mkdir -p "$build/corpus/$name"
  set -- -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
    -artifact_prefix="$build/findings/$name-" -print_final_stats=1
  [ ! -f "fuzz/$name.dict" ] || set -- "$@" "-dict=fuzz/$name.dict"
  if "$build/fuzz/fuzz_$name" "$@" "$build/corpus/$name" "fuzz/corpus/$name" \
    >"$build/fuzz_$name.log" 2>&1 </dev/null; then
    echo "fuzz_$name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$build/fuzz_$name.log")" \
      "inputs in $seconds s, no finding"
  else
    tail -n 60 "$build/fuzz_$name.log"
    echo "fuzz_$name: FAILED, input kept as $build/findings/$name-*"
    status=1
  fi
done
exit $status
