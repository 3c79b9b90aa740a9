"""Which operators of a forward pass work on each row (token) by itself: products, norms, sums, embedding, choice?

Each function makes one `Operator` at a `Shape`, with its inputs, its bytes and FLOPs, and its reference in float64.
"""

from __future__ import annotations

import copy
from typing import Any

from rocmlab.model_shape import Operator, Shape, picked, to_double

HEAD_BLOCK = 8192  # rows of a weight that are turned to float64 at a time
LAST = 4096  # ids of the embedding are drawn from the whole vocabulary, this many sets at most


def linear(shape: Shape, path: str, modules: list[Any], last_row: bool = False) -> Operator:
    """A product with a layer's weight; the head asks for its last row only."""
    name = path.rsplit(".")[-1]
    out, inner = modules[0].weight.shape
    rows = 1 if last_row else shape.rows
    x, rows_compared = shape.normal(1, rows, inner), picked(rows)
    biased = modules[0].bias is not None
    weight = (out * inner + (out if biased else 0)) * shape.item
    return Operator(
        "linear", name, len(modules), {"rows": rows, "in": inner, "out": out},
        bytes=weight + rows * (inner + out) * shape.item, flops=2 * rows * inner * out, parts=list(modules),
        call=lambda module: module(x), wanted=lambda module: _linear64(module, x[:, rows_compared]),
        taken=lambda result: result[:, rows_compared], part_bytes=weight, terms=inner, steps=2,
        further=copy.deepcopy,
    )  # fmt: skip


def _linear64(module: Any, x: Any) -> Any:
    """Return x @ weight.T + bias in float64, some rows of the weight at a time."""
    import torch

    rows = to_double(x)
    blocks = [rows @ to_double(module.weight[start : start + HEAD_BLOCK]).T for start in range(
        0, module.weight.shape[0], HEAD_BLOCK)]  # fmt: skip
    whole = torch.cat(blocks, dim=-1)
    return whole if module.bias is None else whole + to_double(module.bias)


def layer_norms(shape: Shape, model: Any, names: list[str]) -> Operator:
    """Every norm over the hidden size, of all layers and the last."""
    modules = [one.get_submodule(name) for one in model.model.layers for name in names] + [model.model.norm]
    return norm(shape, "layer_norms", modules, shape.normal(1, shape.rows, shape.hidden))


def head_norm(shape: Shape, path: str, modules: list[Any]) -> Operator:
    """The norm of queries or keys, head by head where the model has one."""
    name = path.rsplit(".")[-1]
    heads, width = shape.heads if name == "q_norm" else shape.kv_heads, modules[0].weight.numel()
    sizes = (heads, width) if width == shape.head_dim else (width,)  # some models normalise all heads at once
    return norm(shape, name, modules, shape.normal(1, shape.rows, *sizes))


def norm(shape: Shape, name: str, modules: list[Any], x: Any) -> Operator:
    """RMS norm of `x` by these modules."""
    rows, width = picked(shape.rows), x.shape[-1]
    return Operator(
        "rms_norm", name, len(modules), {"rows": x.numel() // width, "width": width},
        bytes=(2 * x.numel() + width) * shape.item, flops=4 * x.numel(), parts=list(modules),
        call=lambda module: module(x), wanted=lambda module: _norm64(module, x[:, rows]),
        taken=lambda result: result[:, rows], part_bytes=width * shape.item, terms=width, steps=2,
    )  # fmt: skip


def _norm64(module: Any, x: Any) -> Any:
    import torch

    eps = getattr(module, "variance_epsilon", getattr(module, "eps", 1e-6))
    double = to_double(x)
    return to_double(module.weight) * double * torch.rsqrt(double.pow(2).mean(-1, keepdim=True) + eps)


def residual_add(shape: Shape, layer: Any) -> Operator:
    """What comes out of attention or the MLP, added to what went in."""
    one, other, rows = shape.normal(1, shape.rows, shape.hidden), shape.normal(1, shape.rows, shape.hidden), picked(
        shape.rows)  # fmt: skip
    return Operator(
        "residual_add", "residual_add", 2 * shape.layers, {"rows": shape.rows, "width": shape.hidden},
        bytes=3 * one.numel() * shape.item, flops=one.numel(), parts=[None], call=lambda _: one + other,
        wanted=lambda _: to_double(one)[:, rows] + to_double(other)[:, rows], taken=lambda result: result[:, rows],
    )  # fmt: skip


def gate(shape: Shape, layer: Any) -> Operator:
    """The activation times the other half of the MLP (silu x up)."""
    mlp = layer.mlp
    width = mlp.down_proj.weight.shape[1]
    gate, up, rows = shape.normal(1, shape.rows, width), shape.normal(1, shape.rows, width), picked(shape.rows)
    return Operator(
        "silu_mul", "silu_mul", shape.layers, {"rows": shape.rows, "width": width},
        bytes=3 * gate.numel() * shape.item, flops=5 * gate.numel(), parts=[None],
        call=lambda _: mlp.act_fn(gate) * up,
        wanted=lambda _: mlp.act_fn(to_double(gate)[:, rows]) * to_double(up)[:, rows],
        taken=lambda result: result[:, rows], steps=4,
    )  # fmt: skip


def embedding(shape: Shape, model: Any) -> Operator:
    """The rows of the table that belong to the tokens."""
    import torch

    table = model.get_input_embeddings()
    sets = max(2, min(256, LAST // shape.rows))
    ids = list(torch.randint(0, shape.vocabulary, (sets, 1, shape.rows), device=shape.device))
    return Operator(
        "embedding", "embedding", 1, {"rows": shape.rows, "vocabulary": shape.vocabulary, "width": shape.hidden},
        bytes=shape.rows * (2 * shape.hidden * shape.item + 8), flops=0, parts=ids, call=table,
        wanted=lambda part: to_double(table.weight[part]), atol=0.0, part_bytes=shape.rows * shape.hidden * shape.item,
    )  # fmt: skip


def argmax(shape: Shape) -> Operator:
    """The best token. Equal logits are frequent in 16 bit, so the value at the index is compared, not the index."""
    logits = shape.normal(1, 1, shape.vocabulary)
    return Operator(
        "argmax", "argmax", 1, {"rows": 1, "vocabulary": shape.vocabulary}, logits.numel() * shape.item, 0, [None],
        call=lambda _: logits[:, -1].argmax(-1, keepdim=True), wanted=lambda _: to_double(logits).max().reshape(1),
        taken=lambda index: logits.flatten()[index.flatten()], atol=0.0,
    )  # fmt: skip


def softmax(shape: Shape) -> Operator:
    """The probabilities of the next token: only sampling needs them, so a greedy step calls it no time."""
    import torch

    logits = shape.normal(1, 1, shape.vocabulary)
    return Operator(
        "softmax", "softmax", 0, {"rows": 1, "vocabulary": shape.vocabulary},
        bytes=logits.numel() * (shape.item + 4), flops=5 * logits.numel(), parts=[None],
        call=lambda _: torch.softmax(logits[:, -1].float(), dim=-1),
        wanted=lambda _: torch.softmax(to_double(logits)[:, -1], dim=-1), terms=shape.vocabulary, steps=4,
    )  # fmt: skip
