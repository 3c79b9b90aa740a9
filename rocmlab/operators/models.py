"""What language models are made of: embedding, rotary embedding, cache, attention by every path, softmax, losses."""

from __future__ import annotations

import functools
import math
from typing import Any

from rocmlab.operators.check import SINGLE, SIXTEEN, Check, boolean, integers, normal, outliers, positive, whole

PATHS = {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION"}


def _language() -> list[Check]:
    make = functools.partial(Check, family="language model")
    heads = normal(1, 16, 64, 128)
    return [
        make("embedding", run=lambda t, i, w: t.nn.functional.embedding(i, w),
            inputs=(whole(256, high=16000), normal(16000, 128)), steps=2),
        make("embedding_backward", run=_embedding_backward,
            inputs=(whole(2048, high=512), normal(512, 128), normal(2048, 128)), steps=8, terms=16),
        make("embedding_bag", run=lambda t, i, w: t.nn.functional.embedding_bag(i, w, mode="sum"),
            inputs=(whole(64, 16, high=1000), normal(1000, 64)), terms=16, steps=4),
        make("rope", run=_rope, inputs=(heads, normal(64, 64)), grad=True, steps=4),
        make("kv_cache_index_copy", run=lambda t, c, i, x: c.index_copy(2, i, x),
            inputs=(normal(1, 8, 512, 128), _positions(7), normal(1, 8, 7, 128))),
        make("kv_cache_slice", run=_slice_assign, inputs=(normal(1, 8, 512, 128), normal(1, 8, 1, 128))),
        make("kv_cache_cat", run=lambda t, c, x: t.cat([c, x], dim=2),
            inputs=(normal(1, 8, 512, 128), normal(1, 8, 1, 128))),
        make("repeat_kv", run=lambda t, x: x[:, :, None].expand(1, 8, 4, 128, 64).reshape(1, 32, 128, 64),
            inputs=(normal(1, 8, 128, 64),)),
        make("swiglu", run=lambda t, g, u: t.nn.functional.silu(g) * u, inputs=(normal(64, 3072), normal(64, 3072)),
            grad=True, steps=4),
        make("softmax", run=lambda t, x: t.softmax(x, -1), inputs=(normal(256, 1024),), terms=1024, grad=True,
            by_row=True, steps=2, grow=16, more={"outliers": (outliers(256, 1024),)}),
        make("softmax_vocabulary", run=lambda t, x: t.softmax(x.float() if x.dtype != t.float64 else x, -1),
            inputs=(normal(4, 151936, scale=4.0),), terms=151936, steps=2),
        make("log_softmax", run=lambda t, x: t.log_softmax(x, -1), inputs=(normal(256, 1024),), terms=1024, grad=True,
            by_row=True, steps=2, grow=16),
        make("causal_softmax", run=_causal_softmax, inputs=(normal(8, 128, 128),), terms=128, grad=True, steps=2),
        make("logits_processing", run=_logits, inputs=(normal(2, 32000), boolean(2, 32000)), steps=4),
    ]  # fmt: skip


def _positions(count: int) -> Any:
    return lambda t, g: t.randperm(512, generator=g)[:count]


def _embedding_backward(t: Any, index: Any, weight: Any, upstream: Any) -> Any:
    """Sum gradients of repeated rows: the scatter behind the training of every language model."""
    leaf = weight.detach().requires_grad_()
    out = t.nn.functional.embedding(index, leaf)
    return t.autograd.grad(out, leaf, upstream)[0]


def _rope(t: Any, x: Any, angle: Any) -> Any:
    cos, sin = t.cat([angle.cos()] * 2, -1), t.cat([angle.sin()] * 2, -1)
    first, second = x.chunk(2, -1)
    return x * cos + t.cat([-second, first], -1) * sin


def _slice_assign(t: Any, cache: Any, x: Any) -> Any:
    out = cache.clone()
    out[:, :, 17:18] = x
    return out


def _causal_softmax(t: Any, x: Any) -> Any:
    hidden = t.ones(x.shape[-2:], dtype=t.bool, device=x.device).triu(1)
    return t.softmax(x.masked_fill(hidden, -math.inf), -1)


def _logits(t: Any, x: Any, seen: Any) -> Any:
    """Temperature and repetition penalty, as text generation applies them."""
    penalised = t.where(x > 0, x / 1.125, x * 1.125)
    return t.where(seen, penalised, x) / 0.75


# ---- attention


def _attention() -> list[Check]:
    make = functools.partial(Check, family="attention", terms=1024, steps=8, grad=True, compared=1)
    small, one = (normal(2, 4, 64, 64),) * 3, (normal(1, 8, 1, 64), normal(1, 8, 256, 64), normal(1, 8, 256, 64))
    grouped = (normal(1, 8, 64, 64), normal(1, 2, 64, 64), normal(1, 2, 64, 64))
    masked = (*small, boolean(64, 64))
    other = {
        "integers": (integers(2, 4, 64, 64), integers(2, 4, 64, 64), integers(2, 4, 64, 64)),
        "outliers": (outliers(2, 4, 64, 64, loud=8.0), normal(2, 4, 64, 64), normal(2, 4, 64, 64)),
        "large": (normal(8, 8, 1024, 64), normal(8, 8, 1024, 64), normal(8, 8, 1024, 64)),
        "large_cpu": (normal(1, 4, 512, 64), normal(1, 4, 512, 64), normal(1, 4, 512, 64)),
    }
    forced = [
        make(f"sdpa_{name}", run=functools.partial(_forced, backend=backend), inputs=small,
            dtypes=SIXTEEN if name in ("flash", "cudnn") else ("float32", *SIXTEEN),
            needs=None if name == "math" else "accelerator", more={"large": other["large"]}, by_row=True,
            timed_on="large", flop=_attended)
        for name, backend in PATHS.items()
    ]  # fmt: skip
    return [
        make("sdpa", run=_sdpa(), inputs=small, more=other, by_row=True, timed_on="large", flop=_attended),
        make("sdpa_causal", run=_sdpa(is_causal=True), inputs=small, by_row=True),
        make("sdpa_mask", run=_masked, inputs=masked),
        make("sdpa_grouped_query", run=_sdpa(is_causal=True, enable_gqa=True), inputs=grouped),
        make("sdpa_decode", run=_sdpa(), inputs=one, grad=False),  # nobody trains token by token
        *forced,
        make("attention_by_hand", run=_eager, inputs=small, by_row=True, more={"outliers": other["outliers"]}),
        make("multihead_attention", run=_multihead,
            inputs=(normal(2, 32, 64), normal(192, 64, scale=0.125), normal(64, 64, scale=0.125)), steps=6, grad=False,
            dtypes=SINGLE),
    ]  # fmt: skip


def _attended(shapes: list[Any]) -> float:
    (batch, heads, queries, dim), (_, _, keys, _) = shapes[:2]
    return 4.0 * batch * heads * queries * keys * dim


def _sdpa(**options: Any) -> Any:
    return lambda t, q, k, v: t.nn.functional.scaled_dot_product_attention(q, k, v, **options)


def _masked(t: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    mask = mask | t.eye(mask.shape[0], dtype=t.bool, device=mask.device)  # no row without any key
    return t.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def _forced(t: Any, q: Any, k: Any, v: Any, *, backend: str) -> Any:
    """Allow one path only; the reference takes whatever float64 has."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if q.dtype == t.float64:
        return t.nn.functional.scaled_dot_product_attention(q, k, v)
    with sdpa_kernel([getattr(SDPBackend, backend)]):
        return t.nn.functional.scaled_dot_product_attention(q, k, v)


def _eager(t: Any, q: Any, k: Any, v: Any) -> Any:
    """Two products and a softmax, as models without fused attention do it."""
    scores = (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])
    return t.softmax(scores, -1, dtype=t.float64 if q.dtype == t.float64 else t.float32).to(q.dtype) @ v


def _multihead(t: Any, x: Any, weight: Any, out: Any) -> Any:
    made = t.nn.functional.multi_head_attention_forward(
        x, x, x, 64, 4, weight, None, None, None, False, 0.0, out, None, training=False, need_weights=False
    )
    return made[0]


# ---- losses


def _losses() -> list[Check]:
    make = functools.partial(Check, family="loss", grad=True, terms=1024, steps=4)
    pair = (normal(256, 128), normal(256, 128))
    classes = (normal(256, 1000), whole(256, high=1000))
    return [
        make("cross_entropy", run=lambda t, x, i: t.nn.functional.cross_entropy(x, i), inputs=classes),
        make("cross_entropy_smoothing",
            run=lambda t, x, i: t.nn.functional.cross_entropy(x, i, label_smoothing=0.125, ignore_index=3),
            inputs=(normal(32, 100), whole(32, high=100))),
        make("nll_loss", run=lambda t, x, i: t.nn.functional.nll_loss(t.log_softmax(x, -1), i), inputs=classes),
        make("mse_l1", run=lambda t, x, y: (t.nn.functional.mse_loss(x, y), t.nn.functional.smooth_l1_loss(x, y)),
            inputs=pair),
        make("bce_with_logits", run=lambda t, x, y: t.nn.functional.binary_cross_entropy_with_logits(x, y.detach()),
            inputs=(normal(256, 128), positive(256, 128, low=0.0, high=1.0))),
        make("kl_div",
            run=lambda t, x, y: t.nn.functional.kl_div(t.log_softmax(x, -1), t.softmax(y, -1), reduction="batchmean"),
            inputs=pair, steps=8),
    ]  # fmt: skip


CHECKS = [*_language(), *_attention(), *_losses()]
