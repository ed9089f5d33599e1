#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/build.sh [--programs] PRESET [TARGET...]
# Installs what is missing (with --programs no more than programs need), configures the preset of
# CMakePresets.json once and builds the targets (all without any). Prints only to stderr, and nothing
# when everything is up to date.
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

# A build folder that came with a copy of the tree still points at the original.
home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$build/CMakeCache.txt" 2>/dev/null || true)
if [ "$home" != "$PWD" ] || [ ! -f "$build/build.ninja" ]; then
  cmake --fresh --preset "$preset"
  touch "$build/configured"
elif [ ! -f "$build/configured" ] || [ /var/lib/dpkg/status -nt "$build/configured" ]; then
  # Packages came or went since: what depends on them is found again.
  cmake --preset "$preset"
  touch "$build/configured"
fi
# Ask first: ninja has a line to say even when there is nothing to do.
case $(ninja -C "$build" -n "$@" 2>&1) in
  *'no work to do'*) ;;
  *) ninja -C "$build" "$@" ;;
esac
