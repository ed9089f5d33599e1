# SPDX-License-Identifier: Apache-2.0
# Sourced by tests in sh: puts them into a temporary folder, `place`, that is removed at their end, and
# has `expect WHAT CONDITION...`, which counts `failures` and shows the files log, out and err.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
failures=0

expect() {
  what=$1
  shift
  "$@" && return
  echo "FAILED: $what"
  for file in log out err; do
    [ ! -f "$file" ] || head -c 20000 "$file"
  done
  failures=$((failures + 1))
}
