#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: debs_test.sh SOURCE_DIR BUILD_DIR PLACE SERVER DESKTOP CMAKE_OPTION...
# The Debian packages that cpack makes of a tree configured for /usr with the options: what they depend
# on, who has which file, and, unpacked together, a client that is built and a chat that is led.
set -eu
export LC_ALL=C
source=$1 build=$2 place=$3 server= desktop=
# These are built where their libraries are.
[ "$4" = OFF ] || server=dsv4-server
[ "$5" = OFF ] || desktop=dsv4-desktop
shift 5
for tool in dpkg-deb dpkg-shlibdeps file; do
  command -v $tool >/dev/null || { echo "skipped: $tool is not installed (dpkg-dev, file)"; exit 77; }
done

. "$source/tests/packaging/attempt.sh"

rm -rf "$place"
mkdir -p "$place"
cd "$place"
# The prefix makes no difference to what is compiled: the tree takes the files that are built already.
attempt cmake.log cmake -G Ninja -S "$source" -B tree -DCMAKE_INSTALL_PREFIX=/usr \
  -DDSV4_BUILD_TESTS=OFF -DDSV4_BUILD_BENCHMARKS=OFF "$@"
(
  cd "$build"
  cp -d --parents capi/libdsv4.* */dsv4-bench/dsv4-bench */dsv4-chat/dsv4-chat */dsv4-worker/dsv4-worker \
    */verify/dsv4-verify ${server:+*/dsv4-server/dsv4-server */gates/dsv4-gates} \
    ${desktop:+*/desktop/dsv4-desktop} "$place/tree"
)
# Installing removes the run path of this build, which the programs have.
find tree -name cmake_install.cmake -exec sed -i "s,OLD_RPATH \"$place/tree/,OLD_RPATH \"$build/," {} +
cd tree
attempt cpack.log cpack
cd packages

abi=$(sed -n 's/^#define DSV4_ABI_VERSION \([0-9]*\)u$/\1/p' "$source/include/dsv4/abi.h")
version=$(sed -n 's/^project(dsv4 VERSION \([0-9.]*\) .*/\1/p' "$source/CMakeLists.txt")
architecture=$(dpkg --print-architecture)
prefix=/usr
libdir=lib/$(dpkg-architecture -q DEB_HOST_MULTIARCH)
runtime=libdsv4-$abi
{
  for package in dsv4-chat $desktop $server dsv4-tools dsv4-worker $runtime libdsv4-dev; do
    echo "${package}_$version-1_$architecture.deb"
  done
} >expected
find . -name '*.deb' | sed 's,.*/,,' | sort >made
diff expected made || fail 'not the packages (<) that belong there'

packages="$runtime libdsv4-dev dsv4-chat dsv4-worker $desktop $server dsv4-tools"

# field PACKAGE FIELD, contents PACKAGE: of the package that was made.
deb() { ls "$1"_*.deb; }
field() { dpkg-deb -f "$(deb "$1")" "$2"; }
contents() { dpkg-deb -c "$(deb "$1")" | awk '$1 !~ /^d/ { print $6 }'; }
depends() {  # PACKAGE PATTERN...: its Depends has an entry for each
  package=$1
  shift
  for pattern; do
    field "$package" Depends | tr ',' '\n' | sed 's/^ *//' | grep -qE "^$pattern" ||
      fail "$package does not depend on $pattern, but on $(field "$package" Depends)"
  done
}
depends $runtime 'libabsl[0-9]+ ' 'libc6 ' 'libhwy1 ' 'libpcre2-8-0 ' 'libsimdjson[0-9]+ ' 'libstdc\+\+6 '
depends libdsv4-dev "$runtime \\(= $version-1\\)" 'libabsl-dev' 'libhwy-dev' 'libpcre2-dev' 'libsimdjson-dev'
depends dsv4-chat "$runtime " 'libc6 '
depends dsv4-tools "$runtime " 'libc6 '
depends dsv4-worker "$runtime " 'libc6 '
[ -z "$server" ] || depends $server "$runtime " 'libc6 '
[ -z "$desktop" ] || depends $desktop "$runtime " 'libqt6widgets6 '
case $(for package in $packages; do field $package Depends; done) in
  *cuda* | *nvidia* | *nccl*) fail 'a package depends on CUDA, a driver or NCCL' ;;
  *protobuf*) fail 'a package depends on protobuf, which tools and tests of this build use' ;;
esac
for package in $packages; do
  contents $package | grep -qx ".$prefix/share/doc/$package/copyright" || fail "$package has no copyright"
done
contents $runtime | grep -v "^.$prefix/share/doc/" >runtime
printf ".$prefix/$libdir/%s\n" "libdsv4.so.$abi" "libdsv4.so.$version" | sort >runtime.expected
diff runtime.expected runtime || fail "$runtime has more or less (>) than the library"
dpkg-deb -I "$(deb $runtime)" shlibs | grep -qx "libdsv4 $abi $runtime (>= $version-1)" || fail 'no shlibs file'
dpkg-deb -I "$(deb $runtime)" triggers | grep -qx 'activate-noawait ldconfig' || fail 'no ldconfig trigger'
# No file is in two packages.
for package in $packages; do contents $package; done | sort | uniq -d >twice
[ ! -s twice ] || fail "in two packages: $(cat twice)"

# Together they are a system on which clients are built and chats are led.
for package in $packages; do dpkg-deb -x "$(deb $package)" "$place/root"; done
root=$place/root$prefix
# A distribution's programs have no run path.
for file in "$root/$libdir/libdsv4.so" "$root"/bin/*; do
  ! readelf -d "$file" | grep -E '\((RPATH|RUNPATH)\)' || fail "$file has a run path"
done
question='What is the capital of France?'
attempt cc.log cc "$source/tests/packaging/consumer/paris.c" -o client \
  $(PKG_CONFIG_PATH=$root/$libdir/pkgconfig pkg-config --cflags --libs dsv4)
export LD_LIBRARY_PATH="$root/$libdir"
for answer in "$(./client "$source/models/dsv4-tiny" "$question")" \
  "$("$root/bin/dsv4-chat" -m "$source/models/dsv4-tiny" -p "$question" 2>/dev/null </dev/null)"; do
  case $answer in
    *Paris*) ;;
    *) fail "the answer is '$answer'" ;;
  esac
done
if [ -n "$server" ]; then
  for program in dsv4-server dsv4-gates; do
    "$root/bin/$program" --help >/dev/null || fail "$program --help exits with $?"
  done
  unit=$root/lib/systemd/system/dsv4-server.service
  grep -qx 'ExecStart=/usr/bin/dsv4-server $DSV4_SERVER_OPTIONS' "$unit" || fail "$unit does not start it"
fi
[ -z "$desktop" ] || QT_QPA_PLATFORM=offscreen "$root/bin/dsv4-desktop" --version >/dev/null ||
  fail "dsv4-desktop --version exits with $?"
"$root/bin/dsv4-worker" --help >/dev/null || fail "dsv4-worker --help exits with $?"
"$root/bin/dsv4-bench" --help >/dev/null || fail "dsv4-bench --help exits with $?"
"$root/bin/dsv4-verify" hash "$source/models/dsv4-tiny" >hash.log 2>&1 || fail "dsv4-verify: $(cat hash.log)"

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
