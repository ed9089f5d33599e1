# SPDX-License-Identifier: Apache-2.0
"""The DSpark drafter of dsv4-tiny: window-only blocks, chained, that draft a block of tokens in one pass from
tapped layers of the main model.  Trainable; a pass handles many anchors of many chats at once.

An anchor is the newest token of a text, at position t + 1; the main model has run up to t.  The block is the
anchor and noise tokens at t + 1, t + 2, ...; its rows attend to the context rows of t - 127 .. t, made from the
tapped layers alone, and to each other without order.  Row i drafts the token at t + 2 + i; the Markov head adds
what the token before it says.
"""
import json
import os

import torch
import torch.nn.functional as F
from torch import nn

import model as tiny
from export import block_entries, entries, read_tensors, restore, store
from model import (BLOCK, Attention, Block, HeadConnection, Linear, Model, RMSNorm, build_masks, load_config,
                   quantise_nope, rotate_tail)


class _Rows(torch.autograd.Function):
    """rows[index], with a backward that adds."""
    @staticmethod
    def forward(ctx, rows, index):
        ctx.save_for_backward(index)
        ctx.n = rows.size(0)
        return rows[index]

    @staticmethod
    def backward(ctx, g):
        index, = ctx.saved_tensors
        total = torch.zeros(ctx.n, g.size(-1), device=g.device)
        return total.index_add_(0, index.flatten(), g.flatten(0, -2).float()).to(g.dtype), None


