# SPDX-License-Identifier: Apache-2.0
"""Scores the exported checkpoint: loads and dequantises it, decodes greedily with the simulated
activation quantisation, and checks the answers of the gates."""

import argparse
import json
import os
import time
from collections import defaultdict

import torch

from chat import (
    EOS,
    FIRST_SPECIALS,
    PAD,
    THINK_END,
    assistant_text,
    call_arguments,
    parse_tool_calls,
    prompt_text,
)
from data import gates
from export import load_checkpoint
from model import Quant

PAD_ID, EOS_ID = FIRST_SPECIALS.index(PAD), FIRST_SPECIALS.index(EOS)
TOKENS_PER_BATCH = 1 << 16


def hidden_states(model, sequences, mtp=False):
    """Runs whole sequences, padded on the right -> main and draft states [n, length, d]"""
    device = model.embed.device
    length = max(map(len, sequences))
    length = (length + 127) // 128 * 128
    tokens = torch.full((len(sequences), length), PAD_ID, dtype=torch.long)
    for i, s in enumerate(sequences):
        tokens[i, : len(s)] = torch.tensor(s)
    tokens = tokens.to(device)
    sparse = torch.tensor(True, device=device)
    main, draft, _, _ = model(tokens, torch.zeros_like(tokens), sparse, mtp=mtp)
    return main, draft


def batches(sequences):
    """Indices grouped by similar length, each group within the token budget."""
    order = sorted(range(len(sequences)), key=lambda i: len(sequences[i]))
    group = []
    for i in order:
        longest = (len(sequences[i]) + 127) // 128 * 128
        if group and longest * (len(group) + 1) > TOKENS_PER_BATCH:
            yield group
            group = []
        group.append(i)
    if group:
        yield group


@torch.no_grad()
def generate(model, prompts, limit=160, max_length=2048):
    """Greedy decoding of lists of token ids; the whole sequence is run again for every token."""
    answers = [[] for _ in prompts]
    live = list(range(len(prompts)))
    for _ in range(limit):
        if not live:
            break
        sequences = [prompts[i] + answers[i] for i in live]
        for group in batches(sequences):
            main, _ = hidden_states(model, [sequences[j] for j in group])
            at = torch.tensor([len(sequences[j]) - 1 for j in group], device=main.device)
            logits = model.logits(main[torch.arange(len(group), device=main.device), at])
            for j, token in zip(group, logits.argmax(-1).tolist()):
                answers[live[j]].append(token)
        live = [
            i
            for i in live
            if answers[i][-1] != EOS_ID and len(prompts[i]) + len(answers[i]) < max_length
        ]
    return answers


@torch.no_grad()
def draft_acceptance(model, prompts, answers):
    """How often the MTP block's first draft is the main model's own next token: accepted, total."""
    sequences = [p + a for p, a in zip(prompts, answers)]
    accepted = [(0, 0)] * len(sequences)
    for group in batches(sequences):
        _, draft = hidden_states(model, [sequences[i] for i in group], mtp=True)
        for row, i in enumerate(group):
            first, n = len(prompts[i]) - 1, len(sequences[i])
            guess = (
                model.logits(draft[row, first : n - 2]).argmax(-1).tolist() if n - 2 > first else []
            )
            accepted[i] = (
                sum(g == t for g, t in zip(guess, sequences[i][first + 2 :])),
                len(guess),
            )
    return accepted


