#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: install_tree_test.sh SOURCE_DIR BUILD_DIR PLACE LIBDIR CUDA SERVER DESKTOP
# `cmake --install` with DESTDIR: exactly the files that belong there, headers as in the tree, nothing
# that points at where it was built, and a library that exports and needs what it should. Leaves the
# tree, moved away from where it was installed, in PLACE/moved. CUDA, SERVER, DESKTOP: whether
# these are built, ON or OFF.
set -eu
export LC_ALL=C
source=$1 build=$2 place=$3 libdir=$4 cuda=$5 server=$6 desktop=$7
. "$source/tests/packaging/attempt.sh"

rm -rf "$place"
mkdir -p "$place"
DESTDIR=$place/stage cmake --install "$build" --prefix /opt/dsv4 >"$place/install.log" 2>&1 ||
  { cat "$place/install.log"; exit 1; }
[ "$(ls "$place/stage")" = opt ] || fail "files outside of the prefix: $(ls "$place/stage")"
mv "$place/stage/opt/dsv4" "$place/moved"
cd "$place/moved"

abi=$(sed -n 's/^#define DSV4_ABI_VERSION \([0-9]*\)u$/\1/p' "$source/include/dsv4/abi.h")
version=$(sed -n 's/^project(dsv4 VERSION \([0-9.]*\) .*/\1/p' "$source/CMakeLists.txt")
{
  (cd "$source" && find include -type f)
  echo bin/dsv4-bench
  echo bin/dsv4-chat
  [ "$desktop" = OFF ] || printf 'bin/dsv4-desktop\nshare/applications/dsv4-desktop.desktop\n'
  [ "$server" = OFF ] || printf 'bin/dsv4-gates\nbin/dsv4-server\n'
  echo bin/dsv4-verify
  echo bin/dsv4-worker
  for file in cmake/dsv4/dsv4Config.cmake cmake/dsv4/dsv4ConfigVersion.cmake \
    cmake/dsv4/dsv4StaticTargets-release.cmake cmake/dsv4/dsv4StaticTargets.cmake \
    cmake/dsv4/dsv4Targets-release.cmake cmake/dsv4/dsv4Targets.cmake \
    libdsv4.a libdsv4.so "libdsv4.so.$abi" "libdsv4.so.$version" pkgconfig/dsv4.pc; do
    echo "$libdir/$file"
  done
  echo share/doc/dsv4/LICENSE
  echo share/doc/dsv4/NOTICE
  echo share/man/man1/dsv4-chat.1
  [ "$server" = OFF ] || echo share/man/man1/dsv4-server.1
  echo share/man/man1/dsv4-worker.1
} | sort >"$place/expected"
find . ! -type d | sed 's,^\./,,' | sort >"$place/installed"
diff "$place/expected" "$place/installed" || fail 'not the files (<) that belong there'
diff -r "$source/include" include || fail 'the headers differ from those of the tree'

# Nothing tells where it was built, or where it was meant to be; but lines for profilers name sources.
lineinfo=
if grep -q '^DSV4_CUDA_LINEINFO:BOOL=ON' "$build/CMakeCache.txt" && [ "$cuda" = ON ]; then
  lineinfo=$source
fi
for path in "$source" "$build" "$place" /opt/dsv4; do
  found=
  [ "$path" = "$lineinfo" ] || found=$(grep -rlF -- "$path" . || true)
  [ -z "$found" ] || fail "the path $path is in $found"
done

library=$libdir/libdsv4.so.$version
dynamic() {  # FILE KIND: the values of that kind in the dynamic section
  readelf -d "$1" | sed -n "s/.*($2).*\[\(.*\)\]$/\1/p"
}
[ "$(dynamic "$library" SONAME)" = "libdsv4.so.$abi" ] ||
  fail "SONAME is $(dynamic "$library" SONAME), ABI number $abi"
[ "$(readlink "$libdir/libdsv4.so.$abi")" = "libdsv4.so.$version" ] || fail "no link libdsv4.so.$abi"
for file in "$library" bin/*; do
  for path in $(dynamic "$file" RPATH) $(dynamic "$file" RUNPATH); do
    case $file in
      bin/*) [ "$path" = "\$ORIGIN/../$libdir" ] || fail "$file has the run path $path" ;;
      *) fail "$file has the run path $path" ;;
    esac
  done
done
# Drivers and NCCL are loaded at run time where they are.
strange=$(dynamic "$library" NEEDED | grep -vxE \
  'lib(absl_[a-z0-9_]*|hwy|simdjson|pcre2-8|stdc\+\+|m|gcc_s|c|atomic)\.so\.[0-9]+|ld-linux-.*' || true)
[ -z "$strange" ] || fail "the library needs $strange"
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" && $3 !~ /^dsv4_/ { print $3 }')
[ -z "$exported" ] || fail "the library exports $exported"
nm -D --defined-only "$library" | grep -q ' dsv4_engine_open@@DSV4_0.1$' || fail 'no dsv4_engine_open'

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
