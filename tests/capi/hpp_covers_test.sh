#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: hpp_covers_test.sh SOURCE_DIR
# The C++ headers call every function of the C ones but those that need no wrapping, or whose work
# another one does.
set -eu
cd "$1"
as_it_is=' dsv4_get_build_info '
failed=0
for function in $(sed -n 's/^ *\(dsv4_[a-z0-9_]*\);$/\1/p' capi/dsv4.map); do
  case $as_it_is in *" $function "*) continue ;; esac
  cat include/dsv4/*.hpp | sed 's,//.*,,' | grep -qw "$function" || { echo "no C++ header calls $function"; failed=1; }
done
exit $failed
