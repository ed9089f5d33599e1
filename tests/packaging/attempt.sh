# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of packages.

failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
attempt() {  # LOG COMMAND...: the log is shown when the command fails
  log=$1
  shift
  "$@" >"$log" 2>&1 || { echo "FAILED: $*"; cat "$log"; exit 1; }
}
