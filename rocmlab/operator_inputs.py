"""What an operator is called with, and what it should give: inputs of a check in its dtype, and the float64 reference.

Used inside a worker. Inputs are made on the CPU and only then moved, so that a card cannot spoil its own reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rocmlab.operators.check import Check, Maker, seeded

KEPT_VALUES = 1 << 24  # of one check; 64 MB in float32
_last: dict[str, Any] = {}


def sets(check: Check, device: str) -> Iterator[tuple[str, tuple[Maker, ...]]]:
    """Yield (name, makers) of every set of inputs that this device is tried on."""
    yield "random", check.inputs
    left_out = "large" if device == "cpu" else "large_cpu"
    for given, makers in check.more.items():
        if given != left_out:
            yield given, makers


def make(check: Check, given: str, makers: tuple[Maker, ...], dtype: str) -> list[Any]:
    """Return inputs on the CPU, floating ones rounded to the dtype (autocast keeps its inputs in float32).

    They are copies, which an operator may write to.
    """
    import torch

    kind = torch.float32 if check.keyword else getattr(torch, dtype)
    return [x.to(kind if x.is_floating_point() else x.dtype, copy=True) for x in _drawn(check, given, makers)]


def _drawn(check: Check, given: str, makers: tuple[Maker, ...]) -> list[Any]:
    """Return the values before rounding. The last small ones are kept, because value, gradient and time of every dtype
    of one operator are taken on the same values."""
    import torch

    if _last.get("of") == (check.name, given, makers):
        return _last["drawn"]
    generator = seeded(torch, f"{check.name} {given}")
    drawn = [maker(torch, generator) for maker in makers]
    _last.clear()
    if sum(x.numel() for x in drawn) <= KEPT_VALUES:
        _last.update(of=(check.name, given, makers), drawn=drawn)
    return drawn


def call(check: Check, tensors: list[Any], dtype: str) -> Any:
    """Run the operator."""
    import torch

    return check.run(torch, *tensors, **({"dtype": dtype} if check.keyword else {}))


def exact(tensors: list[Any]) -> list[Any]:
    """Return the same values in float64."""
    return [x.double() if x.is_floating_point() else x for x in tensors]


def reference(check: Check, tensors: list[Any], dtype: str) -> list[Any]:
    """Return what the operator should give for these inputs on the CPU, in float64 where it is floating point."""
    import torch

    if check.reference is not None:
        return flat(check.reference(torch, *exact(tensors)))
    return flat(call(check, exact(tensors), dtype))


def flat(made: Any) -> list[Any]:
    """Return the tensors of a result, whatever tuple or list they are in."""
    if isinstance(made, (list, tuple)):
        return [tensor for part in made for tensor in flat(part)]
    return [made]


def timed(check: Check, dtype: str, device: str, subject: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what steady calls are timed on, on this device, and what that is: as large as an accelerator deserves."""
    name = check.timed_on if subject != "cpu" and check.timed_on in check.more else "random"
    grow = check.grow if subject != "cpu" else 1
    tensors = [x.to(device) for x in make(check, name, check.more.get(name, check.inputs), dtype)]
    rows = tensors[0].shape[0] if tensors else 0
    if grow > 1:
        tensors = [x.repeat(grow, *[1] * (x.dim() - 1)) if x.shape[:1] == (rows,) else x for x in tensors]
    shapes = [list(x.shape) for x in tensors]
    return tensors, {"inputs": name, "shapes": shapes, "flop": check.flop(shapes) if check.flop else None}
