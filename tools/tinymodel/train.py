# SPDX-License-Identifier: Apache-2.0
"""Trains dsv4-tiny.  The schedule follows the clock: --minutes of training cover the progress
from --begin to --end, so a run can be split into stages."""

import argparse
import json
import math
import os
import time

import torch
import torch.nn.functional as F

from data import KIND_NAMES
from loader import ANSWER, PROMPT, Loader
from model import Block, Linear, Model, MoE, load_config

LENGTH = 2048
PROMPT_WEIGHT = 0.05
RECALLED_WEIGHT = 4.0  # numbers in the answers of recall chats
MTP_WEIGHT = 0.3
SPARSE_FROM = 0.5  # progress at which the indexer's top-k choice is applied
DECAY_FROM = 0.45  # progress at which the learning rates start to fall
MUON_LR, MUON_DECAY = 0.012, 0.05
ADAM_LR = {"embed": 3e-3, "head": 2e-3, "other": 2e-3}


def orthogonalise(g):
    """Newton-Schulz iteration on a batch of matrices [n, rows, cols], rows <= cols."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g.to(torch.bfloat16)
    x = x / (x.float().norm(dim=(-2, -1), keepdim=True) + 1e-7).to(x.dtype)
    for _ in range(5):
        gram = x @ x.transpose(-2, -1)
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x


class Muon:
    """Momentum, orthogonalised; matrices of one shape are handled as one batch."""

    def __init__(self, params):
        groups = {}
        for p in params:
            groups.setdefault(tuple(p.shape[-2:]), []).append(p)
        self.groups = [
            (
                shape,
                ps,
                torch.zeros(
                    sum(p.numel() for p in ps) // (shape[0] * shape[1]), *shape, device=ps[0].device
                ),
            )
            for shape, ps in groups.items()
        ]

    @torch.no_grad()
    def step(self, lr):
        for (rows, cols), params, momentum in self.groups:
            g = torch.cat([p.grad.reshape(-1, rows, cols) for p in params])
            momentum.lerp_(g, 0.05)
            u = g.lerp(momentum, 0.95)
            u = (
                orthogonalise(u)
                if rows <= cols
                else orthogonalise(u.transpose(-2, -1)).transpose(-2, -1)
            )
            u = (u.float() * (-lr * max(1.0, rows / cols) ** 0.5)).split(
                [p.numel() // (rows * cols) for p in params]
            )
            torch._foreach_mul_(params, 1 - lr * MUON_DECAY)
            torch._foreach_add_(params, [x.reshape(p.shape) for x, p in zip(u, params)])


def split_parameters(model):
    matrices = []
    for name, module in model.named_modules():
        if isinstance(module, Linear) and not name.endswith("weights_proj"):
            matrices.append(module.weight)
        elif isinstance(module, MoE):
            matrices += [module.w1, module.w2, module.w3]
    chosen = {id(p) for p in matrices}
    rest = {"embed": [model.embed], "head": [model.head], "other": []}
    named = {id(model.embed), id(model.head)}
    rest["other"] = [p for p in model.parameters() if id(p) not in chosen | named]
    return matrices, rest


def token_losses(hidden, head, target):
    logits = F.linear(hidden.float(), head.to(torch.bfloat16).float())
    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(
        target.shape
    )
    return loss, logits.detach().argmax(-1) == target


def shifted(t, n, fill):
    return torch.cat([t[:, n:], torch.full_like(t[:, :n], fill)], 1)


def learning_rate(progress, step, resumed):
    warm = min(1.0, (step + 1) / (100 if resumed else 60))
    if progress < DECAY_FROM:
        return warm
    done = min(1.0, (progress - DECAY_FROM) / (1 - DECAY_FROM))
    return warm * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * done)))


def save_state(model, directory, parts):
    """The weights in bf16, in `parts` files (small enough to travel); fp32 stays on the machine."""
    os.makedirs(directory, exist_ok=True)
    items = sorted(model.state_dict().items(), key=lambda kv: -kv[1].numel())
    shards = [{} for _ in range(parts)]
    sizes = [0] * parts
    for name, t in items:
        i = sizes.index(min(sizes))
        t = t.detach().cpu()
        t = t.to(torch.bfloat16) if t.is_floating_point() and t.numel() > 4096 else t
        shards[i][name] = t.clone()
        sizes[i] += t.numel() * t.element_size()
    for i, shard in enumerate(shards):
        path = os.path.join(directory, f"state{i}.pt")
        torch.save(shard, path + ".new")
        os.replace(path + ".new", path)


def load_state(model, directory):
    state = {}
    for file in sorted(os.listdir(directory)):
        if file.startswith("state") and file.endswith(".pt"):
            state.update(torch.load(os.path.join(directory, file), map_location="cpu"))
    model.load_state_dict({k: v.float() if v.is_floating_point() else v for k, v in state.items()})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", required=True, help="directory with config.json and tokenizer.json"
    )
    parser.add_argument("--state", required=True, help="directory for the bf16 state")
    parser.add_argument(
        "--full", help="file for the full state (weights, optimisers) on this machine"
    )
    parser.add_argument("--resume", help="directory of a bf16 state, or a full state file")
    parser.add_argument("--log")
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument(
        "--wall", type=float, default=1e9, help="stop after so many seconds, set-up included"
    )
    parser.add_argument(
        "--save-every", type=float, default=150, help="seconds between saved states"
    )
    parser.add_argument("--begin", type=float, default=0.0)
    parser.add_argument("--end", type=float, default=1.0)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 3))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--level", type=float, default=0.0, help="difficulty of the recall texts at the start"
    )
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()

    start = time.time()
    loader = Loader(
        os.path.join(args.model, "tokenizer.json"), LENGTH, args.workers, args.seed, args.level
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(args.seed)
    model = Model(load_config(os.path.join(args.model, "config.json")), LENGTH).to(device).train()
    matrices, rest = split_parameters(model)
    muon = Muon(matrices)
    adam = torch.optim.Adam(
        [{"params": ps, "lr": ADAM_LR[k], "peak": ADAM_LR[k]} for k, ps in rest.items()],
        betas=(0.9, 0.95),
        eps=1e-10,
        **({"fused": True} if device == "cuda" else {}),
    )
    tokens_before = 0
    if args.resume and os.path.isdir(args.resume):
        load_state(model, args.resume)
    elif args.resume:
        full = torch.load(args.resume, map_location=device)
        model.load_state_dict(full["model"])
        adam.load_state_dict(full["adam"])
        for (_, _, momentum), saved in zip(muon.groups, full["muon"]):
            momentum.copy_(saved)
        tokens_before = full["tokens"]
    losses = token_losses
    if not args.no_compile:
        torch._dynamo.config.cache_size_limit = 32
        model.run_block = torch.compile(Block.forward, dynamic=False)
        losses = torch.compile(token_losses, dynamic=False)
    print(
        f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters, set-up {time.time() - start:.1f} s",
        flush=True,
    )

    log = open(args.log, "a") if args.log else None
    with open(os.path.join(args.model, "tokenizer.json"), encoding="utf-8") as f:
        vocabulary = json.load(f)["model"]["vocab"]
    number = torch.zeros(len(vocabulary) + 64, dtype=torch.bool, device=device)
    number[[i for t, i in vocabulary.items() if t.isdecimal()]] = True
    recall_code, drill_code = (ANSWER + KIND_NAMES.index(kind) for kind in ("recall", "drill"))

    def weigh(code, target):
        return weights[code] * torch.where(
            ((code == recall_code) | (code == drill_code)) & number[target], RECALLED_WEIGHT, 1.0
        )

    clock, step, last, last_step, saved = None, 0, time.time(), 0, time.time()
    level, found = args.level, 0.0
    weights = torch.ones(256, device=device)
    weights[0], weights[PROMPT] = 0.0, PROMPT_WEIGHT
    gates = [b.ffn.gate for b in list(model.layers) + [m.block for m in model.mtp]]
    progress = args.begin
    while step < args.steps and progress < args.end and time.time() - start < args.wall:
        tokens, doc, code = (
            torch.from_numpy(t).to(device, non_blocking=True).long()
            for t in loader.batch(args.rows)
        )
        lr = learning_rate(progress, step, bool(args.resume))
        sparse = torch.tensor(progress >= SPARSE_FROM, device=device)
        target, target2 = shifted(tokens, 1, 0), shifted(tokens, 2, 0)
        code1, code2 = shifted(code, 1, 0), shifted(code, 2, 0)
        weight = weigh(code1, target) * (shifted(doc, 1, -1) == doc)
        weight2 = weigh(code2, target2) * (shifted(doc, 2, -1) == doc)
        main_h, draft_h, index_loss, loads = model(tokens, doc, sparse, weight)
        loss1, right1 = losses(main_h, model.head, target)
        loss2, right2 = losses(draft_h, model.head, target2)
        main_loss = (loss1 * weight).sum() / weight.sum()
        draft_loss = (loss2 * weight2).sum() / weight2.sum()
        (main_loss + MTP_WEIGHT * draft_loss + index_loss).backward()
        muon.step(lr * MUON_LR)
        for group in adam.param_groups:
            group["lr"] = group["peak"] * lr
        adam.step()
        model.zero_grad(set_to_none=True)
        with torch.no_grad():
            for gate, load in zip(gates, loads):
                if not gate.hashed:
                    gate.bias += 0.002 * lr * torch.sign(load.mean() - load)
        step += 1
        if step == 3:
            if device == "cuda":
                torch.cuda.synchronize()
            clock = time.time()
            print(f"first 3 steps (compilation) done at {clock - start:.1f} s", flush=True)
        if clock is not None:
            progress = args.begin + (args.end - args.begin) * (time.time() - clock) / (
                60 * args.minutes
            )
        needle = (code1 == recall_code) & number[target]
        if step % 10 == 0:
            # the recall texts grow when most of their numbers are found, and with time in any case
            found += 0.1 * (((right1 & needle).sum() / needle.sum().clamp_min(1)).item() - found)
            level = min(1.0, max(level + (0.02 if found > 0.85 else 0.0), (progress - 0.3) / 0.25))
            loader.level.value = level
        if step % 100 == 0 or step in (1, 3, 10, 30):
            with torch.no_grad():
                answer = code1.clamp_min(ANSWER - 1) - (ANSWER - 1)  # 0 or 1 + kind
                n = len(KIND_NAMES) + 1
                live = (weight > 0).flatten()

                def per_kind(values):
                    total = torch.zeros(n, device=device).scatter_add_(
                        0, answer.flatten(), (values.float().flatten() * live)
                    )
                    return total / torch.zeros(n, device=device).scatter_add_(
                        0, answer.flatten(), live.float()
                    ).clamp_min(1)

                loss_kind, right_kind = per_kind(loss1).tolist(), per_kind(right1).tolist()
                needle_right = (right1 & needle).sum() / needle.sum().clamp_min(1)
                draft_right = (right2 & (code2 >= ANSWER)).sum() / (code2 >= ANSWER).sum()
                balance = [round((l.max() / l.mean()).item(), 2) for l in loads]
            now = time.time()
            record = {
                "step": step,
                "progress": round(progress, 4),
                "lr": round(lr, 4),
                "loss": round(main_loss.item(), 4),
                "mtp": round(draft_loss.item(), 4),
                "mtp_right": round(draft_right.item(), 4),
                "needle_right": round(needle_right.item(), 4),
                "drill_right": round(
                    (
                        (right1 & (code1 == drill_code) & number[target]).sum()
                        / ((code1 == drill_code) & number[target]).sum().clamp_min(1)
                    ).item(),
                    4,
                ),
                "level": round(level, 3),
                "index_kl": round(float(index_loss), 4),
                "prompt": round(loss_kind[0], 3),
                "kinds": {
                    k: [round(a, 3), round(b, 3)]
                    for k, a, b in zip(KIND_NAMES, loss_kind[1:], right_kind[1:])
                },
                "balance": balance,
                "tok_s": int((step - last_step) * args.rows * LENGTH / (now - last)),
                "reused": round(loader.reused / max(1, loader.used), 3),
                "answers": round((code1 >= ANSWER).float().mean().item(), 3),
                "pad": round((code == 0).float().mean().item(), 3),
                "tokens": tokens_before + step * args.rows * LENGTH,
                "seconds": round(now - start, 1),
            }
            last, last_step = now, step
            print(json.dumps(record), flush=True)
            if log:
                log.write(json.dumps(record) + "\n")
                log.flush()
        if time.time() - saved > args.save_every:
            save_state(model, args.state, 3)
            saved = time.time()
    save_state(model, args.state, 3)
    if args.full:
        torch.save(
            {
                "model": model.state_dict(),
                "adam": adam.state_dict(),
                "muon": [m for _, _, m in muon.groups],
                "tokens": tokens_before + step * args.rows * LENGTH,
            },
            args.full,
        )
    if device == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2 ** 30:.1f} GiB")
    print(
        f"stopped at step {step}, {tokens_before + step * args.rows * LENGTH} tokens, {time.time() - start:.1f} s",
        flush=True,
    )
    loader.close()


if __name__ == "__main__":
    main()
