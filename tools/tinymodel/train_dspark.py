# SPDX-License-Identifier: Apache-2.0
"""Trains a DSpark drafter for the finished dsv4-tiny, whose weights stay as they are.

The drafts are taught what the main model itself would say next: at every anchor inside an answer, row i learns the
main model's distribution at t + 1 + i, as long as the text up to there is the main model's own greedy choice."""
import argparse
import json
import math
import os
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file

import model as tiny
from dspark import (Drafter, Stage, accepted_lengths, drafter_config, drafter_entries, fill, load_trunk, run_trunk, simulate,
                    stored_drafter)
from loader import ANSWER, Loader
from model import Block, Linear, MoE, Quant
from train import Muon

LENGTH = 2048
DECAY_FROM = 0.3             # progress at which the learning rates start to fall
MUON_LR, ADAM_LR = 0.012, 2e-3
ROW_DECAY = 4.0              # row i counts exp(-i / ROW_DECAY)
HARD = 0.5                   # share of the main model's first choice in the target; the rest is its distribution
CONFIDENCE_WEIGHT = 0.3


def learning_rate(progress, step):
    warm = min(1.0, (step + 1) / 60)
    done = max(0.0, min(1.0, (progress - DECAY_FROM) / (1 - DECAY_FROM)))
    return warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


