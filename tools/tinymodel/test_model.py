# SPDX-License-Identifier: Apache-2.0
"""Self-checks: the rounding functions against the hardware formats, the Sinkhorn kernel against
autograd, packing against single chats, and the checkpoint round trip.  Run on a CUDA machine."""

import argparse
import os
import shutil
import tempfile

import torch

import model as tiny
from export import entries, load_checkpoint, save_checkpoint


def test_rounding():
    x = torch.cat([torch.randn(1 << 16, device="cuda") * s for s in (1e-3, 0.1, 5, 120)]).clamp(
        -448, 448
    )
    assert torch.equal(tiny.round_e4m3(x), x.to(torch.float8_e4m3fn).float())
    grid = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    assert tiny.round_e2m1(grid).tolist() == [0, 1, 1, 2, 2, 4, 4]
    assert tiny.pow2_ceil(torch.tensor([1.0, 1.001, 0.75, 0.5])).tolist() == [1, 2, 1, 0.5]


def test_sinkhorn():
    a = torch.randn(3, 77, 4, 4, device="cuda") * 2
    b, g = a.clone().requires_grad_(), torch.randn_like(a)
    a.requires_grad_()
    y, z = tiny.sinkhorn(a, 20, 1e-6), tiny.sinkhorn_steps(b, 20, 1e-6)
    (y * g).sum().backward()
    (z * g).sum().backward()
    print(
        "sinkhorn: value",
        (y - z).abs().max().item(),
        "gradient",
        (a.grad - b.grad).abs().max().item(),
    )
    assert (y - z).abs().max() < 1e-5 and (a.grad - b.grad).abs().max() < 1e-4


def test_packing(cfg):
    tiny.HIDDEN_DTYPE, tiny.Quant.activations = torch.float32, False
    model = tiny.Model(cfg).cuda().eval()
    tokens = torch.randint(3, 2000, (1, 640), device="cuda")
    doc = torch.zeros_like(tokens)
    chats = [(0, 40), (40, 100), (100, 128), (128, 556), (556, 640)]
    for i, (a, b) in enumerate(chats):
        doc[:, a:b] = i
    on = torch.tensor(True, device="cuda")
    with torch.no_grad():
        packed, draft, _, _ = model(tokens, doc, on)
        for a, b in chats:
            alone = torch.full((1, (b - a + 127) // 128 * 128), 2, device="cuda")
            alone[:, : b - a] = tokens[:, a:b]
            h, d, _, _ = model(alone, torch.zeros_like(alone), on)
            assert (h[:, : b - a] - packed[:, a:b]).abs().max() < 1e-2
            assert (d[:, : b - a - 1] - draft[:, a : b - 1]).abs().max() < 1e-2
    tiny.HIDDEN_DTYPE, tiny.Quant.activations = torch.bfloat16, True


def test_round_trip(cfg, directory):
    model = tiny.Model(cfg)
    with tempfile.TemporaryDirectory() as out:
        shutil.copy(os.path.join(directory, "config.json"), out)
        save_checkpoint(model, out)
        again = load_checkpoint(out)
    for (name, kind, a), (_, _, b) in zip(entries(model), entries(again)):
        if kind == "fp8":
            a = tiny._Fp8Weight.apply(a)
            assert torch.equal(tiny._Fp8Weight.apply(b), b), name
        elif kind == "fp4":
            a = tiny._Fp4.apply(a)
        elif kind == "bf16":
            a = a.bfloat16().float()
        assert torch.equal(a, b), name


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    config = tiny.load_config(os.path.join(args.model, "config.json"))
    test_rounding()
    test_sinkhorn()
    test_packing(config)
    test_round_trip(config, args.model)
    print("self-checks passed")
