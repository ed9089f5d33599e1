#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: go_test.sh SOURCE_DIR BUILD_DIR LIBRARY_DIR PKG_CONFIG_DIR CC
# The Go packages of examples/go: their tests, with the race detector where there is one, their layouts
# against the C compiler's, and the chat. All that is built lies in BUILD_DIR.
set -eu
source=$1 build=$2 libraries=$3 pkg_config=$4 cc=$5
. "$source/tests/bindings/expect.sh"
command -v go >/dev/null || skip 'no go (apt-get install golang-go)'

mkdir -p "$build"
export GOCACHE="$build/cache" GOPATH="$build/path" GOENV=off GOPROXY=off GOTOOLCHAIN=local
export GOFLAGS='-mod=readonly -buildvcs=false' CGO_ENABLED=1
export CC="$cc" PKG_CONFIG_PATH="$pkg_config" LD_LIBRARY_PATH="$libraries"
minor=$(go version | sed 's/^go version go1\.\([0-9]*\).*/\1/')
[ "$minor" -ge 19 ] || skip "go 1.$minor is older than 1.19"
# Go's cache knows flags, but neither headers nor libraries.
export CGO_CFLAGS="-g -O1 -DDSV4_HEADERS=$(cat "$source"/include/dsv4/*.h | cksum | cut -d ' ' -f 1)"
files_of "$source/examples/go" >"$build/before"
write_listing

cd "$source/examples/go"
race=-race
[ -f "$(go env GOROOT)/src/runtime/race/race_$(go env GOOS)_$(go env GOARCH).syso" ] ||
  ls "$(go env GOROOT)"/src/runtime/race/internal/*/race_linux.syso >/dev/null 2>&1 || race=
go test $race -count=1 ./...
go build -o "$build/chat" ./chat
expect_chat "$build/chat"

files_of "$source/examples/go" | diff "$build/before" - || { echo "FAILED: files in the source"; exit 1; }
