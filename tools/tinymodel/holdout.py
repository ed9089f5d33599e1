# SPDX-License-Identifier: Apache-2.0
"""Which prompts never occur in training: a tenth of them, chosen by a hash, so that every run agrees."""

import zlib


def held_out(key):
    return zlib.crc32(key.encode()) % 10 == 0


def pair_held_out(a, op, b):
    """Of a product only one order is held out.  Sums and differences with 0..10 or a round
    number occur as steps of the reasoning lines, so they are never held out; a - b and b - a
    are held out together."""
    if op == "*":
        return a > b and held_out(f"{a}*{b}")
    if b <= 10 or b % 10 == 0 or (op == "-" and a < b and (a <= 10 or a % 10 == 0)):
        return False
    return held_out(f"{max(a, b)}-{min(a, b)}" if op == "-" else f"{a}+{b}")
