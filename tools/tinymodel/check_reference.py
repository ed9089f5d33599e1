# SPDX-License-Identifier: Apache-2.0
"""Runs the exported checkpoint through the reference inference code of the model family and compares
its logits with model.py's.  The torch fallback kernels that come with it do not round in their in-place
quantisers, so rounding versions replace them here."""

import argparse
import importlib.util
import os
import sys
import types

import torch

import model as tiny
from export import load_checkpoint, read_tensors, from_e8m0


def load_reference(directory):
    def module(name, file):
        spec = importlib.util.spec_from_file_location(name, os.path.join(directory, file))
        m = importlib.util.module_from_spec(spec)
        sys.modules[name] = m
        spec.loader.exec_module(m)
        return m

    kernel = module("kernel", "kernel.py")
    plain = kernel.act_quant

    def act_quant(x, block_size=128, scale_fmt=None, scale_dtype=torch.float32, inplace=False):
        if not inplace:
            return plain(x, block_size, scale_fmt, scale_dtype)
        q, scale = tiny.fp8_parts(x, block_size)
        assert torch.equal(q, q.to(torch.float8_e4m3fn).float())
        return x.copy_((q * scale).flatten(-2))

    def fp4_act_quant(x, block_size=32, inplace=True):
        q, scale = tiny.fp4_parts(x, block_size)
        return x.copy_((q * scale).flatten(-2))

    kernel.act_quant, kernel.fp4_act_quant = act_quant, fp4_act_quant
    return module("reference_model", "model.py")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--reference", required=True, help="directory with the reference model.py and kernel.py"
    )
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("highest")
    tiny.Quant.weights = False
    mine = load_checkpoint(args.model).eval().to(device)
    cfg = mine.cfg
    reference = load_reference(args.reference)
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device(device)
    theirs = reference.Transformer(
        reference.ModelArgs(
            max_batch_size=1,
            max_seq_len=1024,
            dtype="fp8",
            expert_dtype="fp4",
            scale_dtype="fp8",
            vocab_size=cfg.vocab_size,
            dim=cfg.hidden_size,
            moe_inter_dim=cfg.moe_intermediate_size,
            n_layers=cfg.num_hidden_layers,
            n_hash_layers=cfg.num_hash_layers,
            n_heads=cfg.num_attention_heads,
            n_routed_experts=cfg.n_routed_experts,
            n_activated_experts=cfg.num_experts_per_tok,
            route_scale=cfg.routed_scaling_factor,
            q_lora_rank=cfg.q_lora_rank,
            o_groups=cfg.o_groups,
            o_lora_rank=cfg.o_lora_rank,
            compress_ratios=tuple(cfg.compress_ratios),
            original_seq_len=cfg.rope_scaling["original_max_position_embeddings"],
            index_n_heads=cfg.index_n_heads,
            index_topk=cfg.index_topk,
        )
    )
    stored = read_tensors(args.model)
    state = theirs.state_dict()
    for name in state:
        if name.startswith("mtp.0.embed") or name.startswith("mtp.0.head"):
            continue
        value = stored.pop(name)
        if name.endswith("wo_a.weight"):
            scale = stored.pop(name[:-6] + "scale")
            value = value.float() * from_e8m0(scale).repeat_interleave(128, 0).repeat_interleave(
                128, 1
            )
            state[name].copy_(value)
        elif value.dtype in (torch.float8_e8m0fnu, torch.float8_e4m3fn, torch.int8):
            assert state[name].shape == value.shape, name
            state[name].view(torch.uint8).copy_(value.view(torch.uint8))
        else:
            assert state[name].shape == value.shape, name
            state[name].copy_(value)
    assert not stored, list(stored)
    for layer in theirs.layers:
        if layer.ffn.gate.hash:
            gate = layer.ffn.gate
            gate.tid2eid = torch.nn.Parameter(gate.tid2eid.long(), requires_grad=False)
    theirs.head.get_logits = types.MethodType(
        lambda self, x: torch.nn.functional.linear(x.float(), self.weight), theirs.head
    )

    from tokenizers import Tokenizer
    import random
    from chat import render
    from data import make_recall

    tokenizer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    chat = make_recall(random.Random(3), True, 700, "one")
    ids = tokenizer.encode(
        "".join(t for t, _ in render(chat.messages, chat.thinking)), add_special_tokens=False
    ).ids[:1000]
    tokens = torch.tensor([ids], device=device)
    n = len(ids)
    with torch.no_grad():
        last = {}
        theirs.layers[-1].register_forward_hook(lambda m, i, o: last.update(h=o))
        full = theirs(tokens, 0).float()
        following = torch.cat([tokens[:, 1:], torch.zeros_like(tokens[:, :1])], 1)
        draft = theirs.mtp[0](last["h"], 0, following).float()
        theirs(tokens[:, : n - 40], 0)
        step = torch.cat([theirs(tokens[:, i : i + 1], i).float() for i in range(n - 40, n)], 1)
        padded = torch.full((1, (n + 127) // 128 * 128), 2, device=device, dtype=torch.long)
        padded[:, :n] = tokens
        h, d, _, _ = mine(padded, torch.zeros_like(padded), torch.tensor(True, device=device))
        own, own_draft = mine.logits(h)[:, :n].float(), mine.logits(d)[:, : n - 1].float()

    def report(name, a, b):
        print(
            f"{name:38s} relative difference {((a - b).norm() / b.norm()).item():.4f}   same argmax "
            f"{(a.argmax(-1) == b.argmax(-1)).float().mean().item():.4f}"
        )

    print(f"{n} tokens")
    report("model.py against reference prefill", own, full)
    report("model.py against reference MTP", own_draft, draft[:, : n - 1])
    report("reference decode against its prefill", step, full[:, n - 40 :])
    report("model.py against reference decode", own[:, n - 40 :], step)


if __name__ == "__main__":
    main()
