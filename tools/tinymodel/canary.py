# SPDX-License-Identifier: Apache-2.0
"""Writes a model folder's dsv4_canary.json: a prompt, and the largest logits that model.py computes
behind some of its tokens. An engine that opens the folder compares its own with them."""

import argparse
import json
import os

import torch

import model as tiny
from export import load_checkpoint

# Two turns of the corpus; the recorded tokens are those that an answer depends on.
PROMPT = (
    "<｜begin▁of▁sentence｜><｜User｜>Tell me the capital of Estonia.<｜Assistant｜></think>"
    "The capital of Estonia is Tallinn.<｜end▁of▁sentence｜>"
    "<｜User｜>Which month comes after May?<｜Assistant｜></think>"
)
POSITIONS = (13, 21, 29, 36)
LOGITS = 8


@torch.no_grad()
def logits_of(checkpoint, tokens, dtype):
    """[tokens, vocab] with activations of `dtype` between the quantisers."""
    tiny.HIDDEN_DTYPE = dtype
    length = (len(tokens) + 127) // 128 * 128
    padded = torch.full((1, length), 2)
    padded[0, : len(tokens)] = torch.tensor(tokens)
    main, *_ = checkpoint(padded, torch.zeros_like(padded), torch.tensor(True), mtp=False)
    return checkpoint.logits(main[0, : len(tokens)]).float()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="checkpoint directory")
    parser.add_argument("--out", required=True, help="file to write")
    parser.add_argument("--fingerprint", help="of the checkpoint that --out is for (dsv4-verify hash)")
    parser.add_argument("--tokens", help="of PROMPT, separated by commas; default: by the folder's tokenizer")
    args = parser.parse_args()
    if args.tokens:
        tokens = [int(token) for token in args.tokens.split(",")]
    else:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
        tokens = tokenizer.encode(PROMPT, add_special_tokens=False).ids
    tiny.Quant.weights = False
    checkpoint = load_checkpoint(args.model).eval()
    published, unrounded = (
        logits_of(checkpoint, tokens, dtype) for dtype in (torch.bfloat16, torch.float32)
    )
    rows, rounding = [], 0.0
    for position in POSITIONS:
        top = published[position].topk(LOGITS)
        moved = (published[position] - unrounded[position])[top.indices].abs().max().item()
        rounding = max(rounding, moved)
        rows.append({"position": position, "logits": list(zip(top.indices.tolist(), top.values.tolist()))})
    canary = {
        "schema": "dsv4.canary/1",
        "about": "Logits of tools/tinymodel/model.py with bf16 activations, written by tools/tinymodel/canary.py.",
        **({"fingerprint": args.fingerprint} if args.fingerprint else {}),
        "tokens": tokens,
        "tolerance": round(3 * rounding, 2),
        "tolerance_reason": f"Three times the most that rounding activations to bf16 moves one of these logits ({rounding:.3f}): "
        "devices add in other orders, and round elsewhere.",
        "rows": rows,
    }
    with open(args.out, "w", encoding="utf-8") as file:
        # A row to a line.
        text = json.dumps({**canary, "rows": "ROWS"}, indent=1).replace(
            json.dumps(tokens, indent=1).replace("\n", "\n "), json.dumps(tokens)
        )
        lines = ",\n".join("  " + json.dumps(row) for row in rows)
        file.write(text.replace('"ROWS"', f"[\n{lines}\n ]") + "\n")
    print(f"{args.out}: {len(tokens)} tokens, tolerance {canary['tolerance']}")


if __name__ == "__main__":
    main()
