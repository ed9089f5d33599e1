#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: stack_alignment_test.sh FILE.dll
# Windows aligns the stack to 16 bytes, and GCC does not realign it for wider vectors (GCC bug 54412): no instruction
# that needs a vector of 32 or 64 bytes to be aligned may address it relative to the stack. Debian's GCC takes the
# ones that do not need it. Such a fault would not show under Wine.
set -eu
code=$(mktemp)
trap 'rm -f "$code"' EXIT
x86_64-w64-mingw32-objdump -d --no-show-raw-insn "$1" >"$code"
aligned='vmov(ap[sd]|dqa|dqa32|dqa64|ntdq|ntp[sd])[[:space:]]'
stack='\((%rsp|%rbp)[,)]'
wide='%[yz]mm'
found=$(grep -E "$aligned" "$code" | grep -E "$wide" | grep -cE "$stack" || true)
unaligned=$(grep -E 'vmov(up[sd]|dqu)' "$code" | grep -E "$wide" | grep -cE "$stack" || true)
echo "information: $1: $found aligned and $unaligned unaligned moves of wide vectors relative to the stack"
# Without any of the others the pattern, or the library, is not what this test is for.
[ "$unaligned" -gt 100 ] || { echo "FAILED: too few unaligned ones"; exit 1; }
[ "$found" -eq 0 ] || { grep -E "$aligned" "$code" | grep -E "$wide" | grep -E "$stack" | head -n 5; echo FAILED; exit 1; }
