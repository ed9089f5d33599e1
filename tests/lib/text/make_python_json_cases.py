#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes python_json_cases.json: documents and what Python's json makes of them.

usage: make_python_json_cases.py > python_json_cases.json    (recorded with Python 3.11.7)
Each case is {"text", "dumps"} (json.dumps(json.loads(text), ensure_ascii=False)) or {"text"} alone
for what json.loads refuses. Texts and dumps hold no unpaired surrogates.
"""
import json
import random
import struct

RANDOM = random.Random(20251)
FIXED = r"""
null|true|false|NaN|Infinity|-Infinity|0|-0|-0.0|0.0|1|-1|1.0|1e0|1E5|1e+5|1e-5|0.0001|0.00001|1e15|1e16|1e17|1e22
1e23|9999999999999998.0|9007199254740993.0|123456789012345680.0|5e-324|2.2250738585072014e-308|2.225073858507201e-308
1.7976931348623157e308|1e400|-1e400|1e-400|-1e-400|0.1|0.30000000000000004|100|1e2|75813251429823328511|1.5e-07
340282366920938463463374607431768211456|-340282366920938463463374607431768211456|3.0|2.50|4.35
nul|tru|True|None|nan|inf|-|+1|01|-01|00|1.|.5|1e|1e+|0x10|1_0|-NaN|--1|1 2|NaNx|Infinity1|-Inf
""|"a"|"é天🚀"|"\u00e9\u5929\ud83d\ude80"|"\uD83D\uDE80"|"\"\\\/\b\f\n\r\t"|"\u0000\u0001\u001f\u007f\u2028\u2029"
"a|a"|'a'|"\x"|"\u12"|"\u12g4"|"\u"|"\|"\ud83d\u12"|"\uD83D\|"\U0001f680"
[]|[ ]|[[]]|[1,2]|[1, 2 ,3]|[,]|[1,]|[1|]|[1 2]|[1;2]
{}|{ }|{"a":1}|{ "a" : 1 , "b" : [ ] }|{"a":1,"a":2}|{"a":1,"b":2,"a":3}|{"a":1,"\u0061":[2]}|{"":{"":{}}}
{"a"}|{"a":}|{"a":1,}|{,}|{a:1}|{'a':1}|{1:2}|{"a" 1}|{"a":1|{"a":1}x|{"a":1}}|{"a":1 "b":2}
 1| 1 |not json
"""


def documents():
    yield ""
    for line in FIXED.split("\n"):
        # "|" separates, except inside a string.
        yield from line.replace('"a|a"', '"a\x7fa"').split("|")
    yield from ["\n1\t\r ", "\v1", "\f1", "\u00a01", "\ufeff1", '"a\tb"', '"a\nb"', '"a\x00"', "\x00"]
    yield from ["9" * 4300, "-" + "9" * 4300, "9" * 4301, "[" + "9" * 4301 + "]", "9" * 4301 + ".0"]
    yield "{" + ",".join(f'"{i % 40}": {i}' for i in range(100)) + "}"
    for _ in range(300):
        yield repr(struct.unpack("d", struct.pack("Q", RANDOM.getrandbits(64)))[0])
        yield f"{RANDOM.uniform(-1, 1) * 10 ** RANDOM.randint(-8, 20):.{RANDOM.randint(0, 20)}e}"
        yield f"{RANDOM.uniform(-1, 1) * 10 ** RANDOM.randint(-3, 18):.{RANDOM.randint(1, 12)}f}"


def main():
    cases = []
    for text in documents():
        try:
            cases.append({"text": text, "dumps": json.dumps(json.loads(text), ensure_ascii=False)})
        except ValueError:
            cases.append({"text": text})
    print("[\n" + ",\n".join(map(json.dumps, cases)) + "\n]")


main()
