"""Which operators does this model call in one forward pass, at which shapes, with how many bytes and FLOPs?

`operators(model, phase, rows, context)` returns them in the model's order, made of its own modules and functions, so
that the sum over a step means something. Nothing is timed here. Bytes are what the operator must move, each input and
output once; an implementation that moves more shows as a lower share of the roof.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rocmlab.attention_operators import kv_append, positions, rope, rotary_table, sdpa
from rocmlab.model_shape import Operator, shape_of
from rocmlab.row_operators import argmax, embedding, gate, head_norm, layer_norms, linear, residual_add, softmax


def operators(model: Any, phase: str, rows: int, context: int) -> list[Callable[[], Operator]]:
    """Return what makes each operator of one forward pass, in the model's order; made one by one, to spare memory."""
    shape = shape_of(model, phase, rows, context)
    layers = list(model.model.layers)
    linears = [name for name, module in layers[0].named_modules() if _is_linear(module)]
    norms = [name for name, module in layers[0].named_modules() if _is_norm(module)]
    by_head = [name for name in norms if name.rsplit(".")[-1] in ("q_norm", "k_norm")]
    makers: list[Callable[[], Operator]] = [
        functools.partial(embedding, shape, model),
        functools.partial(positions, shape),
        functools.partial(rotary_table, shape, model),
        functools.partial(layer_norms, shape, model, [name for name in norms if name not in by_head]),
    ]
    makers += [functools.partial(linear, shape, name, [one.get_submodule(name) for one in layers]) for name in linears]
    makers += [
        functools.partial(head_norm, shape, name, [one.get_submodule(name) for one in layers]) for name in by_head
    ]
    for maker in (rope, kv_append, sdpa, residual_add, gate):
        makers.append(functools.partial(maker, shape, layers[0]))
    makers.append(functools.partial(linear, shape, "lm_head", [model.get_output_embeddings()], last_row=True))
    return [*makers, functools.partial(argmax, shape), functools.partial(softmax, shape)]


def _is_linear(module: Any) -> bool:
    import torch

    return isinstance(module, torch.nn.Linear)


def _is_norm(module: Any) -> bool:
    return type(module).__name__.endswith("RMSNorm")