def passes(chat, text):
    """Is the decoded answer (with EOS) right?"""
    expected = chat.messages[-1]
    if not text.endswith(EOS):
        return False
    text = text[: -len(EOS)]
    if chat.thinking:
        if text.count(THINK_END) != 1:
            return False
        text = text.split(THINK_END)[1]
    try:
        if chat.check == "tool":
            return parse_tool_calls(text) == [call_arguments(c) for c in expected["tool_calls"]]
        if chat.check == "json":
            return json.loads(text) == json.loads(expected["content"])
    except ValueError:
        return False
    return text == expected["content"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="checkpoint directory")
    parser.add_argument(
        "--scale", type=int, default=1, help="multiple of the about 170 gate prompts"
    )
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--gates-out", help="write gates.json here")
    parser.add_argument("--show", type=int, default=2, help="samples to print per kind")
    args = parser.parse_args()
    from tokenizers import Tokenizer

    start = time.time()
    tokenizer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
    Quant.weights = False  # the exported weights lie on the grid
    torch.set_float32_matmul_precision("highest")
    model = load_checkpoint(args.model).eval()
    if torch.cuda.is_available():
        model = model.cuda()
    chats = gates(args.seed, args.scale)
    prompts = [
        tokenizer.encode(prompt_text(c.messages[:-1], c.thinking), add_special_tokens=False).ids
        for c in chats
    ]
    keep = [i for i, p in enumerate(prompts) if len(p) <= 1900]
    chats, prompts = [chats[i] for i in keep], [prompts[i] for i in keep]
    for chat, prompt in zip(chats, prompts):
        if chat.kind in ("recall_400", "recall_1000", "recall_1900"):
            chat.kind = "recall_" + str(next(n for n in (400, 1000, 1900) if len(prompt) <= n))
    answers = generate(model, prompts)
    accepted = draft_acceptance(model, prompts, answers)
    texts = [tokenizer.decode(a, skip_special_tokens=False) for a in answers]
    good = [passes(c, t) for c, t in zip(chats, texts)]
    table = defaultdict(lambda: [0, 0, 0, 0, 0])
    for chat, prompt, ok, (hit, tried) in zip(chats, prompts, good, accepted):
        for kind in (chat.kind, "all"):
            row = table[kind]
            for i, v in enumerate((1, ok, hit, tried, len(prompt))):
                row[i] += v
    summary = {}
    for kind, (n, ok, hit, tried, length) in table.items():
        summary[kind] = {
            "prompts": n,
            "pass_rate": round(ok / n, 4),
            "mtp_acceptance": round(hit / max(1, tried), 4),
            "mean_prompt_tokens": round(length / n),
        }
        print(
            f"{kind:20s} {ok:5d} / {n:<5d} {ok / n:7.1%}   MTP {hit / max(1, tried):6.1%}   prompt tokens {length / n:.0f}"
        )
    shown = defaultdict(int)
    for chat, prompt, ok, text in zip(chats, prompts, good, texts):
        key = (chat.kind, ok)
        if shown[key] < (args.show if ok else 3):
            shown[key] += 1
            ask = chat.messages[-2]["content"][-100:]
            print(
                f"[{chat.kind} {'ok' if ok else 'WRONG'} {len(prompt)}] {ask!r} -> {text!r}"
                + ("" if ok else f"  expected {assistant_text(chat.messages[-1], chat.thinking)!r}")
            )
    if args.gates_out:
        cases = []
        for i, (chat, prompt, ok, text) in enumerate(zip(chats, prompts, good, texts)):
            expected = chat.messages[-1]
            case = {
                "id": f"{chat.kind}-{i}",
                "kind": chat.kind,
                "thinking": chat.thinking,
                "messages": chat.messages[:-1],
                "check": chat.check,
                "expected": expected["content"],
                "prompt_tokens": len(prompt),
                "greedy_output": text,
                "greedy_tokens": answers[i],
                "passed": ok,
            }
            if chat.check == "tool":
                case["expected"] = [
                    {"name": n, "arguments": a}
                    for n, a in map(call_arguments, expected["tool_calls"])
                ]
            cases.append(case)
        with open(args.gates_out, "w", encoding="utf-8") as f:
            json.dump(
                {
                    "about": "Greedy decoding of dsv4-tiny. check: exact = assistant content equals expected; json = parsed "
                    "value equals the parsed expected text; tool = parsed DSML calls equal expected. greedy_output "
                    "is the raw text after the prompt, with EOS; prompts follow the DeepSeek-V4 chat format.",
                    "pass_rate": summary,
                    "cases": cases,
                },
                f,
                ensure_ascii=False,
                indent=1,
            )
    print(f"evaluated {len(chats)} prompts in {time.time() - start:.1f} s")


if __name__ == "__main__":
    main()
