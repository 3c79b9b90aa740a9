"""One entry of PyTorch's OpInfo database on its own samples, compared with the CPU in float64: inside a worker."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
import sys
import time
import types
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

from rocmlab import operator_trial, opinfo_calls, timing, tolerance

SAMPLES_S = 0.25  # seconds of samples for one operator and dtype; at least one sample is tried
MOST_SAMPLES, MOST_EMPTY = 40, 4  # of one operator; some entries begin with hundreds of inputs without an element
STEPS = 8  # roundings that an unknown operator may take; OpInfo does not tell
# Times the change that rounding the inputs makes: beyond that an error is the operator's own. In 16 bit that change is
# large itself, 64 times it would excuse half of a value; right results stay below once.
PERTURBED = {"float32": 64.0, "float16": 4.0, "bfloat16": 4.0}
SEEDS = 8  # tried to see whether an entry is random: a single small number may come out alike twice
# Memory that nobody has written: any value is right.
UNWRITTEN = ("empty", "new_empty", "resize_")
# Another right result looks wrong for these.
FREE, JUMPS = "the result is not unique: sign, phase or order are free", "it jumps where a rounding decides"
NOT_UNIQUE = dict.fromkeys(
    (
        "svd", "linalg.svd", "svd_lowrank", "pca_lowrank", "linalg.eig", "linalg.eigh", "geqrf", "ormqr", "lobpcg",
        "linalg.householder_product", "linalg.ldl_factor", "linalg.ldl_factor_ex",
    ),
    FREE,
) | {"nn.functional.grid_sample": JUMPS}  # fmt: skip
DIFFERENT: dict[str, Any] = {
    "elements": 1, "not_finite": 0, "outside": 1, "over_tolerance": None, "max_abs_err": math.inf,
}  # fmt: skip
# Their samples are views into larger memory, which a copy to another device loses.
VIEWS = ("as_strided.partial_views",)
# Their samples ask for a device themselves, so where the result lies says nothing.
MOVES = ("to",)


def begin(device: str) -> dict[str, Any]:
    """Wake torch and the device, and let float32 be float32: cuDNN would use TF32 for convolutions."""
    import torch

    with contextlib.suppress(RuntimeError):  # once the database is imported, its module lets nobody change the switch
        torch.backends.cudnn.allow_tf32 = False
    return {**operator_trial.begin(device), "entries": len(database())}


@functools.cache
def database() -> dict[str, Any]:
    """Return `{name: OpInfo}`. Raises ImportError where this torch has none or its imports are missing."""
    try:
        import expecttest  # noqa: F401
    except ImportError:  # only the base class of PyTorch's own tests, none of which is run here
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal import common_methods_invocations as invocations

    _unseed()
    found: dict[str, Any] = {}
    for one in invocations.op_db:
        name = f"{one.name}.{one.variant_test_name}" if one.variant_test_name else one.name
        found.setdefault(name, one)
    return found


def _unseed() -> None:
    """Let random entries be random: the database seeds them inside the call, so that two runs could not differ."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal.") and hasattr(module, "wrapper_set_seed"):
            vars(module)["wrapper_set_seed"] = lambda op, *args, **kwargs: op(*args, **kwargs)


def names() -> list[str]:
    return list(database())


def look(name: str, dtype: str, device: str) -> dict[str, Any]:
    """Run one entry on its samples and compare; returns a row. An exception of the operator stands in it as `error`."""
    import torch

    info, kind = database()[name], getattr(torch, dtype)
    row: dict[str, Any] = {"inputs": [], "error": None, "samples": 0}
    if name in VIEWS:
        return {**row, "no_reference": "its samples are views into larger memory, which a copy loses"}
    if kind not in info.supported_dtypes(torch.device(device).type):
        return {**row, "error": f"NotImplementedError: the database does not list {dtype} for this device"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # samples provoke warnings on purpose
        try:
            _samples(info, name, kind, device, row)
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:2000]
    return row