class DraftAttention(Attention):
    def keys(self, x, cos, sin):
        return quantise_nope(rotate_tail(self.kv_norm(self.wkv(x)), cos, sin), self.rope)

    def forward(self, x, cos, sin, context, seen):
        """x [n, rows, d]; cos, sin [n, rows, pairs]; context [n, 128, head], seen [n, 128] which of it counts"""
        n, r, _ = x.shape
        h, d = self.heads, self.dim
        q = self.wq_b(self.q_norm(self.wq_a(x))).unflatten(-1, (h, d)).float()
        q = (q * torch.rsqrt(q.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)
        q = rotate_tail(q, cos.unsqueeze(2), sin.unsqueeze(2))
        keys = torch.cat([context, self.keys(x, cos, sin)], 1)
        logits = torch.bmm(q.view(n, r * h, d), keys.transpose(1, 2)).view(n, r, h, -1).float() * d ** -0.5
        mask = torch.cat([seen, seen.new_ones(n, r)], 1).view(n, 1, 1, -1)
        logits = logits.masked_fill(~mask, float("-inf"))
        sink = self.attn_sink.view(1, 1, h, 1)
        peak = torch.maximum(logits.amax(-1, keepdim=True), sink).detach()
        e = torch.exp(logits - peak)
        p = (e / (e.sum(-1, keepdim=True) + torch.exp(sink - peak))).to(x.dtype)
        o = torch.bmm(p.view(n, r * h, -1), keys).view(n, r, h, d)
        o = rotate_tail(o, cos.unsqueeze(2), sin.unsqueeze(2), inverse=True)
        o = o.reshape(n, r, self.groups, -1)
        wo_a = self.wo_a.value().unflatten(0, (self.groups, -1))
        return self.wo_b(torch.einsum("nrgd,god->nrgo", o, wo_a).flatten(2))


class Stage(Block):
    def __init__(self, cfg, layer):
        super().__init__(cfg, layer)
        self.attn = DraftAttention(cfg, 0)

    def forward(self, x, tokens, cos, sin, context, seen):
        y, post, comb = self.hc_attn.split(x)
        x = self.hc_attn.merge(self.attn(self.attn_norm(y), cos, sin, context, seen), x, post, comb)
        y, post, comb = self.hc_ffn.split(x)
        y, load = self.ffn(self.ffn_norm(y), tokens)
        return self.hc_ffn.merge(y, x, post, comb), load


class Drafter(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d, rank = cfg.hidden_size, cfg.dspark_markov_rank
        self.cfg = cfg
        self.stages = nn.ModuleList(Stage(cfg, layer) for layer in range(cfg.num_hidden_layers, len(cfg.compress_ratios)))
        self.main_proj = Linear(d * len(cfg.dspark_target_layer_ids), d)
        self.main_norm, self.norm = RMSNorm(d, cfg.rms_norm_eps), RMSNorm(d, cfg.rms_norm_eps)
        self.hc_head = HeadConnection(cfg)
        self.markov_w1 = nn.Parameter(torch.randn(cfg.vocab_size, rank) * 0.5)
        self.markov_w2 = nn.Parameter(torch.zeros(cfg.vocab_size, rank))
        self.confidence = nn.Parameter(torch.zeros(1, d + rank))
        self.run_stage = Stage.__call__                 # train_dspark.py puts a compiled version here

    def main_x(self, taps):
        return self.main_norm(self.main_proj(taps))

    def forward(self, model, tokens, doc, taps, at):
        """at [n]: flat positions (row * length + t) of the last token the main model has run
        -> block states before and after the norm [n, rows, d], expert loads"""
        cfg, length = self.cfg, tokens.size(1)
        cos, sin = model.tables(0, model.cos_window.size(0))
        main_x = self.main_x(taps)
        t = at % length
        window = (t.unsqueeze(1) - torch.arange(BLOCK - 1, -1, -1, device=t.device)).clamp_min(0)
        index = (at - t).unsqueeze(1) + window
        seen = (window < t.unsqueeze(1) + 1) & (t.unsqueeze(1) - torch.arange(BLOCK - 1, -1, -1, device=t.device) >= 0)
        seen = seen & (doc.flatten()[index] == doc.flatten()[at].unsqueeze(1))
        ids = torch.full((at.size(0), cfg.dspark_block_size), cfg.dspark_noise_token_id, device=t.device)
        ids[:, 0] = tokens.flatten()[at + 1]
        position = t.unsqueeze(1) + 1 + torch.arange(ids.size(1), device=t.device)
        x = model.embedding(ids).unsqueeze(2).repeat(1, 1, cfg.hc_mult, 1)
        loads = []
        for stage in self.stages:
            keys = stage.attn.keys(main_x, cos[:length], sin[:length])
            x, load = self.run_stage(stage, x, ids, cos[position], sin[position], _Rows.apply(keys.flatten(0, 1), index), seen)
            loads.append(load)
        y = self.hc_head(x)
        return y, self.norm(y), loads

    def markov(self, tokens):
        return F.embedding(tokens, self.markov_w1.to(tiny.HIDDEN_DTYPE))

    def bias(self, embedded):
        return F.linear(embedded.float(), self.markov_w2.to(tiny.HIDDEN_DTYPE).float())

    def confidences(self, y, embedded):
        return F.linear(torch.cat([y, embedded], -1).float(), self.confidence.to(tiny.HIDDEN_DTYPE).float()).squeeze(-1)

    def chain(self, model, tokens, doc, taps, at, forced=None):
        """Drafts greedily, or along forced tokens [n, rows] -> ids, logits, confidences, base logits, block states"""
        y, normed, _ = self(model, tokens, doc, taps, at)
        base = model.logits(normed)
        previous, ids, logits, sure = tokens.flatten()[at + 1], [], [], []
        for i in range(y.size(1)):
            embedded = self.markov(previous)
            logits.append(base[:, i] + self.bias(embedded))
            sure.append(self.confidences(y[:, i], embedded))
            ids.append(logits[-1].argmax(-1))
            previous = ids[-1] if forced is None else forced[:, i]
        return torch.stack(ids, 1), torch.stack(logits, 1), torch.stack(sure, 1), base, y


def run_trunk(model, tokens, doc):
    """-> normalised hidden states of the main model, tapped layers side by side [b, s, taps * d]"""
    cfg, length = model.cfg, tokens.size(1)
    masks = build_masks(doc, cfg.compress_ratios)
    x = model.embedding(tokens).unsqueeze(2).repeat(1, 1, cfg.hc_mult, 1)
    taps, sparse = [], torch.tensor(True, device=tokens.device)
    for i, block in enumerate(model.layers):
        cos, sin = model.tables(block.attn.ratio, length)
        x, _, _ = model.run_block(block, x, tokens, cos, sin, masks, sparse, None)
        if i in cfg.dspark_target_layer_ids:
            taps.append(x.float().mean(2).to(x.dtype))
    return model.norm(model.hc_head(x)), torch.cat(taps, -1)


def drafter_entries(drafter):
    """Yields (name in the checkpoint, storage kind, tensor of the drafter)."""
    last = len(drafter.stages) - 1
    for s, stage in enumerate(drafter.stages):
        at = f"mtp.{s}."
        yield from block_entries(stage, at)
        if s == 0:
            yield at + "main_proj.weight", "fp8", drafter.main_proj.weight.data
            yield at + "main_norm.weight", "bf16", drafter.main_norm.weight.data
        if s == last:
            yield at + "norm.weight", "bf16", drafter.norm.weight.data
            for part in ("fn", "base", "scale"):
                yield f"{at}hc_head_{part}", "f32", getattr(drafter.hc_head, part).data
            yield at + "markov_head.markov_w1.weight", "bf16", drafter.markov_w1.data
            yield at + "markov_head.markov_w2.weight", "bf16", drafter.markov_w2.data
            yield at + "confidence_head.proj.weight", "bf16", drafter.confidence.data


def stored_drafter(drafter):
    tensors = {}
    for name, kind, tensor in drafter_entries(drafter):
        tensors.update(store(name, kind, tensor))
    return tensors


def fill(items, tensors):
    """Reads stored tensors into the model's, and takes them out of `tensors`."""
    for name, kind, target in items:
        stored = tensors.pop(name)
        scale = tensors.pop(name[:-len("weight")] + "scale") if kind in ("fp8", "fp4") else None
        value = restore(kind, stored, scale)
        assert value.shape == target.shape, name
        target.copy_(value)


def drafter_config(trunk_config, block=5, rank=32, stages=3):
    """The config.json of a checkpoint with a drafter, from that of the trunk."""
    config = dict(trunk_config)
    layers = config["num_hidden_layers"]
    config["compress_ratios"] = config["compress_ratios"][:layers] + [0] * stages
    config.update(dspark_block_size=block, dspark_noise_token_id=config["vocab_size"] - 2,
                  dspark_target_layer_ids=list(range(layers - 3, layers)), dspark_markov_rank=rank)
    return config


def load_trunk(directory, cfg, max_length=2048):
    """The main model alone, without an MTP block."""
    model = Model(cfg, max_length + 16)
    model.mtp = nn.ModuleList()
    fill(entries(model), read_tensors(directory))
    return model


def load_with_drafter(directory, max_length=2048):
    """Main model and drafter of a checkpoint; every tensor must be used."""
    cfg = load_config(os.path.join(directory, "config.json"))
    model, drafter = Model(cfg, max_length + 16), Drafter(cfg)
    model.mtp = nn.ModuleList()
    if os.path.exists(os.path.join(directory, "model.safetensors.index.json")):
        tensors = read_tensors(directory)
    else:
        from safetensors.torch import load_file
        tensors = load_file(os.path.join(directory, "model.safetensors"))
    fill(entries(model), tensors)
    fill(drafter_entries(drafter), tensors)
    assert not tensors, list(tensors)
    return model, drafter


def assemble(trunk, drafter_file, out):
    """Writes the checkpoint folder: the trunk's shards without its MTP block, and the drafter's shard."""
    import shutil
    from safetensors.torch import load_file, save_file
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(trunk, "config.json")) as f:
        config = json.load(f)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(drafter_config(config), f, indent=2)
    with open(os.path.join(trunk, "model.safetensors.index.json")) as f:
        files = sorted(set(json.load(f)["weight_map"].values()))
    index = {"metadata": {"total_size": 0}, "weight_map": {}}
    for i, source in enumerate([os.path.join(trunk, f) for f in files] + [drafter_file]):
        file = f"model-{i + 1:05d}-of-{len(files) + 1:05d}.safetensors"
        tensors = load_file(source)
        kept = {k: v for k, v in tensors.items() if i == len(files) or not k.startswith("mtp.")}
        if len(kept) == len(tensors):
            shutil.copy(source, os.path.join(out, file))
        else:
            save_file(kept, os.path.join(out, file), metadata={"format": "pt"})
        index["metadata"]["total_size"] += sum(t.numel() * t.element_size() for t in kept.values())
        index["weight_map"].update({name: file for name in kept})
    with open(os.path.join(out, "model.safetensors.index.json"), "w") as f:
        json.dump(index, f, indent=1)
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "gates.json"):
        shutil.copy(os.path.join(trunk, file), out)


