# SPDX-License-Identifier: Apache-2.0
"""Trainable PyTorch implementation of the DeepSeek-V4 architecture at toy size.

Whole sequences only (no cache): attention is computed with dense masks over
[window entries | compressed entries], so several chats can be packed into one row.
A chat must start at a multiple of 4, and at a multiple of 128 when it is 128 tokens or
longer; then every compressed entry that a token may see lies inside its own chat and
packing changes nothing against running the chat alone.

Quantisation is simulated with a straight-through gradient: fp8 (e4m3, 128x128 blocks) and
fp4 (e2m1, 32 along the input) weights, fp8 activations (blocks of 128) in front of them,
fp8 (blocks of 64) on the non-rotary part of keys/values, fp4 (blocks of 32) in the indexer.
"""

import json
import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU tests
    triton = None

BLOCK = 128  # attention window, and the fp8 block size
HIDDEN_DTYPE = torch.bfloat16


def load_config(path):
    with open(path) as f:
        return SimpleNamespace(**json.load(f))


def pow2_ceil(x):
    """Smallest power of two >= x, for positive normal float32 x."""
    return ((x.contiguous().view(torch.int32) + 0x007FFFFF) & 0x7F800000).view(torch.float32)


def round_e4m3(x):
    """Round float32 in [-448, 448] to the e4m3 grid, to nearest even."""
    exponent = (
        (x.contiguous().view(torch.int32) & 0x7F800000).view(torch.float32).clamp_min(2.0**-6)
    )
    step = exponent * 0.125
    return torch.round(x / step) * step


def round_e2m1(x):
    """Round float32 in [-6, 6] to the e2m1 grid 0 .5 1 1.5 2 3 4 6, to nearest even."""
    a = x.abs()
    step = torch.where(a < 2, 0.5, torch.where(a < 4, 1.0, 2.0)).to(x.dtype)
    return torch.round(x / step) * step


def fp8_parts(x, block):
    """-> values on the e4m3 grid [..., n, block] and power-of-two scales [..., n, 1], float32."""
    x = x.float().unflatten(-1, (-1, block))
    scale = pow2_ceil(x.abs().amax(-1, keepdim=True).clamp_min(1e-4) * (1.0 / 448.0))
    return round_e4m3((x / scale).clamp(-448.0, 448.0)), scale


def fp4_parts(x, block=32):
    x = x.float().unflatten(-1, (-1, block))
    scale = pow2_ceil(x.abs().amax(-1, keepdim=True).clamp_min(6 * 2.0**-126) * (1.0 / 6.0))
    return round_e2m1((x / scale).clamp(-6.0, 6.0)), scale


def fp8_weight_parts(w):
    """[out, in] -> e4m3 values [out/128, in/128, 128*128] and scales [out/128, in/128, 1]."""
    tiles = w.unflatten(0, (-1, BLOCK)).unflatten(-1, (-1, BLOCK)).transpose(1, 2).flatten(2)
    q, scale = fp8_parts(tiles, BLOCK * BLOCK)
    return q.squeeze(2), scale.squeeze(2)


def untile(tiles, shape):
    """Inverse of the tiling in fp8_weight_parts."""
    return tiles.unflatten(2, (BLOCK, BLOCK)).transpose(1, 2).reshape(shape)


class _Fp8(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, block):
        q, scale = fp8_parts(x, block)
        return (q * scale).flatten(-2).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        return g, None


class _Fp4(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        q, scale = fp4_parts(x)
        return (q * scale).flatten(-2).to(x.dtype)

    @staticmethod
    def backward(ctx, g):
        return g


class _Fp8Weight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, w):
        q, scale = fp8_weight_parts(w)
        return untile(q * scale, w.shape)

    @staticmethod
    def backward(ctx, g):
        return g


class Quant:
    """Which simulations are on.  Weights of an exported checkpoint are on the grid already."""

    weights = True
    activations = True


def act_fp8(x, block=BLOCK):
    return _Fp8.apply(x, block) if Quant.activations else x


def act_fp4(x):
    return _Fp4.apply(x) if Quant.activations else x


