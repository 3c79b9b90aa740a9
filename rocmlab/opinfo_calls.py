"""One entry of PyTorch's OpInfo database called on one of its samples: on a device in its dtype, or in float64."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

# Where to cut must be known to the host: these take their integer tensors from the CPU only.
CUTS = ("tensor_split",)
# What they keep for the backward pass is each device's own business: only the result is compared.
RESULT_ONLY = ("native_batch_norm", "_native_batch_norm_legit")


def run(info: Any, sample: Any, device: str, bits: int | None, kind: Any, nudge: bool = False) -> Any:
    """Call the operator with inputs moved to a device, in float64 when `bits` is 64, and nudged by one rounding."""
    import torch

    change = functools.partial(moved, device=device, bits=bits, kind=kind, nudge=nudge, cuts=info.name in CUTS)
    given = torch.utils._pytree.tree_map(change, (sample.input, tuple(sample.args), dict(sample.kwargs)))
    first, args, kwargs = given
    if "device" in kwargs or info.is_factory_function:
        kwargs["device"] = device
    made = info.op(first, *args, **kwargs)
    return made[0] if info.name in RESULT_ONLY else made


def moved(value: Any, *, device: str, bits: int | None, kind: Any, nudge: bool, cuts: bool = False) -> Any:
    import torch

    if isinstance(value, torch.dtype) and bits == 64:
        return {kind: torch.float64}.get(value, value)
    if not isinstance(value, torch.Tensor):
        return value
    whole = not (value.is_floating_point() or value.is_complex())
    value = value.detach().to("cpu" if cuts and whole else device, copy=True)
    if bits == 64 and value.dtype in (torch.float16, torch.bfloat16, torch.float32):
        value = value.double()
    elif bits == 64 and value.is_complex():
        value = value.to(torch.complex128)
    if nudge and value.dtype == torch.float64:
        value = value * (1 + torch.finfo(kind).eps * (2 * torch.rand_like(value) - 1))
    return value


def tensors(sample: Any) -> Iterator[Any]:
    import torch

    for leaf in torch.utils._pytree.tree_leaves((sample.input, sample.args, sample.kwargs)):
        if isinstance(leaf, torch.Tensor):
            yield leaf


def results(made: Any) -> list[Any]:
    import torch

    return list(torch.utils._pytree.tree_leaves(made))
