#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/build.sh [--programs] PRESET [TARGET...]
# Installs what is missing (with --programs no more than programs need), configures the preset of
# CMakePresets.json once and builds the targets (all without any). Prints only to stderr, and nothing
# when everything is up to date. clang compiles the presets asan and tsan where tools/has_clang.sh finds it:
# it takes 0.8 of GCC's time, and the fuzz targets, which need it, share the objects of asan.
set -eu
exec >&2 </dev/null
cd -P "$(dirname "$0")/.."
group=
if [ "$1" = --programs ]; then
  group=$1
  shift
fi
preset=$1
shift
case $preset in
  release) build=build ;;
  *) build=build-$preset ;;
esac

tools/install_dependencies.sh $group

compiler=
case $preset in
  asan | tsan)
    if tools/has_clang.sh; then
      compiler='-DCMAKE_C_COMPILER=clang-14 -DCMAKE_CXX_COMPILER=clang++-14'
      [ "$preset" != asan ] || compiler="$compiler -DDSV4_FUZZ=ON"
    fi
    ;;
esac

# The file `configured` holds the compiler of the build folder. A build folder that came with a copy of the tree
# still points at the original.
home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt" 2>/dev/null || true)
configured_compiler=$(cat "$build/configured" 2>/dev/null || true)
if [ "$home" != "$PWD" ] || [ ! -f "$build/build.ninja" ] || [ "$configured_compiler" != "$compiler" ]; then
  rm -f "$build/build.ninja"
  cmake --fresh --preset "$preset" $compiler
  echo "$compiler" >"$build/configured"
elif [ ! -f "$build/configured" ] || [ /var/lib/dpkg/status -nt "$build/configured" ]; then
  # Packages came or went since: what depends on them is found again.
  cmake --preset "$preset"
  echo "$compiler" >"$build/configured"
fi
# Ask first: ninja has a line to say even when there is nothing to do.
case $(ninja -C "$build" -n "$@" 2>&1) in
  *'no work to do'*) ;;
  *) ninja -C "$build" "$@" ;;
esac
