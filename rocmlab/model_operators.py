"""Which operators does this model call in one forward pass, at which shapes, with how many bytes and FLOPs?

`operators(model, phase, rows, context)` returns them in the model's order, made of its own modules and functions, so
that the sum over a step means something. Nothing is timed here. Bytes are what the operator must move, each input and
output once; an implementation that moves more shows as a lower share of the roof.
"""

from __future__ import annotations

import copy
import functools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CHECKED = 32  # rows compared at each end of a result; the operator itself runs on all of them
HEAD_BLOCK = 8192  # rows of a weight that are turned to float64 at a time
LAST = 4096  # ids of the embedding are drawn from the whole vocabulary, this many sets at most
DECODE, PREFILL = "decode", "prefill"


@dataclass
class Operator:
    """One operator at one shape.

    `parts` are what a step reads from memory anew (weights, caches): calls rotate over them, and over copies of them.
    `call(part)` runs it; `wanted(part)` is the float64 reference on the CPU, to which `taken(result)` corresponds.
    `count` is how often a forward pass calls it. `precision`, `terms`, `steps`, `atol` are those of tolerance.compare.
    """

    operator: str
    name: str
    count: int
    shape: dict[str, Any]
    bytes: int
    flops: int
    parts: list[Any]
    call: Callable[[Any], Any]
    wanted: Callable[[Any], Any]
    taken: Callable[[Any], Any] = lambda result: result
    part_bytes: int = 0
    terms: int = 1
    steps: int = 1
    atol: float | None = None
    further: Callable[[Any], Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Shape:
    """What the shapes follow from: rows of one pass, positions that attention sees, and the model's sizes."""

    phase: str
    rows: int
    context: int
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    device: Any
    dtype: Any

    @property
    def item(self) -> int:
        return self.dtype.itemsize

    def normal(self, *sizes: int) -> Any:
        """Return normally distributed values of the model's dtype on its device."""
        import torch

        return torch.randn(*sizes, device=self.device).to(self.dtype)

    def heads_of(self, count: int) -> Any:
        """Return (1, count, rows, head_dim) as the projections leave it: a transposed view."""
        return self.normal(1, self.rows, count, self.head_dim).transpose(1, 2)


def shape_of(model: Any, phase: str, rows: int, context: int) -> Shape:
    """Return the sizes of a model for one phase; decode has one row, prefill sees no more than its own rows."""
    config = model.config
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    rows, context = (1, context) if phase == DECODE else (rows, rows)
    sizes = (config.num_hidden_layers, config.hidden_size, heads, kv_heads, head_dim, config.vocab_size)
    return Shape(phase, rows, context, *sizes, model.device, model.dtype)


def operators(model: Any, phase: str, rows: int, context: int) -> list[Callable[[], Operator]]:
    """Return what makes each operator of one forward pass, in the model's order; made one by one, to spare memory."""
    shape = shape_of(model, phase, rows, context)
    layers = list(model.model.layers)
    linears = [name for name, module in layers[0].named_modules() if _is_linear(module)]
    norms = [name for name, module in layers[0].named_modules() if _is_norm(module)]
    by_head = [name for name in norms if name.rsplit(".")[-1] in ("q_norm", "k_norm")]
    makers: list[Callable[[], Operator]] = [
        functools.partial(_embedding, shape, model),
        functools.partial(_positions, shape),
        functools.partial(_rotary_table, shape, model),
        functools.partial(_layer_norms, shape, model, [name for name in norms if name not in by_head]),
    ]
    makers += [functools.partial(_linear, shape, name, [one.get_submodule(name) for one in layers]) for name in linears]
    makers += [
        functools.partial(_head_norm, shape, name, [one.get_submodule(name) for one in layers]) for name in by_head
    ]
    for maker in (_rope, _kv_append, _sdpa, _residual_add, _gate):
        makers.append(functools.partial(maker, shape, layers[0]))
    makers.append(functools.partial(_linear, shape, "lm_head", [model.get_output_embeddings()], last_row=True))
    return [*makers, functools.partial(_argmax, shape), functools.partial(_softmax, shape)]


def _is_linear(module: Any) -> bool:
    import torch

    return isinstance(module, torch.nn.Linear)


def _is_norm(module: Any) -> bool:
    return type(module).__name__.endswith("RMSNorm")


def picked(rows: int) -> list[int]:
    """Return the rows of a result that are compared: some from each end."""
    return sorted({*range(min(rows, CHECKED)), *range(max(0, rows - CHECKED), rows)})


def _double(tensor: Any) -> Any:
    import torch

    return tensor.detach().to("cpu", torch.float64)


# ---- products


def _linear(shape: Shape, path: str, modules: list[Any], last_row: bool = False) -> Operator:
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

    rows = _double(x)
    blocks = [rows @ _double(module.weight[start : start + HEAD_BLOCK]).T for start in range(
        0, module.weight.shape[0], HEAD_BLOCK)]  # fmt: skip
    whole = torch.cat(blocks, dim=-1)
    return whole if module.bias is None else whole + _double(module.bias)


# ---- norms


def _layer_norms(shape: Shape, model: Any, names: list[str]) -> Operator:
    modules = [one.get_submodule(name) for one in model.model.layers for name in names] + [model.model.norm]
    return _norm(shape, "layer_norms", modules, shape.normal(1, shape.rows, shape.hidden))


def _head_norm(shape: Shape, path: str, modules: list[Any]) -> Operator:
    name = path.rsplit(".")[-1]
    heads, width = shape.heads if name == "q_norm" else shape.kv_heads, modules[0].weight.numel()
    sizes = (heads, width) if width == shape.head_dim else (width,)  # some models normalise all heads at once
    return _norm(shape, name, modules, shape.normal(1, shape.rows, *sizes))


def _norm(shape: Shape, name: str, modules: list[Any], x: Any) -> Operator:
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
    double = _double(x)
    return _double(module.weight) * double * torch.rsqrt(double.pow(2).mean(-1, keepdim=True) + eps)


# ---- positions


def _positions(shape: Shape) -> Operator:
    import torch

    past = shape.context - shape.rows

    def call(_: Any) -> Any:
        return (torch.arange(shape.rows, device=shape.device) + past).unsqueeze(0)

    def wanted(_: Any) -> Any:
        return torch.tensor([range(past, shape.context)])

    return Operator("positions", "positions", 1, {"rows": shape.rows}, 8 * shape.rows, 0, [None], call, wanted)


def _rotary_table(shape: Shape, model: Any) -> Operator:
    """Cosine and sine of every position; float32 holds an angle of p radians only to p x 2^-24."""
    import torch

    from rocmlab.tolerance import EPSILON

    module, hidden = model.model.rotary_emb, shape.normal(1, shape.rows, shape.hidden)
    positions = torch.arange(shape.context - shape.rows, shape.context, device=shape.device).unsqueeze(0)

    def wanted(_: Any) -> Any:
        angles = _double(positions)[..., None] * _double(module.inv_freq)
        both = torch.cat((angles, angles), dim=-1)
        return torch.stack((both.cos(), both.sin())) * getattr(module, "attention_scaling", 1.0)

    dtype = str(shape.dtype).removeprefix("torch.")
    return Operator(
        "rotary_table", "rotary_table", 1, {"rows": shape.rows, "head_dim": shape.head_dim},
        bytes=2 * shape.rows * shape.head_dim * shape.item, flops=3 * shape.rows * shape.head_dim, parts=[None],
        call=lambda _: module(hidden, positions), wanted=wanted, taken=torch.stack,
        atol=4 * (EPSILON.get(dtype, EPSILON["float32"]) + shape.context * EPSILON["float32"]),
    )  # fmt: skip


def _rope(shape: Shape, layer: Any) -> Operator:
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
        given = [_double(one)[:, :, rows] for one in (q, k)]
        return flat([_rotated64(one, _double(cos)[:, rows], _double(sin)[:, rows]) for one in given])

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


# ---- cache and attention


def _kv_append(shape: Shape, layer: Any) -> Operator:
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
        return torch.stack([torch.cat([_double(old), _double(more)], dim=-2) for old, more in zip(
            part, new, strict=True)])  # fmt: skip

    rows = 2 * shape.kv_heads * shape.head_dim * shape.item
    return Operator(
        "kv_append", "kv_append", shape.layers,
        {"rows": shape.rows, "past": past, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim},
        bytes=2 * rows * shape.rows, flops=0, parts=[made()], call=call, wanted=wanted, taken=torch.stack,
        part_bytes=rows * past, further=made, atol=0.0, facts={"copied_bytes": 2 * rows * shape.context},
    )  # fmt: skip


def _sdpa(shape: Shape, layer: Any) -> Operator:
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
    key, value = (_double(one).repeat_interleave(group, dim=1) for one in part)
    scores = _double(q)[:, :, rows] @ key.transpose(2, 3) * scaling
    limits = torch.tensor(rows) + shape.context - shape.rows
    future = torch.arange(shape.context)[None] > limits[:, None]
    weights = torch.softmax(scores.masked_fill(future, float("-inf")), dim=-1)
    return (weights @ value).transpose(1, 2)


# ---- elements


def _residual_add(shape: Shape, layer: Any) -> Operator:
    one, other, rows = shape.normal(1, shape.rows, shape.hidden), shape.normal(1, shape.rows, shape.hidden), picked(
        shape.rows)  # fmt: skip
    return Operator(
        "residual_add", "residual_add", 2 * shape.layers, {"rows": shape.rows, "width": shape.hidden},
        bytes=3 * one.numel() * shape.item, flops=one.numel(), parts=[None], call=lambda _: one + other,
        wanted=lambda _: _double(one)[:, rows] + _double(other)[:, rows], taken=lambda result: result[:, rows],
    )  # fmt: skip


def _gate(shape: Shape, layer: Any) -> Operator:
    """The activation times the other half of the MLP (silu x up)."""
    mlp = layer.mlp
    width = mlp.down_proj.weight.shape[1]
    gate, up, rows = shape.normal(1, shape.rows, width), shape.normal(1, shape.rows, width), picked(shape.rows)
    return Operator(
        "silu_mul", "silu_mul", shape.layers, {"rows": shape.rows, "width": width},
        bytes=3 * gate.numel() * shape.item, flops=5 * gate.numel(), parts=[None],
        call=lambda _: mlp.act_fn(gate) * up,
        wanted=lambda _: mlp.act_fn(_double(gate)[:, rows]) * _double(up)[:, rows],
        taken=lambda result: result[:, rows], steps=4,
    )  # fmt: skip


def _embedding(shape: Shape, model: Any) -> Operator:
    import torch

    table = model.get_input_embeddings()
    sets = max(2, min(256, LAST // shape.rows))
    ids = list(torch.randint(0, shape.vocabulary, (sets, 1, shape.rows), device=shape.device))
    return Operator(
        "embedding", "embedding", 1, {"rows": shape.rows, "vocabulary": shape.vocabulary, "width": shape.hidden},
        bytes=shape.rows * (2 * shape.hidden * shape.item + 8), flops=0, parts=ids, call=table,
        wanted=lambda part: _double(table.weight[part]), atol=0.0, part_bytes=shape.rows * shape.hidden * shape.item,
    )  # fmt: skip


def _argmax(shape: Shape) -> Operator:
    """The best token. Equal logits are frequent in 16 bit, so the value at the index is compared, not the index."""
    logits = shape.normal(1, 1, shape.vocabulary)
    return Operator(
        "argmax", "argmax", 1, {"rows": 1, "vocabulary": shape.vocabulary}, logits.numel() * shape.item, 0, [None],
        call=lambda _: logits[:, -1].argmax(-1, keepdim=True), wanted=lambda _: _double(logits).max().reshape(1),
        taken=lambda index: logits.flatten()[index.flatten()], atol=0.0,
    )  # fmt: skip


def _softmax(shape: Shape) -> Operator:
    """The probabilities of the next token: only sampling needs them, so a greedy step calls it no time."""
    import torch

    logits = shape.normal(1, 1, shape.vocabulary)
    return Operator(
        "softmax", "softmax", 0, {"rows": 1, "vocabulary": shape.vocabulary},
        bytes=logits.numel() * (shape.item + 4), flops=5 * logits.numel(), parts=[None],
        call=lambda _: torch.softmax(logits[:, -1].float(), dim=-1),
        wanted=lambda _: torch.softmax(_double(logits)[:, -1], dim=-1), terms=shape.vocabulary, steps=4,
    )  # fmt: skip
