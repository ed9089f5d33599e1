#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: gates_test.sh SOURCE_DIR BUILD_DIR
# dsv4-gates for Windows under Wine, on dsv4-server for Windows: as on Linux.
set -eu
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
server=$build/examples/dsv4-server/dsv4-server.exe gates=$build/tools/gates/dsv4-gates.exe
for program in "$server" "$gates"; do
  [ -e "$program" ] || { echo "skipped: ${program##*/} is not built (Boost, nlohmann_json, marked)"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for program in "$server" "$gates"; do
  name=$work/$(basename "$program" .exe)
  printf '#!/bin/sh\nWINEPATH=%s exec %s %s "$@"\n' "$build/capi" "$source/tests/windows/wine.sh" "$program" >"$name"
  chmod +x "$name"
done
sh "$source/tests/tools/gates/server_test.sh" "$work/dsv4-server" "$work/dsv4-gates" "$source/models/dsv4-tiny"
