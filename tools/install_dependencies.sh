#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/install_dependencies.sh [--programs | --windows | PACKAGE...]
# The one list of Debian packages that the project needs: with --programs those to build the library
# and its programs, without also those to test them; with --windows those to build for Windows and to test
# it, clients in MSVC's place and in Rust included; or others on request. Installs what is missing
# with apt-get when it may (root, or sudo without a password), and otherwise says exactly what to
# install and fails. Says nothing when all is there; everything it prints goes to stderr.
set -eu
exec >&2 </dev/null

programs='
  g++ cmake ninja-build pkg-config
  libabsl-dev libhwy-dev libsimdjson-dev libpcre2-dev libxxhash-dev libedit-dev
  libprotobuf-dev protobuf-compiler
  libboost1.81-dev nlohmann-json3-dev libcpp-httplib-dev libjs-marked
'
tests='
  catch2 libbenchmark-dev qt6-base-dev
  abigail-tools curl dpkg-dev file doxygen
  cargo rustc golang-go
'
windows='
  g++-mingw-w64-x86-64-posix cmake ninja-build dpkg-dev
  wine nsis clang lld cargo rustc libstd-rust-dev-windows golang-go curl
'
case ${1-} in
  '') packages="$programs $tests" ;;
  --programs) packages=$programs ;;
  --windows) packages=$windows ;;
  *) packages=$* ;;
esac

# The same packages for people who build elsewhere; nobody tests these lists.
if ! command -v dpkg-query >/dev/null; then
  echo "note: not a Debian system, dependencies not checked"
  case $(sed -n 's/^ID=//p;s/^ID_LIKE=//p' /etc/os-release 2>/dev/null) in
    *fedora*)
      echo "Fedora: sudo dnf install gcc-c++ cmake ninja-build pkgconf abseil-cpp-devel highway-devel simdjson-devel" \
        "pcre2-devel xxhash-devel libedit-devel protobuf-devel protobuf-compiler boost-devel json-devel" \
        "cpp-httplib-devel nodejs-marked catch2-devel" \
        "google-benchmark-devel qt6-qtbase-devel libabigail curl file doxygen cargo rust golang"
      ;;
    *arch*)
      echo "Arch: sudo pacman -S base-devel cmake ninja pkgconf abseil-cpp highway simdjson pcre2 xxhash libedit" \
        "protobuf boost nlohmann-json cpp-httplib marked catch2 benchmark qt6-base curl file doxygen rust go; libabigail is in the AUR"
      ;;
    *) echo "Debian calls them:" $packages ;;
  esac
  exit 0
fi

missing=
for package in $packages; do
  # Abbreviated status: wanted state, then 'i' when the package is installed completely.
  case $(dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null || true) in
    ?i*) ;;
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

explain() {
  echo "error: $1; please run:"
  echo "  sudo apt-get update && sudo apt-get install$missing"
  exit 1
}

if [ "$(id -u)" -eq 0 ]; then
  as_root='env DEBIAN_FRONTEND=noninteractive'
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
  as_root='sudo -n env DEBIAN_FRONTEND=noninteractive'
else
  explain "packages are missing and cannot be installed without root"
fi
echo "installing$missing"
$as_root apt-get -q -o DPkg::Lock::Timeout=120 update || explain "apt-get update failed"
$as_root apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends $missing ||
  explain "apt-get install failed"