def _samples(info: Any, name: str, kind: Any, device: str, row: dict[str, Any]) -> None:
    """Compare sample by sample; stops at the first that is wrong, and when the time is spent."""
    import torch

    torch.manual_seed(0)
    began, total = time.perf_counter(), {"elements": 0, "not_finite": 0, "outside": 0, "over_tolerance": 0.0}
    for sample in itertools.islice(_few_empty(info.sample_inputs("cpu", kind)), MOST_SAMPLES):
        found = _one(info, sample, kind, device, row)
        row["samples"] += 1
        if found is None:
            continue
        for key in ("elements", "not_finite", "outside"):
            total[key] += found[key]
        total["over_tolerance"] = max(total["over_tolerance"], found["over_tolerance"] or 0.0)
        if found["not_finite"] or found["outside"]:
            row["no_reference"] = _excuse(info, name, sample, kind, device, found)
            row["inputs"] = [{"inputs": "samples", "sample": described(sample), **total}]
            return
        if time.perf_counter() - began > SAMPLES_S:
            break
    row["inputs"] = [{"inputs": "samples", **total}]
    alone = row.pop("alone", None)
    if not total["elements"]:
        row["no_reference"] = alone or "no sample gives an element that can be compared"
    if name.startswith(UNWRITTEN):
        row["no_reference"] = "unwritten memory: any value is right"


def _few_empty(samples: Iterator[Any]) -> Iterator[Any]:
    """Leave out samples with an empty tensor after the first few: they show that nothing crashes, and no value."""
    empty = 0
    for sample in samples:
        empty += (hollow := any(one.numel() == 0 for one in opinfo_calls.tensors(sample)))
        if not hollow or empty <= MOST_EMPTY:
            yield sample


def described(sample: Any) -> str:
    """Return a sample in words, without what says nothing."""
    said = re.sub(
        r", (?:args=\(\)|kwargs=\{\}|broadcasts_input=\w+|name='\w*')|device=\"cpu\", |dtype=torch\.",
        "",
        sample.summary(),
    )
    return said.removeprefix("SampleInput(").removesuffix(")")[:500]


def _one(info: Any, sample: Any, kind: Any, device: str, row: dict[str, Any]) -> dict[str, Any] | None:
    """Run one sample on the device and in float64 on the CPU; None where nothing can be compared."""
    made = opinfo_calls.results(opinfo_calls.run(info, sample, device, None, kind))
    timing.synchronise(device)
    placed = [one.device for one in made if hasattr(one, "device")]
    if placed and row.get("device") is None and info.name not in MOVES:
        row["device"] = str(placed[0])
    try:
        wanted = opinfo_calls.results(opinfo_calls.run(info, sample, "cpu", 64, kind))
    except Exception as error:  # some exist on GPUs only; that is no fault of the GPU
        row["alone"] = f"the CPU cannot compute it ({type(error).__name__}: {error}"[:150].splitlines()[0] + ")"
        return None
    return _compared(made, wanted, sample, kind)


def _compared(made: list[Any], wanted: list[Any], sample: Any, kind: Any) -> dict[str, Any] | None:
    if len(made) != len(wanted):
        return DIFFERENT
    sizes = [x.numel() for x in opinfo_calls.tensors(sample)]
    parts = [_pair(got, want, max(sizes, default=0), kind) for got, want in zip(made, wanted, strict=True)]
    known = [part for part in parts if part]
    if not known:
        return None
    return {
        "elements": sum(part["elements"] for part in known),
        "not_finite": sum(part["not_finite"] for part in known),
        "outside": sum(part["outside"] for part in known),
        "over_tolerance": max(part["over_tolerance"] or 0.0 for part in known),
        "max_abs_err": max(part["max_abs_err"] for part in known),
    }