class Linear(nn.Module):
    """kind: 'fp8' (quantised input), 'fp8_weight' (input left alone) or 'bf16'."""

    def __init__(self, fan_in, fan_out, kind="fp8", gain=1.0):
        super().__init__()
        self.kind = kind
        self.weight = nn.Parameter(torch.randn(fan_out, fan_in) * (gain * fan_in**-0.5))

    def value(self):
        w = self.weight
        if self.kind != "bf16" and Quant.weights:
            w = _Fp8Weight.apply(w)
        return w.to(HIDDEN_DTYPE)

    def forward(self, x):
        return F.linear(act_fp8(x) if self.kind == "fp8" else x, self.value())

    def forward_float(self, x):
        """float32 result (for weights kept in bf16 whose product is wanted in float32)."""
        return F.linear(x.float(), self.value().float())


class RMSNorm(nn.Module):
    def __init__(self, dim, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + self.eps)
        return (self.weight * h).to(x.dtype)


def rope_table(cfg, compressed, length):
    """cos, sin [length, rope_dim / 2]; YaRN only where keys are compressed."""
    dim = cfg.qk_rope_head_dim
    base = cfg.compress_rope_theta if compressed else cfg.rope_theta
    freqs = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))
    if compressed:
        scaling = cfg.rope_scaling

        def dim_of(rotations):
            return (
                dim
                * math.log(scaling["original_max_position_embeddings"] / (rotations * 2 * math.pi))
                / (2 * math.log(base))
            )

        low = max(math.floor(dim_of(scaling["beta_fast"])), 0)
        high = min(math.ceil(dim_of(scaling["beta_slow"])), dim - 1)
        ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(
            0, 1
        )
        freqs = freqs / scaling["factor"] * ramp + freqs * (1 - ramp)
    angle = torch.outer(torch.arange(length, dtype=torch.float32), freqs)
    return angle.cos(), angle.sin()


def rotate_tail(x, cos, sin, inverse=False):
    """Rotate the last 2*cos.size(-1) features (adjacent pairs).  cos/sin broadcast from [seq, pairs]."""
    n = 2 * cos.size(-1)
    a, b = x[..., -n:].float().unflatten(-1, (-1, 2)).unbind(-1)
    if inverse:
        sin = -sin
    turned = torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)
    return torch.cat([x[..., :-n], turned.to(x.dtype)], -1)


def hadamard_matrix(n):
    h = torch.ones(1, 1)
    while h.size(0) < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
    return h


def sinkhorn_steps(logits, iters, eps):
    """[..., n, n] -> nearly doubly stochastic matrices (plain autograd version)."""
    m = torch.softmax(logits, -1) + eps
    m = m / (m.sum(-2, keepdim=True) + eps)
    for _ in range(iters - 1):
        m = m / (m.sum(-1, keepdim=True) + eps)
        m = m / (m.sum(-2, keepdim=True) + eps)
    return m


