#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tools/reference.sh OUTPUT_DIR
# Makes the API reference of the public headers: OUTPUT_DIR/html/index.html, and the same as XML. Every
# warning is an error. Exits 77, with the reason, where Doxygen is not installed.
set -eu
[ $# -eq 1 ] || { echo "usage: tools/reference.sh OUTPUT_DIR" >&2; exit 2; }
command -v doxygen >/dev/null || { echo "skipped: doxygen is not installed (apt-get install doxygen)"; exit 77; }
mkdir -p "$1"
output=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
{
  cat docs/Doxyfile
  echo "OUTPUT_DIRECTORY = \"$output\""
} | doxygen -
