"""Which operators of a forward pass know of positions: rotary embedding, key and value cache, attention itself?

Each function makes one `Operator` at a `Shape`, with its inputs, its bytes and FLOPs, and its reference in float64.
"""

from __future__ import annotations

import math
import sys
from typing import Any

from rocmlab.model_shape import Operator, Shape, picked, to_double


def positions(shape: Shape) -> Operator:
    """The numbers of the rows' positions."""
    import torch

    past = shape.context - shape.rows

    def call(_: Any) -> Any:
        return (torch.arange(shape.rows, device=shape.device) + past).unsqueeze(0)

    def wanted(_: Any) -> Any:
        return torch.tensor([range(past, shape.context)])

    return Operator("positions", "positions", 1, {"rows": shape.rows}, 8 * shape.rows, 0, [None], call, wanted)


def rotary_table(shape: Shape, model: Any) -> Operator:
    """Cosine and sine of every position; float32 holds an angle of p radians only to p x 2^-24."""
    import torch

    from rocmlab.tolerance import EPSILON

    module, hidden = model.model.rotary_emb, shape.normal(1, shape.rows, shape.hidden)
    positions = torch.arange(shape.context - shape.rows, shape.context, device=shape.device).unsqueeze(0)

    def wanted(_: Any) -> Any:
        angles = to_double(positions)[..., None] * to_double(module.inv_freq)
        both = torch.cat((angles, angles), dim=-1)
        return torch.stack((both.cos(), both.sin())) * getattr(module, "attention_scaling", 1.0)

    dtype = str(shape.dtype).removeprefix("torch.")
    return Operator(
        "rotary_table", "rotary_table", 1, {"rows": shape.rows, "head_dim": shape.head_dim},
        bytes=2 * shape.rows * shape.head_dim * shape.item, flops=3 * shape.rows * shape.head_dim, parts=[None],
        call=lambda _: module(hidden, positions), wanted=wanted, taken=torch.stack,
        atol=4 * (EPSILON.get(dtype, EPSILON["float32"]) + shape.context * EPSILON["float32"]),
    )  # fmt: skip


