# SPDX-License-Identifier: Apache-2.0
"""Writes a trained model as a DeepSeek-V4 checkpoint (runtime names, FP8 / FP4 weights) and reads
such a checkpoint back.

`entries` pairs every tensor name of the format with the tensor of the model that holds it; both
directions use that one list.
"""

import argparse
import json
import os

import torch

from model import BLOCK, Model, fp4_parts, fp8_weight_parts, load_config, untile

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
SHARD_BYTES = 10 << 20


def block_entries(block, at):
    def linear(name, module):
        yield at + name + ".weight", "bf16" if module.kind == "bf16" else "fp8", module.weight.data

    def compressor(name, module):
        yield at + name + ".ape", "f32", module.ape.data
        yield from linear(name + ".wkv", module.wkv)
        yield from linear(name + ".wgate", module.wgate)
        yield at + name + ".norm.weight", "bf16", module.norm.weight.data

    attn, ffn = block.attn, block.ffn
    for name in ("attn", "ffn"):
        yield at + name + "_norm.weight", "bf16", getattr(block, name + "_norm").weight.data
        hc = getattr(block, "hc_" + name)
        for part in ("fn", "base", "scale"):
            yield f"{at}hc_{name}_{part}", "f32", getattr(hc, part).data
    yield at + "attn.attn_sink", "f32", attn.attn_sink.data
    for name in ("wq_a", "wq_b", "wkv", "wo_a", "wo_b"):
        yield from linear("attn." + name, getattr(attn, name))
    yield at + "attn.q_norm.weight", "bf16", attn.q_norm.weight.data
    yield at + "attn.kv_norm.weight", "bf16", attn.kv_norm.weight.data
    if attn.ratio:
        yield from compressor("attn.compressor", attn.compressor)
    if attn.ratio == 4:
        yield from linear("attn.indexer.wq_b", attn.indexer.wq_b)
        yield from linear("attn.indexer.weights_proj", attn.indexer.weights_proj)
        yield from compressor("attn.indexer.compressor", attn.indexer.compressor)
    yield at + "ffn.gate.weight", "bf16", ffn.gate.weight.data
    if ffn.gate.hashed:
        yield at + "ffn.gate.tid2eid", "i64", ffn.gate.tid2eid
    else:
        yield at + "ffn.gate.bias", "f32", ffn.gate.bias
    for e in range(ffn.gate.experts):
        for name in ("w1", "w2", "w3"):
            yield f"{at}ffn.experts.{e}.{name}.weight", "fp4", getattr(ffn, name).data[e]
    for name in ("w1", "w2", "w3"):
        yield from linear("ffn.shared_experts." + name, getattr(ffn, "shared_" + name))


def entries(model):
    """Yields (name in the checkpoint, storage kind, tensor of the model)."""

    def head(at, module):
        for part in ("fn", "base", "scale"):
            yield f"{at}hc_head_{part}", "f32", getattr(module, part).data

    yield "embed.weight", "bf16", model.embed.data
    for i, block in enumerate(model.layers):
        yield from block_entries(block, f"layers.{i}.")
    for i, mtp in enumerate(model.mtp):
        at = f"mtp.{i}."
        for name in ("e_proj", "h_proj"):
            yield at + name + ".weight", "fp8", getattr(mtp, name).weight.data
        for name in ("enorm", "hnorm", "norm"):
            yield at + name + ".weight", "bf16", getattr(mtp, name).weight.data
        yield from block_entries(mtp.block, at)
        yield from head(at, mtp.hc_head)
    yield "norm.weight", "bf16", model.norm.weight.data
    yield from head("", model.hc_head)
    yield "head.weight", "bf16", model.head.data


def e8m0(scale):
    """Powers of two in float32 -> F8_E8M0."""
    return (
        ((scale.contiguous().view(torch.int32) >> 23) & 0xFF)
        .to(torch.uint8)
        .view(torch.float8_e8m0fnu)
    )


def from_e8m0(stored):
    return torch.exp2(stored.view(torch.uint8).float() - 127.0)