if triton is not None:

    @triton.jit
    def _sinkhorn_forward(x_ptr, y_ptr, s_ptr, n, eps, ITERS: tl.constexpr, SIZE: tl.constexpr):
        t = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
        i = tl.arange(0, 4)
        live = (t < n)[:, None, None]
        at = t[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        at_row = t[:, None, None] * (ITERS * 8) + i[None, :, None]
        at_col = t[:, None, None] * (ITERS * 8) + i[None, None, :]
        x = tl.load(x_ptr + at, mask=live, other=0.0)
        x = tl.exp(x - tl.max(x, axis=2, keep_dims=True))
        x = x / tl.sum(x, axis=2, keep_dims=True) + eps
        s = tl.sum(x, axis=1, keep_dims=True) + eps
        tl.store(s_ptr + at_col + 4, s, mask=live)
        x = x / s
        for k in range(1, ITERS):
            s = tl.sum(x, axis=2, keep_dims=True) + eps
            tl.store(s_ptr + at_row + k * 8, s, mask=live)
            x = x / s
            s = tl.sum(x, axis=1, keep_dims=True) + eps
            tl.store(s_ptr + at_col + k * 8 + 4, s, mask=live)
            x = x / s
        tl.store(y_ptr + at, x, mask=live)

    @triton.jit
    def _sinkhorn_backward(
        g_ptr, y_ptr, s_ptr, dx_ptr, n, eps, ITERS: tl.constexpr, SIZE: tl.constexpr
    ):
        t = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
        i = tl.arange(0, 4)
        live = (t < n)[:, None, None]
        at = t[:, None, None] * 16 + i[None, :, None] * 4 + i[None, None, :]
        at_row = t[:, None, None] * (ITERS * 8) + i[None, :, None]
        at_col = t[:, None, None] * (ITERS * 8) + i[None, None, :]
        g = tl.load(g_ptr + at, mask=live, other=0.0)
        y = tl.load(y_ptr + at, mask=live, other=0.0)
        for back in range(ITERS - 1):
            k = ITERS - 1 - back
            s = tl.load(s_ptr + at_col + k * 8 + 4, mask=live, other=1.0)
            g = (g - tl.sum(g * y, axis=1, keep_dims=True)) / s
            y = y * s
            s = tl.load(s_ptr + at_row + k * 8, mask=live, other=1.0)
            g = (g - tl.sum(g * y, axis=2, keep_dims=True)) / s
            y = y * s
        s = tl.load(s_ptr + at_col + 4, mask=live, other=1.0)
        g = (g - tl.sum(g * y, axis=1, keep_dims=True)) / s
        p = y * s - eps
        g = p * (g - tl.sum(g * p, axis=2, keep_dims=True))
        tl.store(dx_ptr + at, g, mask=live)

    @torch.library.custom_op("tinymodel::sinkhorn", mutates_args=())
    def _sinkhorn_op(
        logits: torch.Tensor, iters: int, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = logits.contiguous()
        n = x.numel() // 16
        y = torch.empty_like(x)
        sums = torch.empty(n, iters * 8, device=x.device, dtype=torch.float32)
        _sinkhorn_forward[(triton.cdiv(n, 64),)](x, y, sums, n, eps, ITERS=iters, SIZE=64)
        return y, sums

    @_sinkhorn_op.register_fake
    def _(logits, iters, eps):
        return (
            torch.empty_like(logits, memory_format=torch.contiguous_format),
            logits.new_empty(logits.numel() // 16, iters * 8),
        )

    @torch.library.custom_op("tinymodel::sinkhorn_grad", mutates_args=())
    def _sinkhorn_grad_op(
        g: torch.Tensor, y: torch.Tensor, sums: torch.Tensor, iters: int, eps: float
    ) -> torch.Tensor:
        g = g.contiguous()
        dx = torch.empty_like(g)
        n = g.numel() // 16
        _sinkhorn_backward[(triton.cdiv(n, 64),)](g, y, sums, dx, n, eps, ITERS=iters, SIZE=64)
        return dx

    @_sinkhorn_grad_op.register_fake
    def _(g, y, sums, iters, eps):
        return torch.empty_like(g, memory_format=torch.contiguous_format)

    def _sinkhorn_setup(ctx, inputs, output):
        ctx.save_for_backward(*output)
        ctx.iters, ctx.eps = inputs[1], inputs[2]

    def _sinkhorn_vjp(ctx, g, _):
        y, sums = ctx.saved_tensors
        return _sinkhorn_grad_op(g, y, sums, ctx.iters, ctx.eps), None, None

    _sinkhorn_op.register_autograd(_sinkhorn_vjp, setup_context=_sinkhorn_setup)


def sinkhorn(logits, iters, eps):
    if triton is not None and logits.is_cuda and logits.size(-1) == 4:
        return _sinkhorn_op(logits, iters, eps)[0]
    return sinkhorn_steps(logits, iters, eps)


class HyperConnection(nn.Module):
    """The mix in front of and behind one sublayer.  Streams [b, s, hc, d]."""

    def __init__(self, cfg, index):
        super().__init__()
        n = cfg.hc_mult
        self.n, self.iters, self.eps, self.norm_eps = (
            n,
            cfg.hc_sinkhorn_iters,
            cfg.hc_eps,
            cfg.rms_norm_eps,
        )
        self.fn = nn.Parameter(torch.randn((2 + n) * n, n * cfg.hidden_size) * 0.02)
        pre = torch.full((n,), -1.0)
        pre[index % n] = 1.0
        self.base = nn.Parameter(torch.cat([pre, torch.zeros(n), 3.0 * torch.eye(n).flatten()]))
        self.scale = nn.Parameter(torch.full((3,), 0.1))

    def split(self, x):
        """-> sublayer input [b, s, d], post weights [b, s, hc], mixing matrices [b, s, hc, hc]"""
        n = self.n
        flat = x.flatten(2).float()
        mixes = F.linear(flat, self.fn) * torch.rsqrt(
            flat.square().mean(-1, keepdim=True) + self.norm_eps
        )
        pre = torch.sigmoid(mixes[..., :n] * self.scale[0] + self.base[:n]) + self.eps
        post = 2 * torch.sigmoid(mixes[..., n : 2 * n] * self.scale[1] + self.base[n : 2 * n])
        comb = (mixes[..., 2 * n :] * self.scale[2] + self.base[2 * n :]).unflatten(-1, (n, n))
        comb = sinkhorn(comb, self.iters, self.eps)
        return (pre.unsqueeze(-1) * x.float()).sum(2).to(x.dtype), post, comb

    @staticmethod
    def merge(y, x, post, comb):
        """out[j] = post[j] * y + sum_i comb[i, j] * x[i]"""
        mixed = (comb.unsqueeze(-1) * x.float().unsqueeze(-2)).sum(2)
        return (post.unsqueeze(-1) * y.float().unsqueeze(-2) + mixed).to(x.dtype)


class HeadConnection(nn.Module):
    """Folds the streams into one in front of the output head."""

    def __init__(self, cfg):
        super().__init__()
        n = cfg.hc_mult
        self.eps, self.norm_eps = cfg.hc_eps, cfg.rms_norm_eps
        self.fn = nn.Parameter(torch.randn(n, n * cfg.hidden_size) * 0.02)
        self.base = nn.Parameter(torch.zeros(n))
        self.scale = nn.Parameter(torch.full((1,), 0.1))

    def forward(self, x):
        flat = x.flatten(2).float()
        mixes = F.linear(flat, self.fn) * torch.rsqrt(
            flat.square().mean(-1, keepdim=True) + self.norm_eps
        )
        pre = torch.sigmoid(mixes * self.scale + self.base) + self.eps
        return (pre.unsqueeze(-1) * x.float()).sum(2).to(x.dtype)


def build_masks(doc, ratios):
    """doc [b, s]: number of the chat that each token belongs to; s a multiple of 128."""
    b, s = doc.shape
    nb = s // BLOCK
    dev = doc.device
    q = torch.arange(s, device=dev).view(nb, BLOCK, 1)
    k = (torch.arange(nb, device=dev) * BLOCK - BLOCK).view(nb, 1, 1) + torch.arange(
        2 * BLOCK, device=dev
    )
    near = (q - k >= 0) & (q - k < BLOCK) & (k >= 0)
    blocks = doc.view(b, nb, BLOCK)
    before = torch.cat([torch.full_like(blocks[:, :1], -1), blocks[:, :-1]], 1)
    around = torch.cat([before, blocks], 2)
    masks = {"window": near & (blocks.unsqueeze(-1) == around.unsqueeze(2))}
    position = torch.arange(s, device=dev)
    for ratio in sorted(set(ratios) - {0}):
        first = doc[:, ::ratio]  # chat of each compressed block's first token
        complete = (torch.arange(s // ratio, device=dev) + 1) * ratio - 1 <= position.unsqueeze(1)
        masks[ratio] = complete & (first.unsqueeze(1) == doc.unsqueeze(2))
        starts = torch.ones_like(first, dtype=torch.bool)
        starts[:, 1:] = first[:, 1:] != first[:, :-1]
        masks[f"starts{ratio}"] = starts
    return masks


class Compressor(nn.Module):
    """Pools `ratio` tokens into one entry, feature-wise by a softmax over the pooled tokens.  With
    ratio 4 an entry also pools the previous block, through the first half of the features."""

    def __init__(self, cfg, ratio, dim, rotate):
        super().__init__()
        self.ratio, self.dim, self.rotate = ratio, dim, rotate
        self.overlap = ratio == 4
        width = dim * (2 if self.overlap else 1)
        self.ape = nn.Parameter(torch.randn(ratio, width) * 0.02)
        self.wkv = Linear(cfg.hidden_size, width, "bf16")
        self.wgate = Linear(cfg.hidden_size, width, "bf16")
        self.norm = RMSNorm(dim, cfg.rms_norm_eps)
        if rotate:
            self.register_buffer("hadamard", hadamard_matrix(dim), persistent=False)

    def forward(self, x, cos, sin, starts):
        d = self.dim
        kv = self.wkv.forward_float(x).unflatten(1, (-1, self.ratio))
        score = self.wgate.forward_float(x).unflatten(1, (-1, self.ratio)) + self.ape
        if self.overlap:

            def join(t, fill):
                previous = torch.cat([torch.zeros_like(t[:, :1, :, :d]), t[:, :-1, :, :d]], 1)
                previous = previous.masked_fill(starts[:, :, None, None], fill)
                return torch.cat([previous, t[..., d:]], 2)

            kv, score = join(kv, 0.0), join(score, float("-inf"))
        entry = (kv * torch.softmax(score, 2)).sum(2)
        entry = self.norm(entry.to(HIDDEN_DTYPE))
        entry = rotate_tail(entry, cos[:: self.ratio], sin[:: self.ratio])
        if self.rotate:
            return act_fp4(rotate_hadamard(entry, self.hadamard))
        return quantise_nope(entry, 2 * cos.size(-1))


def rotate_hadamard(x, matrix):
    return ((x.float() @ matrix) * matrix.size(0) ** -0.5).to(x.dtype)


def quantise_nope(kv, rope_dim):
    """fp8 round trip of all but the rotary features, in blocks of 64."""
    return torch.cat([act_fp8(kv[..., :-rope_dim], 64), kv[..., -rope_dim:]], -1)


class Indexer(nn.Module):
    """Scores the compressed entries; the top-k of them are attended to."""

    def __init__(self, cfg, ratio):
        super().__init__()
        self.heads, self.dim = cfg.index_n_heads, cfg.index_head_dim
        self.wq_b = Linear(cfg.q_lora_rank, self.heads * self.dim)
        self.weights_proj = Linear(cfg.hidden_size, self.heads, "bf16")
        self.compressor = Compressor(cfg, ratio, self.dim, rotate=True)

    def forward(self, x, qr, cos, sin, starts):
        b, s, _ = x.shape
        q = self.wq_b(qr).unflatten(-1, (self.heads, self.dim))
        q = rotate_tail(q, cos.unsqueeze(1), sin.unsqueeze(1))
        q = act_fp4(rotate_hadamard(q, self.compressor.hadamard))
        k = self.compressor(x, cos, sin, starts)
        weights = self.weights_proj(x).float() * (self.dim**-0.5 * self.heads**-0.5)
        dots = torch.bmm(q.flatten(1, 2), k.transpose(1, 2)).unflatten(1, (s, self.heads))
        return (F.relu(dots).float() * weights.unsqueeze(-1)).sum(2)


class Attention(nn.Module):
    def __init__(self, cfg, ratio):
        super().__init__()
        self.ratio = ratio
        self.heads, self.dim, self.rope = (
            cfg.num_attention_heads,
            cfg.head_dim,
            cfg.qk_rope_head_dim,
        )
        self.groups, self.topk, self.eps = cfg.o_groups, cfg.index_topk, cfg.rms_norm_eps
        self.attn_sink = nn.Parameter(torch.zeros(self.heads))
        self.wq_a = Linear(cfg.hidden_size, cfg.q_lora_rank)
        self.q_norm = RMSNorm(cfg.q_lora_rank, self.eps)
        self.wq_b = Linear(cfg.q_lora_rank, self.heads * self.dim)
        self.wkv = Linear(cfg.hidden_size, self.dim)
        self.kv_norm = RMSNorm(self.dim, self.eps)
        self.wo_a = Linear(
            self.heads * self.dim // self.groups, self.groups * cfg.o_lora_rank, "fp8_weight"
        )
        self.wo_b = Linear(self.groups * cfg.o_lora_rank, cfg.hidden_size, gain=0.3)
        if ratio:
            self.compressor = Compressor(cfg, ratio, self.dim, rotate=False)
        if ratio == 4:
            self.indexer = Indexer(cfg, ratio)

    def forward(self, x, cos, sin, masks, sparse, weight):
        """sparse: 0-dim bool tensor, whether the indexer's choice is applied; weight [b, s]: how much
        each token counts in the indexer's loss.  -> output, indexer loss"""
        b, s, _ = x.shape
        nb, h, d, w = s // BLOCK, self.heads, self.dim, 2 * BLOCK
        qr = self.q_norm(self.wq_a(x))
        q = self.wq_b(qr).unflatten(-1, (h, d)).float()
        q = (q * torch.rsqrt(q.square().mean(-1, keepdim=True) + self.eps)).to(x.dtype)
        q = rotate_tail(q, cos.unsqueeze(1), sin.unsqueeze(1))
        kv = quantise_nope(rotate_tail(self.kv_norm(self.wkv(x)), cos, sin), self.rope)

        blocks = kv.view(b, nb, BLOCK, d)
        before = torch.cat([torch.zeros_like(blocks[:, :1]), blocks[:, :-1]], 1)
        around = torch.cat([before, blocks], 2).view(b * nb, w, d)
        logits = torch.bmm(q.view(b * nb, BLOCK * h, d), around.transpose(1, 2)).view(b, s, h, w)
        mask = masks["window"].view(b, s, 1, w)
        loss = x.new_zeros((), dtype=torch.float32)
        if self.ratio:
            entries = self.compressor(x, cos, sin, masks[f"starts{self.ratio}"])
            far = torch.bmm(q.view(b, s * h, d), entries.transpose(1, 2)).view(b, s, h, -1)
            visible = masks[self.ratio]
            chosen = visible
            if self.ratio == 4:
                index = self.indexer(
                    x.detach(), qr.detach(), cos, sin, masks["starts4"]
                ).masked_fill(~visible, float("-inf"))
                top = index.detach().topk(min(self.topk, index.size(-1)), -1).indices
                picked = torch.zeros_like(visible).scatter(-1, top, True)
                chosen = visible & (picked | ~sparse)
                if self.training:
                    loss = self.indexer_loss(far, index, visible, logits, mask, weight)
            logits = torch.cat([logits, far], -1)
            mask = torch.cat([mask, chosen.unsqueeze(2)], -1)
        logits = (logits.float() * d**-0.5).masked_fill(~mask, float("-inf"))
        sink = self.attn_sink.view(1, 1, h, 1)
        peak = torch.maximum(logits.amax(-1, keepdim=True), sink).detach()
        e = torch.exp(logits - peak)
        p = (e / (e.sum(-1, keepdim=True) + torch.exp(sink - peak))).to(x.dtype)
        o = torch.bmm(p[..., :w].reshape(b * nb, BLOCK * h, w), around).view(b, s, h, d)
        if self.ratio:
            o = o + torch.bmm(p[..., w:].reshape(b, s * h, -1), entries).view(b, s, h, d)
        o = rotate_tail(o, cos.unsqueeze(1), sin.unsqueeze(1), inverse=True)

        o = o.reshape(b, s, self.groups, -1)
        wo_a = self.wo_a.value().unflatten(0, (self.groups, -1))
        o = torch.einsum("bsgd,grd->bsgr", o, wo_a)
        return self.wo_b(o.flatten(2)), loss

    def indexer_loss(self, far, index, visible, near, near_mask, weight):
        """KL from the attention mass over all visible entries (all heads together) to the softmax of
        the indexer's scores, weighted by how much mass lies on the entries."""
        with torch.no_grad():
            scale = self.dim**-0.5
            f = (far.float() * scale).masked_fill(~visible.unsqueeze(2), float("-inf"))
            n = (near.float() * scale).masked_fill(~near_mask, float("-inf"))
            sink = self.attn_sink.view(1, 1, -1, 1)
            peak = torch.maximum(
                torch.maximum(f.amax(-1, keepdim=True), n.amax(-1, keepdim=True)), sink
            )
            f = torch.exp(f - peak)
            mass = (
                f
                / (
                    f.sum(-1, keepdim=True)
                    + torch.exp(n - peak).sum(-1, keepdim=True)
                    + torch.exp(sink - peak)
                )
            ).mean(2)
            total = mass.sum(-1, keepdim=True)
            target = mass / total.clamp_min(1e-9)
            weight = weight * (0.05 + total.squeeze(-1)) * visible.any(-1)
        logp = torch.log_softmax(index.masked_fill(~visible.any(-1, keepdim=True), 0.0), -1)
        kl = (target * (torch.log(target.clamp_min(1e-9)) - logp.masked_fill(~visible, 0.0))).sum(
            -1
        )
        return (kl * weight).sum() / weight.sum().clamp_min(1e-6)


class Gate(nn.Module):
    def __init__(self, cfg, hashed):
        super().__init__()
        self.hashed, self.topk, self.scale = (
            hashed,
            cfg.num_experts_per_tok,
            cfg.routed_scaling_factor,
        )
        self.experts = cfg.n_routed_experts
        self.weight = nn.Parameter(
            torch.randn(cfg.n_routed_experts, cfg.hidden_size) * cfg.hidden_size**-0.5
        )
        if hashed:
            table = torch.stack(
                [torch.randperm(self.experts)[: self.topk] for _ in range(cfg.vocab_size)]
            )
            self.register_buffer("tid2eid", table)
        else:
            self.register_buffer("bias", torch.zeros(self.experts))

    def forward(self, x, tokens):
        """-> dense routing weights [n, experts], zero for experts that are not chosen"""
        scores = torch.sqrt(F.softplus(F.linear(x.float(), self.weight.to(HIDDEN_DTYPE).float())))
        if self.hashed:
            chosen = self.tid2eid[tokens]
        else:
            chosen = (scores.detach() + self.bias).topk(self.topk, -1).indices
        picked = torch.zeros_like(scores).scatter(-1, chosen, 1.0)
        kept = scores * picked
        return kept / kept.sum(-1, keepdim=True) * self.scale, picked


class MoE(nn.Module):
    """All experts at once: every expert sees every token, and weight 0 removes what was not routed."""

    def __init__(self, cfg, hashed):
        super().__init__()
        e, d, m = cfg.n_routed_experts, cfg.hidden_size, cfg.moe_intermediate_size
        self.inter, self.limit = m, cfg.swiglu_limit
        self.gate = Gate(cfg, hashed)
        self.w1 = nn.Parameter(torch.randn(e, m, d) * d**-0.5)
        self.w3 = nn.Parameter(torch.randn(e, m, d) * d**-0.5)
        self.w2 = nn.Parameter(torch.randn(e, d, m) * (0.3 * m**-0.5))
        self.shared_w1, self.shared_w3 = Linear(d, m), Linear(d, m)
        self.shared_w2 = Linear(m, d, gain=0.3)

    @staticmethod
    def expert_value(w):
        return (_Fp4.apply(w) if Quant.weights else w).to(HIDDEN_DTYPE)

    def swiglu(self, gate, up):
        return F.silu(gate.float().clamp(max=self.limit)) * up.float().clamp(
            -self.limit, self.limit
        )

    def forward(self, x, tokens):
        shape = x.shape
        x = x.flatten(0, 1)
        weights, picked = self.gate(x, tokens.flatten())
        xq = act_fp8(x)
        gate = F.linear(xq, self.expert_value(self.w1).flatten(0, 1))
        up = F.linear(xq, self.expert_value(self.w3).flatten(0, 1))
        inner = self.swiglu(gate, up).unflatten(-1, (-1, self.inter)) * weights.unsqueeze(-1)
        inner = act_fp8(inner.to(x.dtype)).flatten(1)
        y = F.linear(inner, self.expert_value(self.w2).transpose(0, 1).flatten(1))
        own = self.swiglu(self.shared_w1(x), self.shared_w3(x)).to(x.dtype)
        return (y + self.shared_w2(own)).view(shape), picked.sum(0)


class Block(nn.Module):
    def __init__(self, cfg, layer):
        super().__init__()
        self.attn = Attention(cfg, cfg.compress_ratios[layer])
        self.ffn = MoE(cfg, layer < cfg.num_hash_layers)
        self.attn_norm = RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
        self.ffn_norm = RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
        self.hc_attn = HyperConnection(cfg, 2 * layer)
        self.hc_ffn = HyperConnection(cfg, 2 * layer + 1)

    def forward(self, x, tokens, cos, sin, masks, sparse, weight):
        y, post, comb = self.hc_attn.split(x)
        y, loss = self.attn(self.attn_norm(y), cos, sin, masks, sparse, weight)
        x = self.hc_attn.merge(y, x, post, comb)
        y, post, comb = self.hc_ffn.split(x)
        y, load = self.ffn(self.ffn_norm(y), tokens)
        return self.hc_ffn.merge(y, x, post, comb), loss, load


class MtpBlock(nn.Module):
    """Predicts the token after the next from the main model's streams and the next token."""

    def __init__(self, cfg, layer):
        super().__init__()
        d = cfg.hidden_size
        self.block = Block(cfg, layer)
        self.e_proj, self.h_proj = Linear(d, d), Linear(d, d)
        self.enorm, self.hnorm, self.norm = (RMSNorm(d, cfg.rms_norm_eps) for _ in range(3))
        self.hc_head = HeadConnection(cfg)

    def forward(self, run_block, x, embedded, *rest):
        x = self.e_proj(self.enorm(embedded)).unsqueeze(2) + self.h_proj(self.hnorm(x))
        x, _, load = run_block(self.block, x, *rest)
        return self.norm(self.hc_head(x)), load


class Model(nn.Module):
    def __init__(self, cfg, max_length=2048):
        super().__init__()
        self.cfg = cfg
        self.embed = nn.Parameter(torch.randn(cfg.vocab_size, cfg.hidden_size) * 0.5)
        self.head = nn.Parameter(torch.randn(cfg.vocab_size, cfg.hidden_size) * 0.02)
        self.layers = nn.ModuleList(Block(cfg, i) for i in range(cfg.num_hidden_layers))
        self.norm = RMSNorm(cfg.hidden_size, cfg.rms_norm_eps)
        self.hc_head = HeadConnection(cfg)
        self.mtp = nn.ModuleList([MtpBlock(cfg, cfg.num_hidden_layers)])
        self.run_block = Block.__call__  # train.py puts a compiled version here
        for name, compressed in (("window", False), ("compressed", True)):
            cos, sin = rope_table(cfg, compressed, max_length)
            self.register_buffer(f"cos_{name}", cos, persistent=False)
            self.register_buffer(f"sin_{name}", sin, persistent=False)

    def tables(self, ratio, length):
        name = "compressed" if ratio else "window"
        return getattr(self, f"cos_{name}")[:length], getattr(self, f"sin_{name}")[:length]

    def logits(self, hidden):
        return F.linear(hidden.float(), self.head.to(HIDDEN_DTYPE).float())

    def embedding(self, tokens):
        return F.embedding(tokens, self.embed.to(HIDDEN_DTYPE))

    def forward(self, tokens, doc, sparse, weight=None, mtp=True):
        """-> normalised hidden states of the main model and of the MTP block (for `logits`), the
        indexer loss and the expert loads of every block"""
        length = tokens.size(1)
        masks = build_masks(doc, self.cfg.compress_ratios)
        x = self.embedding(tokens).unsqueeze(2).repeat(1, 1, self.cfg.hc_mult, 1)
        index_loss, loads = 0.0, []
        for block in self.layers:
            cos, sin = self.tables(block.attn.ratio, length)
            x, loss, load = self.run_block(block, x, tokens, cos, sin, masks, sparse, weight)
            index_loss = index_loss + loss
            loads.append(load)
        main = self.norm(self.hc_head(x))
        if not mtp:
            return main, None, index_loss, loads
        following = torch.cat([tokens[:, 1:], torch.zeros_like(tokens[:, :1])], 1)
        cos, sin = self.tables(0, length)
        draft, load = self.mtp[0](
            self.run_block, x, self.embedding(following), following, cos, sin, masks, sparse, weight
        )
        return main, draft, index_loss, loads + [load]
