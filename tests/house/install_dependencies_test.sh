#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: install_dependencies_test.sh SOURCE_DIR
# tools/install_dependencies.sh in front of stand-ins for dpkg-query, apt-get, sudo and id that record
# how they were called: what it installs, as whom, and what it says when it may not.
set -eu
script=$1/tools/install_dependencies.sh
. "$(dirname "$0")/../support/expect.sh"

# stand_in NAME SCRIPT: a stand-in in front of the real commands.
stand_in() {
  printf '#!/bin/sh\n%s\n' "$2" >"$place/bin/$1"
  chmod +x "$place/bin/$1"
}

run() {  # PACKAGE...
  : >calls
  status=0
  PATH="$place/bin:$PATH" CALLS="$place/calls" sh "$script" "$@" >out 2>err </dev/null || status=$?
  expect 'nothing on stdout' test ! -s out
}

mkdir "$place/bin"
stand_in apt-get 'echo "$(id -u) apt-get $*" >>"$CALLS"'

# Everything is there.
stand_in dpkg-query 'printf "ii "'
stand_in id 'echo 1000'
stand_in sudo 'exit 1'
run
expect 'success when nothing is missing' test "$status" -eq 0
expect 'silence when nothing is missing' test ! -s err
expect 'no apt-get when nothing is missing' test ! -s calls

# Two packages are missing, one unknown to dpkg and one removed with its configuration left.
stand_in dpkg-query 'case "$*" in *catch2*) echo no >&2; exit 1 ;; *libhwy-dev*) printf "rc " ;; *) printf "ii " ;; esac'
run
expect 'failure without root' test "$status" -ne 0
expect 'the command to run is printed' \
  grep -qxF '  sudo apt-get update && sudo apt-get install libhwy-dev catch2' err
expect 'no apt-get without root' test ! -s calls

stand_in id 'echo 0'
run
expect 'success as root' test "$status" -eq 0
expect 'update comes first' sh -c "sed -n 1p calls | grep -q 'apt-get .* update$'"
expect 'only what is missing is installed' \
  sh -c "sed -n 2p calls | grep -q ' install --no-install-recommends libhwy-dev catch2$'"
expect 'two calls of apt-get' test "$(wc -l <calls)" -eq 2

run clang-14 libhwy-dev
expect 'success with packages of the caller' test "$status" -eq 0
expect 'only those are looked at' \
  sh -c "sed -n 2p calls | grep -q ' install --no-install-recommends libhwy-dev$'"

stand_in dpkg-query 'case "$*" in *libstd-rust-dev-windows* | *catch2*) exit 1 ;; *) printf "ii " ;; esac'
run --windows
expect 'success with what a build for Windows needs' test "$status" -eq 0
expect 'only what that needs' \
  sh -c "sed -n 2p calls | grep -q ' install --no-install-recommends libstd-rust-dev-windows$'"
stand_in dpkg-query 'case "$*" in *catch2*) exit 1 ;; *libhwy-dev*) printf "rc " ;; *) printf "ii " ;; esac'

run --programs
expect 'success with what programs need' test "$status" -eq 0
expect 'nothing that only tests need' \
  sh -c "sed -n 2p calls | grep -q ' install --no-install-recommends libhwy-dev$'"

# An ordinary user whom sudo lets in without a password; -n asks for none.
stand_in id '[ -n "${SUDO_STANDIN-}" ] && echo 0 || echo 1000'
stand_in sudo '[ "$1" = -n ] || exit 1; shift; SUDO_STANDIN=1 "$@"'
run
expect 'success by sudo' test "$status" -eq 0
expect 'apt-get ran as root' sh -c "! grep -v '^0 apt-get' calls"
expect 'two calls of apt-get by sudo' test "$(wc -l <calls)" -eq 2

# apt-get fails: no network, say.
stand_in id 'echo 0'
stand_in apt-get 'exit 100'
run
expect 'failure when apt-get fails' test "$status" -ne 0
expect 'the command to run is printed when apt-get fails' \
  grep -qF 'apt-get install libhwy-dev catch2' err

[ "$failures" -eq 0 ] || { echo "$failures failures"; exit 1; }
