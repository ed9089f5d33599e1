#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tests/bindings/generate.sh [FOLDER]
# Writes what bindings and programs take from the C headers: the Rust declarations, the programs whose
# listings of the ABI must equal that of C, and the structs that the library fills. Into the source tree; or into FOLDER, with the C program.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$here/../..
export LC_ALL=C
to=${1:-$source}

# generate LANGUAGE PART FILE
generate() {
  mkdir -p "$(dirname "$to/$3")"
  cat "$source"/include/dsv4/*.h |
    awk -v part="$2" -f "$here/read_headers.awk" -f "$here/emit_$1.awk" >"$to/$3.new"
  mv "$to/$3.new" "$to/$3"
}

generate rust bindings examples/rust/dsv4-sys/src/bindings.rs
generate rust layout examples/rust/dsv4-sys/tests/layout/table.rs
generate go '' examples/go/dsv4/internal/abi/listing.go
generate fields rust examples/rust/dsv4/src/reports.rs
generate fields go examples/go/dsv4/reports.go
generate fields cpp examples/console/struct_fields.h
[ $# -eq 0 ] || generate c '' listing.c