def rope(shape: Shape, layer: Any) -> Operator:
    """The model's own apply_rotary_pos_emb on queries and keys."""
    import torch

    rotate = _of_model(layer, "apply_rotary_pos_emb")
    q, k = shape.heads_of(shape.heads), shape.heads_of(shape.kv_heads)
    angles = torch.rand(1, shape.rows, shape.head_dim // 2, device=shape.device).repeat(1, 1, 2) * 2 * math.pi
    cos, sin = angles.cos().to(shape.dtype), angles.sin().to(shape.dtype)
    rows = picked(shape.rows)

    def flat(pair: Any) -> Any:
        return torch.cat([one.flatten() for one in pair])

    def wanted(_: Any) -> Any:
        given = [to_double(one)[:, :, rows] for one in (q, k)]
        return flat([_rotated64(one, to_double(cos)[:, rows], to_double(sin)[:, rows]) for one in given])

    moved = (2 * (q.numel() + k.numel()) + cos.numel() + sin.numel()) * shape.item
    return Operator(
        "rope", "rope", shape.layers,
        {"rows": shape.rows, "heads": shape.heads, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim},
        bytes=moved, flops=3 * (q.numel() + k.numel()), parts=[None], call=lambda _: rotate(q, k, cos, sin),
        wanted=wanted, taken=lambda pair: flat([one[:, :, rows] for one in pair]), steps=4,
    )  # fmt: skip


def _rotated64(x: Any, cos: Any, sin: Any) -> Any:
    """Rotate pairs (i, i + half) of the last axis by hand."""
    import torch

    half = x.shape[-1] // 2
    low, high, c, s = x[..., :half], x[..., half:], cos[..., :half], sin[..., :half]
    return torch.cat((low * c - high * s, high * c + low * s), dim=-1)


def _of_model(layer: Any, name: str) -> Any:
    """Return a function of the file in which a layer's attention is written."""
    return getattr(sys.modules[type(layer.self_attn).__module__], name)


def kv_append(shape: Shape, layer: Any) -> Operator:
    """Key and value of the new rows behind the past, as transformers' DynamicLayer does it: by concatenation.

    That copies the whole past; the operator must only write the new rows, which is what its roof counts.
    """
    import torch

    past = shape.context - shape.rows
    new = [shape.heads_of(shape.kv_heads) for _ in range(2)]

    def made(_: Any = None) -> list[Any]:
        if not past:
            return [torch.tensor([], device=shape.device, dtype=shape.dtype) for _ in range(2)]
        return [shape.normal(1, shape.kv_heads, past, shape.head_dim) for _ in range(2)]

    def call(part: list[Any]) -> list[Any]:
        return [torch.cat([old, more], dim=-2) for old, more in zip(part, new, strict=True)]

    def wanted(part: list[Any]) -> Any:
        return torch.stack([torch.cat([to_double(old), to_double(more)], dim=-2) for old, more in zip(
            part, new, strict=True)])  # fmt: skip

    rows = 2 * shape.kv_heads * shape.head_dim * shape.item
    return Operator(
        "kv_append", "kv_append", shape.layers,
        {"rows": shape.rows, "past": past, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim},
        bytes=2 * rows * shape.rows, flops=0, parts=[made()], call=call, wanted=wanted, taken=torch.stack,
        part_bytes=rows * past, further=made, atol=0.0, facts={"copied_bytes": 2 * rows * shape.context},
    )  # fmt: skip


def sdpa(shape: Shape, layer: Any) -> Operator:
    """Attention as the model calls it: its own function, grouped heads, causal in prefill."""
    module, attend = layer.self_attn, _attention(layer)
    q, mask, rows = shape.heads_of(shape.heads), _mask(shape, layer), picked(shape.rows)

    def made(_: Any = None) -> list[Any]:
        return [shape.normal(1, shape.kv_heads, shape.context, shape.head_dim) for _ in range(2)]

    def call(part: list[Any]) -> Any:
        return attend(module, q, *part, mask, dropout=0.0, scaling=module.scaling)[0]

    pairs = shape.context if shape.rows == 1 else sum(shape.context - shape.rows + r + 1 for r in range(shape.rows))
    cache = 2 * shape.kv_heads * shape.context * shape.head_dim * shape.item
    facts = {"attention": getattr(module.config, "_attn_implementation", None)}
    return Operator(
        "sdpa", "sdpa", shape.layers,
        {"rows": shape.rows, "context": shape.context, "heads": shape.heads, "kv_heads": shape.kv_heads,
         "head_dim": shape.head_dim, "causal": shape.rows > 1},
        bytes=cache + 2 * q.numel() * shape.item, flops=4 * shape.heads * shape.head_dim * pairs, parts=[made()],
        call=call, wanted=lambda part: _attention64(shape, q, part, rows, module.scaling),
        taken=lambda result: result[:, rows], part_bytes=cache, terms=max(shape.context, shape.head_dim), steps=3,
        further=made, facts=facts,
    )  # fmt: skip


def _attention(layer: Any) -> Any:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    kind = layer.self_attn.config._attn_implementation
    known = kind in ALL_ATTENTION_FUNCTIONS
    return ALL_ATTENTION_FUNCTIONS[kind] if known else _of_model(layer, "eager_attention_forward")


def _mask(shape: Shape, layer: Any) -> Any:
    """Return what masks the future: nothing where the function does it itself, else minus infinity above."""
    import torch

    if shape.rows == 1 or layer.self_attn.config._attn_implementation != "eager":
        return None
    least = torch.finfo(shape.dtype).min
    return torch.full((1, 1, shape.rows, shape.rows), least, device=shape.device, dtype=shape.dtype).triu(1)


def _attention64(shape: Shape, q: Any, part: list[Any], rows: list[int], scaling: float) -> Any:
    """Return (1, rows, heads, head_dim) in float64 by the formula, for some query rows."""
    import torch

    group = shape.heads // shape.kv_heads
    key, value = (to_double(one).repeat_interleave(group, dim=1) for one in part)
    scores = to_double(q)[:, :, rows] @ key.transpose(2, 3) * scaling
    limits = torch.tensor(rows) + shape.context - shape.rows
    future = torch.arange(shape.context)[None] > limits[:, None]
    weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
    return (weights @ value).transpose(1, 2)