def accepted_lengths(model, drafter, prompts, answers, per_pass=256):
    """For each text and each anchor of its answer: how many drafts in a row are the answer's own tokens, the
    number that could be, and the confidences [n, rows]."""
    device, results = model.embed.device, []
    for prompt, answer in zip(prompts, answers):
        text = prompt + answer
        length = (len(text) + BLOCK - 1) // BLOCK * BLOCK
        tokens = torch.full((1, length), 2, dtype=torch.long, device=device)
        tokens[0, :len(text)] = torch.tensor(text, device=device)
        doc = torch.zeros_like(tokens)
        _, taps = run_trunk(model, tokens, doc)
        at = torch.arange(len(prompt) - 1, len(text) - 2, device=device)          # the anchor at + 1 is an answer token, at + 2 is one
        parts = [drafter.chain(model, tokens, doc, taps, part) for part in at.split(per_pass)] if len(at) else []
        hits, room, sure = [], [], []
        for part, (ids, _, confidence, _, _) in zip(at.split(per_pass), parts):
            for t, row, c in zip(part.tolist(), ids.tolist(), confidence.tolist()):
                following = text[t + 2:t + 2 + len(row)]
                n = 0
                while n < len(following) and row[n] == following[n]:
                    n += 1
                hits.append(n)
                room.append(len(following))
                sure.append(c)
        results.append((hits, room, sure))
    return results


def simulate(hits, answer_length):
    """Greedy speculative decoding of one answer whose first token came from the prefill -> steps, drafts accepted, first drafts right"""
    at, steps, accepted, first = 0, 0, 0, 0
    while at < answer_length - 1:
        n = hits[at] if at < len(hits) else 0
        steps, accepted, first = steps + 1, accepted + n, first + (n > 0)
        at += n + 1
    return steps, accepted, first


def main():
    import argparse
    parser = argparse.ArgumentParser(description="Makes a checkpoint folder of the trunk and a trained drafter.")
    parser.add_argument("--trunk", required=True, help="directory of dsv4-tiny")
    parser.add_argument("--drafter", required=True, help="drafter.safetensors of train_dspark.py")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    assemble(args.trunk, args.drafter, args.out)
    model, drafter = load_with_drafter(args.out)
    for a, b in zip(model.layers, load_trunk(args.trunk, model.cfg).layers):
        assert all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values()))
    print(f"{args.out}: main model and {len(drafter.stages)} stages read back")


if __name__ == "__main__":
    main()
