"""What one entry of the catalogue is: an operator, its inputs, and what a right answer is.

Data only: `run(t, *inputs)` gets the torch module first, so that nothing here imports torch. Inputs are made on the CPU
from a fixed seed, rounded to the dtype under test, and only then converted to float64 for the reference.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Maker = Callable[[Any, Any], Any]  # (torch, generator) -> tensor on the CPU

FLOATS = ("float32", "float16", "bfloat16")
SINGLE = ("float32",)
SIXTEEN = ("float16", "bfloat16")


@dataclass(frozen=True)
class Check:
    """One operator.

    `terms`: additions behind one output element; `steps`: roundings to the dtype on the way (see tolerance.py).
    `more`: further inputs by name; "large" only on an accelerator, "large_cpu" only on a CPU. `by_row`: row i of the
    output depends on row i of the first input only, so rows can be checked, and retried, apart. `waits`: the operator
    has to wait for the device (its shape depends on the data). `library`: the switch that tells library from card,
    "dnn" or "blas". `needs`: "accelerator" or "compiler". `reference` replaces run() for the expected values, and
    `atol` the tolerance, where an operator is random. `keyword`: run() also gets dtype. On an accelerator steady calls
    are timed on the inputs `timed_on`, repeated `grow` times along their rows, so that not the launch alone is timed;
    `flop(shapes)` counts the work. `compared`: how many rows of a large result are compared with float64.
    """

    name: str
    family: str
    run: Callable[..., Any]
    inputs: tuple[Maker, ...] = ()
    dtypes: tuple[str, ...] = FLOATS
    grad: bool = False
    terms: int = 1
    steps: int = 1
    more: Mapping[str, tuple[Maker, ...]] = field(default_factory=dict)
    by_row: bool = False
    waits: bool = False
    library: str | None = None
    needs: str | None = None
    reference: Callable[..., Any] | None = None
    atol: float | None = None
    flop: Callable[[list[Any]], float] | None = None
    timed_on: str = "random"
    grow: int = 1
    compared: int = 48
    keyword: bool = False
    timed: bool = True
    limit_s: float | None = None


def seeded(t: Any, name: str) -> Any:
    """Return a generator whose seed depends on the name only, the same on every machine."""
    return t.Generator().manual_seed(zlib.crc32(name.encode()))


# ---- makers of inputs


def normal(*shape: int, scale: float = 1.0) -> Maker:
    """Normally distributed values, as weights and activations are; never zeros."""
    return lambda t, g: t.randn(*shape, generator=g) * scale


def positive(*shape: int, low: float = 0.1, high: float = 4.0) -> Maker:
    """Values between two positive ends, for logarithms, roots and divisors."""
    return lambda t, g: t.rand(*shape, generator=g) * (high - low) + low


def whole(*shape: int, high: int) -> Maker:
    """Whole numbers (int64) from 0 up to, but without, `high`: indices and class numbers."""
    return lambda t, g: t.randint(0, high, shape, generator=g)


def integers(*shape: int) -> Maker:
    """-1, 0 and 1 as floating point: every partial sum is exact in any order, so a lost or doubled term shows."""
    return lambda t, g: t.randint(-1, 2, shape, generator=g).float()


def outliers(*shape: int, loud: float = 40.0) -> Maker:
    """One value in 256 is much larger, as in the activations of language models."""

    def make(t: Any, g: Any) -> Any:
        chosen = t.rand(*shape, generator=g) < 1 / 256
        return t.randn(*shape, generator=g) * t.where(chosen, loud, 1.0)

    return make


def padded(*shape: int) -> Maker:
    """The second half of the rows (dimension -2) is zero, as padding is."""

    def make(t: Any, g: Any) -> Any:
        made = t.randn(*shape, generator=g)
        made[..., shape[-2] // 2 :, :] = 0
        return made

    return make


def boolean(*shape: int) -> Maker:
    return lambda t, g: t.rand(*shape, generator=g) < 0.5


def permutation(n: int) -> Maker:
    return lambda t, g: t.randperm(n, generator=g)
