#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small DeepSeek-V4 checkpoint folder that is a pure function of a case file (README.md, 'The checkpoint').

usage: make_checkpoint.py CASE.json OUT_DIR        (needs numpy)
"""

import json
import math
import os
import struct
import sys

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
MAG = np.array(
    [
        0.125,
        0.125,
        0.25,
        0.25,
        0.375,
        0.375,
        0.5,
        0.5,
        0.625,
        0.75,
        0.875,
        1.0,
        1.125,
        1.25,
        1.5,
        2.0,
    ]
)  # rms 0.8807
MAG_RMS = 0.8807
FP4_RMS = 2.9262


def hash64(seed, name, n):
    """n 64-bit words: splitmix64 of (fnv1a64(name) xor seed*golden) + (i+1)*golden."""
    h = 0xCBF29CE484222325
    for b in name.encode():
        h = ((h ^ b) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    with np.errstate(over="ignore"):
        base = np.uint64(h) ^ (np.uint64(seed) * GOLDEN)
        z = base + np.arange(1, n + 1, dtype=np.uint64) * GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def signed(h):
    m = MAG[(h & np.uint64(15)).astype(np.int64)]
    return np.where((h >> np.uint64(4)) & np.uint64(1), -m, m)


def uniform(h):
    """[-1, 1), a multiple of 2**-23."""
    return ((h >> np.uint64(40)).astype(np.float64) / 2**23 - 1).astype(np.float32)


def e4m3(v):
    """Bytes of exactly representable values of magnitude 2**-3 .. 2."""
    a = np.abs(v)
    e = np.floor(np.log2(a))
    return (
        ((v < 0).astype(np.uint8) << 7)
        | ((e + 7).astype(np.uint8) << 3)
        | ((a / 2**e - 1) * 8).astype(np.uint8)
    )


def bf16(v):
    return (np.ascontiguousarray(v, np.float32).view(np.uint32) >> 16).astype(np.uint16)


def log2_gain(gain, fan_in, rms):
    return int(round(math.log2(gain / (math.sqrt(fan_in) * rms))))


def tensors(case):
    """Yields (name, safetensors dtype, array of raw storage)."""
    c, seed = case["model"], case["seed"]
    D, hd, rd = c["hidden_size"], c["head_dim"], c["index_head_dim"]
    E, I, K = c["n_routed_experts"], c["moe_intermediate_size"], c["num_experts_per_tok"]
    H = c["hc_mult"]

    def fp8(name, o, i, gain=1.0):
        yield name + ".weight", "F8_E4M3", e4m3(
            signed(hash64(seed, name + ".weight", o * i))
        ).reshape(o, i)
        O, J = -(-o // 128), -(-i // 128)
        v = (hash64(seed, name + ".scale", O * J) % np.uint64(3)).astype(np.int64) - 1
        yield name + ".scale", "F8_E8M0", (127 + log2_gain(gain, i, MAG_RMS) + v).astype(
            np.uint8
        ).reshape(O, J)

    def fp4(name, o, i, gain=1.0):
        yield name + ".weight", "I8", (
            hash64(seed, name + ".weight", o * i // 2) & np.uint64(255)
        ).astype(np.uint8).reshape(o, i // 2)
        v = (hash64(seed, name + ".scale", o * i // 32) % np.uint64(3)).astype(np.int64) - 1
        yield name + ".scale", "F8_E8M0", (127 + log2_gain(gain, i, FP4_RMS) + v).astype(
            np.uint8
        ).reshape(o, i // 32)

    def plain(name, o, i, gain=1.0):
        v = signed(hash64(seed, name, o * i)) * 2.0 ** log2_gain(gain, i, MAG_RMS)
        yield name, "BF16", bf16(v).reshape(o, i)

    def norm(name, d):
        v = 1 + ((hash64(seed, name, d) % np.uint64(32)).astype(np.float64) - 16) / 64
        yield name, "BF16", bf16(v)

    def f32(name, shape, scale):
        yield name, "F32", (
            uniform(hash64(seed, name, int(np.prod(shape)))) * np.float32(scale)
        ).reshape(shape)

    def hc(prefix, m, k):
        yield from f32(prefix + "_fn", (m, H * D), 2.0 ** round(math.log2(1.7 / math.sqrt(H * D))))
        yield from f32(prefix + "_base", (m,), 1.0)
        yield prefix + "_scale", "F32", (
            np.float32(0.75) + uniform(hash64(seed, prefix + "_scale", k)) * np.float32(0.25)
        )

    def compressor(p, ratio, d):
        w = (2 if ratio == 4 else 1) * d
        yield from f32(p + ".ape", (ratio, w), 1.0)
        yield from plain(p + ".wkv.weight", w, D)
        yield from plain(p + ".wgate.weight", w, D, 2.0)
        yield from norm(p + ".norm.weight", d)

    def ffn(p, i_kind, gain=1.5):
        for n, o, i in (("w1", I, D), ("w3", I, D), ("w2", D, I)):
            yield from i_kind(f"{p}.{n}", o, i, gain)

    def block(p, layer, ratio):
        yield from norm(p + ".attn_norm.weight", D)
        yield from norm(p + ".ffn_norm.weight", D)
        yield from hc(p + ".hc_attn", (2 + H) * H, 3)
        yield from hc(p + ".hc_ffn", (2 + H) * H, 3)
        a, heads, q, g, r = (
            p + ".attn",
            c["num_attention_heads"],
            c["q_lora_rank"],
            c["o_groups"],
            c["o_lora_rank"],
        )
        yield from f32(a + ".attn_sink", (heads,), 1.0)
        yield from fp8(a + ".wq_a", q, D)
        yield from norm(a + ".q_norm.weight", q)
        yield from fp8(a + ".wq_b", heads * hd, q, 2.0)
        yield from fp8(a + ".wkv", hd, D)
        yield from norm(a + ".kv_norm.weight", hd)
        yield from fp8(a + ".wo_a", g * r, heads * hd // g, 2.0)
        yield from fp8(a + ".wo_b", D, g * r, 2.0)
        if ratio:
            yield from compressor(a + ".compressor", ratio, hd)
        if ratio == 4:
            yield from fp8(a + ".indexer.wq_b", c["index_n_heads"] * rd, q, 2.0)
            yield from plain(a + ".indexer.weights_proj.weight", c["index_n_heads"], D)
            yield from compressor(a + ".indexer.compressor", 4, rd)
        f = p + ".ffn"
        yield from plain(f + ".gate.weight", E, D, 2.0)
        if layer < c["num_hash_layers"]:
            h = hash64(seed, f + ".gate.tid2eid", c["vocab_size"])
            step = np.where((h >> np.uint64(33)) & np.uint64(1), 1, E - 1)[:, None]
            yield f + ".gate.tid2eid", "I64", (
                (h % np.uint64(E)).astype(np.int64)[:, None] + np.arange(K) * step
            ) % E
        else:
            yield from f32(f + ".gate.bias", (E,), 0.25)
        for e in range(E):
            yield from ffn(f"{f}.experts.{e}", fp4)
        yield from ffn(f + ".shared_experts", fp8)

    yield from plain("embed.weight", c["vocab_size"], D, math.sqrt(D))
    yield from plain("head.weight", c["vocab_size"], D, 2.0)
    yield from norm("norm.weight", D)
    yield from hc("hc_head", H, 1)
    for l in range(c["num_hidden_layers"]):
        yield from block(f"layers.{l}", l, c["compress_ratios"][l])
    m = "mtp.0"
    yield from block(m, c["num_hidden_layers"], c["compress_ratios"][-1])
    yield from fp8(m + ".e_proj", D, D)
    yield from fp8(m + ".h_proj", D, D)
    for n in ("enorm", "hnorm", "norm"):
        yield from norm(f"{m}.{n}.weight", D)
    yield from hc(m + ".hc_head", H, 1)


def prompt(case, what, n):
    """n token ids in [3, vocab) for 'prompt' or 'decode'."""
    return 3 + (
        hash64(case["seed"], f"{what}.{n}" if what == "prompt" else f"{what}", n)
        % np.uint64(case["model"]["vocab_size"] - 3)
    ).astype(np.int64)


def write(case, out):
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(case["model"], f, indent=1)
    shards = case.get("shards", 1)
    items = list(tensors(case))
    per = -(-len(items) // shards)
    weight_map, total = {}, 0
    for s in range(shards):
        part = items[s * per : (s + 1) * per]
        name = (
            "model.safetensors" if shards == 1 else f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
        )
        header, pos = {}, 0
        for n, dt, a in part:
            header[n] = {"dtype": dt, "shape": list(a.shape), "data_offsets": [pos, pos + a.nbytes]}
            pos += a.nbytes
            weight_map[n] = name
        raw = json.dumps(header, separators=(",", ":")).encode()
        raw += b" " * (-len(raw) % 8)
        with open(os.path.join(out, name), "wb") as f:
            f.write(struct.pack("<Q", len(raw)) + raw)
            for _, _, a in part:
                f.write(np.ascontiguousarray(a).tobytes())
        total += pos
    if shards > 1:
        with open(os.path.join(out, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {"total_size": total}, "weight_map": weight_map}, f, indent=0)


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        write(json.load(f), sys.argv[2])
