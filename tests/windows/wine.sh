#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: tests/windows/wine.sh PROGRAM.exe [ARGUMENT...]
# Runs a program for Windows under Wine, with settings of its own in $DSV4_WINE (default: build-windows/wine), which
# the first run makes. CMake puts it before the programs of tests.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
WINEPREFIX=${DSV4_WINE:-$root/build-windows/wine}
export WINEPREFIX
# No messages of Wine's own, no desktop, no offers to install what is not used.
WINEDEBUG=-all DISPLAY='' WINEDLLOVERRIDES='mscoree,mshtml=' exec wine "$@"