def _pair(got: Any, want: Any, terms: int, kind: Any) -> dict[str, Any] | None:
    """Compare two results; what is no dense tensor is compared by equality."""
    import torch

    if not isinstance(got, torch.Tensor) or not isinstance(want, torch.Tensor):
        same = _equal(got, want)
        return {**DIFFERENT, "outside": int(not same), "max_abs_err": 0.0 if same else math.inf}
    if got.layout != torch.strided:
        got, want = got.to_dense(), want.to_dense()
    if got.shape != want.shape:
        return DIFFERENT
    if got.is_floating_point() and want.is_floating_point():  # what the dtype cannot hold is infinite in it
        most = torch.finfo(got.dtype).max
        want = torch.where(want.abs() > most, want * float("inf"), want)
    precision = str(got.dtype if got.is_floating_point() else kind).removeprefix("torch.")
    if got.is_floating_point() and torch.finfo(got.dtype).bits > torch.finfo(kind).bits:
        precision = str(kind).removeprefix("torch.")
    # Without inputs (a window function) the constants inside are about one, and so is their rounding.
    atol = None if terms else tolerance.relative(precision, 1, STEPS)
    return tolerance.compare(got, want, precision, max(terms, 1), STEPS, atol)


def _equal(got: Any, want: Any) -> bool:
    if isinstance(got, (int, float, complex)) and isinstance(want, (int, float, complex)):
        return got == want or abs(got - want) <= 1e-2 * abs(want) or got != got
    return got == want


def _excuse(info: Any, name: str, sample: Any, kind: Any, device: str, found: dict[str, Any]) -> str | None:
    """Return why a difference is no fault of the device, None where it is one."""
    if name.startswith(UNWRITTEN):
        return "unwritten memory: any value is right"
    if name in NOT_UNIQUE:
        return NOT_UNIQUE[name]
    wanted = opinfo_calls.results(opinfo_calls.run(info, sample, "cpu", 64, kind))
    if any(_differs(info, sample, kind, wanted, seed) for seed in range(1, 1 + SEEDS)):
        return "random numbers: two runs on the CPU differ as well"
    nudged = (opinfo_calls.results(opinfo_calls.run(info, sample, "cpu", 64, kind, nudge=True)) for _ in range(3))
    moved = [_compared(one, wanted, sample, kind) for one in nudged]
    change = max((one["max_abs_err"] for one in moved if one), default=0.0)
    if not found["not_finite"] and found["max_abs_err"] <= PERTURBED[_name(kind)] * change:
        return "badly conditioned: rounding its inputs alone changes the result as much"
    if _cancels(opinfo_calls.results(opinfo_calls.run(info, sample, device, None, kind)), wanted, sample, kind):
        return "its exact result is zero: what is left of rounding has nothing to be compared with"
    if device != "cpu":
        same = _compared(opinfo_calls.results(opinfo_calls.run(info, sample, "cpu", None, kind)), wanted, sample, kind)
        if same and (same["not_finite"] or same["outside"]):
            return "the CPU in this dtype differs from float64 as well"
    return None


def _differs(info: Any, sample: Any, kind: Any, wanted: list[Any], seed: int) -> bool:
    """Tell whether the CPU itself gives something else in another run."""
    import torch

    torch.manual_seed(seed)
    again = _compared(opinfo_calls.results(opinfo_calls.run(info, sample, "cpu", 64, kind)), wanted, sample, kind)
    return again is None or bool(again["outside"] or again["not_finite"])


def _cancels(made: list[Any], wanted: list[Any], sample: Any, kind: Any) -> bool:
    """Tell whether all that is outside has a reference of zeros and is less than one rounding of the largest input."""
    if len(made) != len(wanted):
        return False
    largest = max(
        (float(x.abs().max()) for x in opinfo_calls.tensors(sample) if x.is_floating_point() and x.numel()), default=0.0
    )
    pairs = [(_pair(got, want, 1, kind), want) for got, want in zip(made, wanted, strict=True)]
    wrong = [(one, want) for one, want in pairs if one and (one["outside"] or one["not_finite"])]
    least = tolerance.EPSILON[_name(kind)] * largest
    return bool(wrong) and all(one["max_abs_err"] <= least and not bool((want != 0).any()) for one, want in wrong)


def _name(kind: Any) -> str:
    return str(kind).removeprefix("torch.")