def choose_anchors(tokens, doc, code, choice, rows, count):
    """-> at [count] flat positions t, valid [count, rows] which rows learn.  choice: the main model's argmax."""
    length = tokens.size(1)
    room = length - rows - 1
    step = torch.arange(rows, device=tokens.device)
    t = torch.arange(room, device=tokens.device)
    ahead = t.unsqueeze(1) + 2 + step                                        # the drafted tokens
    learn = (code[:, ahead] >= ANSWER) & (doc[:, ahead] == doc[:, :room, None]) & (code[:, t + 1] >= ANSWER).unsqueeze(2)
    own = (choice[:, ahead - 1] == tokens[:, ahead]).int()
    own = torch.cat([torch.ones_like(own[..., :1]), own[..., :-1]], -1).cumprod(-1).bool()   # the tokens before it are its own
    valid = learn & own
    flat = (torch.arange(tokens.size(0), device=tokens.device).unsqueeze(1) * length + t)[valid[..., 0]]
    picked = flat[torch.randperm(flat.numel(), device=flat.device)[:count]]
    at = torch.cat([picked, picked.new_full((count - picked.numel(),), 1)])
    valid = valid[at // length, (at % length).clamp_max(room - 1)]
    valid[picked.numel():] = False
    return at, valid


def losses(model_head, drafter_w1, drafter_w2, drafter_confidence, y, normed, previous, goal, valid):
    """goal [n, rows, d]: the main model's normalised hidden states"""
    head = model_head.to(tiny.HIDDEN_DTYPE)
    base = F.linear(normed, head).float()
    embedded = F.embedding(previous, drafter_w1.to(tiny.HIDDEN_DTYPE))
    logits = base + F.linear(embedded, drafter_w2.to(tiny.HIDDEN_DTYPE)).float()
    with torch.no_grad():
        target = F.linear(goal, head).float()
        p = torch.softmax(target, -1)
        best = target.argmax(-1)
    logq = torch.log_softmax(logits, -1)
    soft = -(p * logq).sum(-1)
    hard = -logq.gather(-1, best.unsqueeze(-1)).squeeze(-1)
    overlap = torch.minimum(p, logq.detach().exp()).sum(-1)
    sure = F.linear(torch.cat([y, embedded], -1).detach().float(), drafter_confidence).squeeze(-1)
    confidence = F.binary_cross_entropy_with_logits(sure, overlap.clamp(0, 1), reduction="none")
    weight = valid.float() * torch.exp(-torch.arange(valid.size(1), device=valid.device) / ROW_DECAY)
    total = weight.sum().clamp_min(1)
    return (((1 - HARD) * soft + HARD * hard) * weight).sum() / total, (confidence * weight).sum() / total, logits.detach().argmax(-1) == best


def learn(model, drafter, score, tokens, doc, taps, at, previous, goal, valid):
    y, normed, loads = drafter(model, tokens, doc, taps, at)
    loss, confidence, right = score(model.head, drafter.markov_w1, drafter.markov_w2, drafter.confidence, y, normed, previous, goal, valid)
    (loss + CONFIDENCE_WEIGHT * confidence).backward()
    return loss, confidence, right, loads


def report(model, drafter, cases, log):
    """Simulated greedy speculative decoding of the gate prompts."""
    from collections import defaultdict
    table = defaultdict(lambda: [0] * 9)
    calibration = []
    results = accepted_lengths(model, drafter, [c["prompt"] for c in cases], [c["answer"] for c in cases])
    for case, (hits, room, sure) in zip(cases, results):
        steps, accepted, first = simulate(hits, len(case["answer"]))
        for kind in (case["kind"], "all"):
            row = table[kind]
            for i, v in enumerate((1, steps, accepted, first, len(case["answer"]) - 1, len(hits), sum(h > 0 for h in hits), sum(hits), sum(room))):
                row[i] += v
        for n, r, c in zip(hits, room, sure):
            calibration += [(1 / (1 + math.exp(-c[i])), n > i) for i in range(min(r, n + 1))]
    lines = []
    for kind, (n, steps, accepted, first, tokens, anchors, right, total, room) in table.items():
        lines.append(f"{kind:20s} prompts {n:4d}   steps: first draft right {first / max(1, steps):6.1%}, tokens a step {tokens / max(1, steps):.2f}, drafts accepted a step "
                     f"{accepted / max(1, steps):.2f}   every anchor: first draft {right / max(1, anchors):6.1%}, drafts right of the {room / max(1, anchors):.2f} possible {total / max(1, anchors):.2f}")
    for low in (0.0, 0.5, 0.7, 0.9, 0.98):
        inside = [ok for c, ok in calibration if c >= low and (c < {0.0: 0.5, 0.5: 0.7, 0.7: 0.9, 0.9: 0.98}.get(low, 2))]
        lines.append(f"confidence from {low}: {len(inside)} drafts reached, {sum(inside) / max(1, len(inside)):.1%} right")
    print("\n".join(lines), flush=True)
    if log:
        with open(log, "a") as f:
            f.write("\n".join(lines) + "\n")
    return table["all"]


def gate_cases(directory, tokenizer, fresh=0, model=None, seed=1077):
    """The bundled gates with the main model's recorded greedy tokens, and `fresh` times as many prompts of another seed."""
    from chat import prompt_text
    from data import gates
    with open(os.path.join(directory, "gates.json"), encoding="utf-8") as f:
        bundled = json.load(f)["cases"]

    def ids(messages, thinking):
        return tokenizer.encode(prompt_text(messages, thinking), add_special_tokens=False).ids
    cases = [{"kind": c["kind"], "prompt": ids(c["messages"], c["thinking"]), "answer": c["greedy_tokens"]} for c in bundled]
    assert all(len(case["prompt"]) == c["prompt_tokens"] for case, c in zip(cases, bundled))
    if not fresh:
        return cases, []
    from evaluate import generate
    chats = gates(seed, fresh)
    prompts = [ids(c.messages[:-1], c.thinking) for c in chats]
    more = [{"kind": c.kind, "prompt": p} for c, p in zip(chats, prompts) if len(p) <= 1800]
    for case, answer in zip(more, generate(model, [c["prompt"] for c in more])):
        case["answer"] = answer
    return cases, more


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="directory of dsv4-tiny")
    parser.add_argument("--out", required=True, help="directory for drafter.safetensors, the log and the evaluation")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--steps", type=int, default=10 ** 9)
    parser.add_argument("--wall", type=float, default=1e9, help="stop training after so many seconds, set-up included")
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--anchors", type=int, default=4096)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 3))
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--fresh", type=int, default=0, help="also evaluate on so many times the gates, from another seed")
    parser.add_argument("--length", type=int, default=LENGTH)
    parser.add_argument("--resume", help="the drafter.safetensors of an earlier run")
    parser.add_argument("--limit", type=int, help="evaluate on the first so many prompts only")
    args = parser.parse_args()

    start = time.time()
    os.makedirs(args.out, exist_ok=True)
    tokenizer_file = os.path.join(args.model, "tokenizer.json")
    loader = Loader(tokenizer_file, args.length, args.workers, args.seed, 1.0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(args.seed)
    with open(os.path.join(args.model, "config.json")) as f:
        config = drafter_config(json.load(f))
    cfg = tiny.SimpleNamespace(**config)
    rows = cfg.dspark_block_size
    model = load_trunk(args.model, cfg, max(args.length, 2048)).to(device).eval().requires_grad_(False)
    drafter = Drafter(cfg).to(device).train()
    drafter.norm.weight.data.copy_(model.norm.weight)
    if args.resume:
        fill(drafter_entries(drafter), load_file(args.resume))
    stored = sum(t.numel() * t.element_size() for t in stored_drafter(drafter).values())
    print(f"{sum(p.numel() for p in drafter.parameters()) / 1e6:.2f}M parameters, {stored / 1e6:.2f} MB stored", flush=True)

    matrices = []
    for module in drafter.modules():
        if isinstance(module, Linear):
            matrices.append(module.weight)
        elif isinstance(module, MoE):
            matrices += [module.w1, module.w2, module.w3]
    chosen = {id(p) for p in matrices}
    muon = Muon(matrices)
    adam = torch.optim.Adam([p for p in drafter.parameters() if id(p) not in chosen], lr=ADAM_LR, betas=(0.9, 0.95), eps=1e-10)
    score = losses
    if not args.no_compile:
        torch._dynamo.config.cache_size_limit = 64
        model.run_block = torch.compile(Block.forward, dynamic=False)
        drafter.run_stage = torch.compile(Stage.forward, dynamic=False)
        score = torch.compile(losses, dynamic=False)
    log = open(os.path.join(args.out, "train_dspark.jsonl"), "a")
    clock, step, progress, last = None, 0, 0.0, time.time()
    while step < args.steps and progress < 1 and time.time() - start < args.wall:
        tokens, doc, code = (torch.from_numpy(t).to(device, non_blocking=True).long() for t in loader.batch(args.rows))
        with torch.no_grad():
            hidden, taps = run_trunk(model, tokens, doc)
            choice = F.linear(hidden, model.head.to(hidden.dtype)).argmax(-1)
            at, valid = choose_anchors(tokens, doc, code, choice, rows, args.anchors)
            ahead = at.unsqueeze(1) + 1 + torch.arange(rows, device=device)
            goal, previous = hidden.flatten(0, 1)[ahead], tokens.flatten()[ahead]
        try:
            loss, confidence, right, loads = learn(model, drafter, score, tokens, doc, taps, at, previous, goal, valid)
        except Exception as error:
            if args.no_compile or step >= 3:
                raise
            print(f"without torch.compile from here on: {type(error).__name__}: {str(error)[:300]}", flush=True)
            args.no_compile, score = True, losses
            model.run_block, drafter.run_stage = Block.__call__, Stage.__call__
            drafter.zero_grad(set_to_none=True)
            loss, confidence, right, loads = learn(model, drafter, score, tokens, doc, taps, at, previous, goal, valid)
        lr = learning_rate(progress, step)
        muon.step(lr * MUON_LR)
        adam.param_groups[0]["lr"] = lr * ADAM_LR
        adam.step()
        drafter.zero_grad(set_to_none=True)
        with torch.no_grad():
            for stage, load in zip(drafter.stages, loads):
                stage.ffn.gate.bias += 0.002 * lr * torch.sign(load.mean() - load)
        step += 1
        if step == 3:
            if device == "cuda":
                torch.cuda.synchronize()
            clock = time.time()
            print(f"first 3 steps (compilation) done at {clock - start:.1f} s", flush=True)
        if clock is not None:
            progress = (time.time() - clock) / (60 * args.minutes)
        if step % 100 == 0 or step in (1, 3, 10, 30):
            with torch.no_grad():
                per_row = ((right & valid).sum(0) / valid.sum(0).clamp_min(1)).tolist()
                record = {"step": step, "progress": round(progress, 4), "lr": round(lr, 4), "loss": round(loss.item(), 4), "confidence": round(confidence.item(), 4),
                          "right": [round(v, 4) for v in per_row], "anchors": int(valid[:, 0].sum()), "balance": [round((l.max() / l.mean()).item(), 2) for l in loads],
                          "ms": round(1000 * (time.time() - last) / (100 if step > 100 else 1), 1), "reused": round(loader.reused / max(1, loader.used), 3), "seconds": round(time.time() - start, 1)}
            last = time.time()
            print(json.dumps(record), flush=True)
            log.write(json.dumps(record) + "\n")
            log.flush()
        if step % 1000 == 0:
            save(drafter, args.out)
    loader.close()
    save(drafter, args.out)
    if device == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2 ** 30:.1f} GiB")
    print(f"stopped at step {step}, {time.time() - start:.1f} s", flush=True)

    # what the exported file computes
    from tokenizers import Tokenizer
    Quant.weights = False
    torch.set_float32_matmul_precision("highest")
    model.run_block, score = Block.__call__, None
    exported = Drafter(cfg).eval()
    fill(drafter_entries(exported), load_file(os.path.join(args.out, "drafter.safetensors")))
    exported = exported.to(device).requires_grad_(False)
    cases, more = gate_cases(args.model, Tokenizer.from_file(tokenizer_file), args.fresh, model)
    evaluation = os.path.join(args.out, "evaluation_dspark.txt")
    with torch.no_grad():
        for name, part in (("gates.json", cases), (f"{len(more)} prompts of another seed", more)):
            part = part[:args.limit]
            if part:
                print(name)
                with open(evaluation, "a") as f:
                    f.write(name + "\n")
                report(model, exported, part, evaluation)
    print(f"evaluated at {time.time() - start:.1f} s")


def save(drafter, out):
    save_file(stored_drafter(drafter), os.path.join(out, "drafter.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    sys.exit(main())
