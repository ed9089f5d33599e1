#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/windows_dependencies.sh [FOLDER]
# Builds the libraries that the preset `windows` links, by mingw-w64, from Debian's source packages of this release,
# into FOLDER/prefix (default: build-windows/dependencies). What is there already is kept: to begin anew, delete
# FOLDER. Header-only libraries are taken from this machine. Exits 77 if a source cannot be fetched. apt's own settings
# and lists stay as they are, and no rights of root are needed.
set -eu
source=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:-$source/build-windows/dependencies}
mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial" "$folder/prefix/include" "$folder/logs"
folder=$(cd "$folder" && pwd)
prefix=$folder/prefix
mirror=${DSV4_DEBIAN_MIRROR:-http://deb.debian.org/debian}

for tool in x86_64-w64-mingw32-g++-posix apt-get dpkg-source cmake ninja; do
  command -v $tool >/dev/null || { echo "error: $tool is missing: $0 needs Debian's g++-mingw-w64-x86-64-posix," \
    "dpkg-dev, cmake and ninja-build" >&2; exit 1; }
done
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ -n "$release" ] || { echo "error: /etc/os-release names no release of Debian" >&2; exit 1; }

# apt with sources, lists and cache of its own.
apt() {
  apt-get -qq -o Dir::Etc::SourceList="$folder/apt/sources.list" -o Dir::Etc::SourceParts=- \
    -o Dir::State::Lists="$folder/apt/lists" -o Dir::Cache="$folder/apt/cache" -o APT::Sandbox::User=root "$@"
}

# unpacked PACKAGE: its source, with Debian's patches, in $folder/PACKAGE.
unpacked() {
  [ ! -d "$folder/$1" ] || return 0
  if [ ! -s "$folder/apt/sources.list" ]; then
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $release main" \
      >"$folder/apt/sources.list"
  fi
  [ -n "$(find "$folder/apt/lists" -maxdepth 1 -name '*Sources*')" ] || apt update || exit 77
  (cd "$folder/apt" && apt source --download-only "$1") || exit 77
  dpkg-source --no-check -x "$folder/apt/$1"_*.dsc "$folder/$1.part" >"$folder/logs/$1-unpack" 2>&1
  mv "$folder/$1.part" "$folder/$1"
}

# built PACKAGE OPTION...: configured with the options of CMake, built and installed into the prefix.
built() {
  package=$1
  shift
  [ ! -f "$folder/logs/$package-done" ] || return 0
  unpacked "$package"
  log=$folder/logs/$package
  if ! { cmake -G Ninja -S "$folder/$package" -B "$folder/build-$package" \
           -DCMAKE_TOOLCHAIN_FILE="$source/cmake/windows.cmake" -DCMAKE_INSTALL_PREFIX="$prefix" \
           -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-O2 \
           -DCMAKE_C_FLAGS_RELEASE=-O2 -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF $launcher "$@" &&
         ninja -C "$folder/build-$package" install; } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "error: $package cannot be built for Windows; all its output is in $log" >&2
    exit 1
  fi
  : >"$log-done"
}

launcher=
if command -v ccache >/dev/null; then
  launcher="-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache"
fi
built simdjson -DSIMDJSON_DEVELOPER_MODE=OFF
built pcre2 -DPCRE2_BUILD_PCRE2_8=ON -DPCRE2_BUILD_PCRE2GREP=OFF -DPCRE2_BUILD_TESTS=OFF -DPCRE2_SUPPORT_JIT=ON
built abseil -DCMAKE_CXX_STANDARD=17 -DABSL_PROPAGATE_CXX_STD=ON -DABSL_ENABLE_INSTALL=ON
built highway -DHWY_ENABLE_EXAMPLES=OFF -DHWY_ENABLE_CONTRIB=OFF -DHWY_ENABLE_TESTS=OFF
# Its headers alone are used.
mkdir -p "$prefix/include/hwy/contrib"
(cd "$folder/highway" && find hwy/contrib -name '*.h' -exec cp --parents {} "$prefix/include/" \;)

# So is that of the client of servers in dsv4-gates.
unpacked cpp-httplib
cp "$folder/cpp-httplib/httplib.h" "$prefix/include/"

# What their licences ask to be passed on with them, and that of the compiler's libraries.
mkdir -p "$prefix/licenses"
for package in simdjson pcre2 abseil highway cpp-httplib; do
  cp "$folder/$package/debian/copyright" "$prefix/licenses/$package.txt"
done
# Boost, nlohmann_json and marked are in dsv4-server, where they are here.
for package in gcc-mingw-w64-base mingw-w64-x86-64-dev libxxhash-dev libboost1.81-dev nlohmann-json3-dev libjs-marked; do
  copyright=/usr/share/doc/$package/copyright
  if [ -e "$copyright" ]; then cp "$copyright" "$prefix/licenses/$package.txt"; fi
done

# This machine's headers, of libraries that have nothing else.
for header in xxhash.h catch2 nlohmann boost; do
  if [ -e "/usr/include/$header" ]; then ln -sfn "/usr/include/$header" "$prefix/include/$header"; fi
done