def store(name, kind, tensor):
    """-> the stored tensors of one entry"""
    tensor = tensor.detach().cpu()
    if kind == "f32":
        return {name: tensor.float().contiguous()}
    if kind == "bf16":
        return {name: tensor.to(torch.bfloat16).contiguous()}
    if kind == "i64":
        return {name: tensor.long().contiguous()}
    scale_name = name[: -len("weight")] + "scale"
    if kind == "fp8":
        q, scale = fp8_weight_parts(tensor.float())
        stored = untile(q, tensor.shape).to(torch.float8_e4m3fn).contiguous()
        return {name: stored, scale_name: e8m0(scale.squeeze(-1))}
    q, scale = fp4_parts(tensor.float())
    q = q.flatten(-2)
    code = (q.abs().unsqueeze(-1) == torch.tensor(E2M1)).int().argmax(-1)
    code = code | ((q < 0).int() << 3)
    packed = (code[:, 0::2] | (code[:, 1::2] << 4)).to(torch.uint8).view(torch.int8)
    return {name: packed.contiguous(), scale_name: e8m0(scale.squeeze(-1))}


def restore(kind, stored, scale):
    if kind == "fp8":
        spread = from_e8m0(scale).repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
        return stored.float() * spread[: stored.size(0), : stored.size(1)]
    if kind == "fp4":
        byte = stored.view(torch.uint8).int()
        table = torch.tensor(E2M1 + tuple(-v for v in E2M1))
        values = torch.stack([table[byte & 15], table[byte >> 4]], -1).flatten(-2)
        return values * from_e8m0(scale).repeat_interleave(32, 1)
    return stored


def save_checkpoint(model, directory):
    from safetensors.torch import save_file

    tensors = {}
    for name, kind, tensor in entries(model):
        tensors.update(store(name, kind, tensor))
    shards, size = [{}], 0
    for name, tensor in tensors.items():
        n = tensor.numel() * tensor.element_size()
        if size + n > SHARD_BYTES and shards[-1]:
            shards.append({})
            size = 0
        shards[-1][name] = tensor
        size += n
    os.makedirs(directory, exist_ok=True)
    index = {
        "metadata": {"total_size": sum(t.numel() * t.element_size() for t in tensors.values())},
        "weight_map": {},
    }
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, os.path.join(directory, file), metadata={"format": "pt"})
        index["weight_map"].update({name: file for name in shard})
    with open(os.path.join(directory, "model.safetensors.index.json"), "w") as f:
        json.dump(index, f, indent=1)
    return index["metadata"]["total_size"]


def read_tensors(directory):
    from safetensors.torch import load_file

    with open(os.path.join(directory, "model.safetensors.index.json")) as f:
        weight_map = json.load(f)["weight_map"]
    tensors = {}
    for file in sorted(set(weight_map.values())):
        tensors.update(load_file(os.path.join(directory, file)))
    assert set(tensors) == set(weight_map)
    return tensors


def load_checkpoint(directory, max_length=2048):
    """A Model with the dequantised weights; every tensor of the checkpoint must be used."""
    model = Model(load_config(os.path.join(directory, "config.json")), max_length)
    tensors = read_tensors(directory)
    for name, kind, target in entries(model):
        stored = tensors.pop(name)
        scale = tensors.pop(name[: -len("weight")] + "scale") if kind in ("fp8", "fp4") else None
        value = restore(kind, stored, scale)
        assert value.shape == target.shape, name
        target.copy_(value)
    assert not tensors, list(tensors)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--state", required=True, help="full state file or state directory written by train.py"
    )
    parser.add_argument("--out", required=True, help="directory that already holds config.json")
    args = parser.parse_args()
    from train import load_state

    model = Model(load_config(os.path.join(args.out, "config.json")))
    if os.path.isdir(args.state):
        load_state(model, args.state)
    else:
        model.load_state_dict(torch.load(args.state, map_location="cpu")["model"])
    print("total bytes:", save_checkpoint(model, args.out))


if __name__ == "__main__":
    main()
