"""What do the shapes of a model's operators follow from, and what is known of one operator at one shape?

`shape_of(model, DECODE, rows, context)` holds the sizes; row_operators.py and attention_operators.py make an `Operator`
of them each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

CHECKED = 32  # rows compared at each end of a result; the operator itself runs on all of them
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


def picked(rows: int) -> list[int]:
    """Return the rows of a result that are compared: some from each end."""
    return sorted({*range(min(rows, CHECKED)), *range(max(0, rows - CHECKED), rows)})


def to_double(tensor: Any) -> Any:
    """Return a copy in float64 on the CPU."""
    import torch

    return tensor.detach().to("cpu", torch.float64)
