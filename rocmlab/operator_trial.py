"""One operator in one dtype on one device: its value on every set of inputs, its gradient, its first call and its time.

`begin(device)` once in each worker, then `trial(...)`; witnesses.py brings further evidence. Nothing is judged here.
"""

from __future__ import annotations

import contextlib
import gc
import time
import traceback
import warnings
from typing import Any

from rocmlab import operator_inputs as inputs
from rocmlab import operator_timing, operators, sensors, switches, timing, tolerance
from rocmlab.operators.check import Check, Maker, seeded

GRAD_TERMS = 1024  # a gradient sums over the rows of its inputs
WARNINGS_KEPT, TEXT_KEPT = 5, 500


def begin(device: str) -> dict[str, Any]:
    """Wake torch and the device, so that no operator pays for it; return what this build can tell."""
    import torch

    torch.set_warn_always(True)
    if device != "cpu":
        torch.cuda.set_device(torch.device(device))
    value = torch.ones(64, 64, device=device)
    timing.synchronise(device)
    result = float((value @ value).sum())
    gc.freeze()  # torch's own objects need not be looked through at every collection
    return {"torch": torch.__version__, "sum": result, "threads": torch.get_num_threads()}


def trial(catalogue: str, name: str, dtype: str, device: str, off: bool = False) -> dict[str, Any]:
    """Run one check: value on every input, gradient, first call, steady calls, memory; `off`: with its library off.

    Returns a row; an exception of the operator stands in it as `error`, with the inputs already tried.
    """
    import torch

    check = operators.load(catalogue)[name]
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
    row: dict[str, Any] = {"inputs": [], "error": None, "precision": _precision(check, dtype, device)}
    with switches.switched(check.library, off, device) as switch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        row["switch"] = switch
        try:
            for given, makers in inputs.sets(check, device):
                row["inputs"].append(_value(check, given, makers, dtype, device, row))
            if check.grad and _has_gradient(check, dtype, device):
                row["gradient"] = _gradient(check, dtype, device, row["precision"])
            if check.timed:
                row.update(operator_timing.row(check, dtype, device), **sensors.sparse(device))
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"[:4000]
            row["where"] = traceback.format_exc(limit=-3)[-1500:]
            _tidy()
    row["warnings"] = _texts(caught)
    row["memory"] = {"peak_bytes": torch.cuda.max_memory_allocated(device) if device != "cpu" else None}
    return row


def _texts(caught: list[warnings.WarningMessage]) -> list[str]:
    ours = [w for w in caught if not issubclass(w.category, (DeprecationWarning, FutureWarning))]  # of Python code
    said = [f"{w.category.__name__}: {w.message}".strip()[:TEXT_KEPT] for w in ours]
    return list(dict.fromkeys(said))[:WARNINGS_KEPT]


def _tidy() -> None:
    import torch

    gc.collect()
    with contextlib.suppress(Exception):
        torch.cuda.empty_cache()


def _precision(check: Check, dtype: str, device: str) -> str:
    """Return the precision of the arithmetic: cuDNN computes float32 in TF32 unless told otherwise."""
    import torch

    if dtype != "float32" or device == "cpu" or torch.version.hip is not None:
        return dtype
    if torch.cuda.get_device_capability(device)[0] < 8:
        return dtype
    convolution = check.library == "dnn" and torch.backends.cudnn.allow_tf32
    return "tf32" if convolution or (check.library == "blas" and torch.backends.cuda.matmul.allow_tf32) else dtype


# ---- value


def _value(check: Check, given: str, makers: tuple[Maker, ...], dtype: str, device: str, row: dict) -> dict[str, Any]:
    """Run on one set of inputs and compare; the very first call is timed."""
    cpu = inputs.make(check, given, makers, dtype)
    tensors = [x.to(device, copy=True) for x in cpu]  # on a CPU too: the reference needs inputs that nobody wrote to
    timing.synchronise(device)
    began = time.perf_counter()
    made = inputs.flat(inputs.call(check, tensors, dtype))
    timing.synchronise(device)
    first_ms = 1000 * (time.perf_counter() - began)
    if given == "random":
        row["first_ms"] = first_ms
        row["device"] = _device(made, device)
        row["result_dtype"] = str(made[0].dtype).removeprefix("torch.") if made else None
    found: dict[str, Any] = {"inputs": given, "shapes": [list(x.shape) for x in cpu], "first_ms": first_ms}
    large = given.startswith("large") and check.by_row
    wanted = None if large else inputs.reference(check, cpu, dtype)
    found |= _sampled(check, cpu, made, dtype, row) if wanted is None else _compared(check, made, wanted, row)
    if check.by_row and (found["not_finite"] or found["outside"]):
        found["pieces"] = _pieces(check, cpu, dtype, device, row)
    changed = _changed(cpu, tensors) if given == "random" else 0
    return {**found, "outside": found["outside"] + changed, "inputs_changed": changed}


def _device(made: list[Any], device: str) -> str | None:
    """Return the device of the results: of the first that lies elsewhere than asked, if one does."""
    import torch

    elsewhere = [one for one in made if one.device.type != torch.device(device).type]
    return str([*elsewhere, *made][0].device) if made else None


def _changed(before: list[Any], after: list[Any]) -> int:
    """Return how many elements of its own inputs an operator has written to: no check of a catalogue may."""
    return sum(int((x != y.to("cpu")).sum()) for x, y in zip(before, after, strict=True))


def _compared(check: Check, made: list[Any], wanted: list[Any], row: dict) -> dict[str, Any]:
    """Compare all results of one call; counts are summed, errors are the largest."""
    precision = row["precision"]
    parts = [
        tolerance.compare(got, want, precision, check.terms, check.steps, check.atol)
        for got, want in zip(made, wanted, strict=True)
    ]
    wrong = [part for part in parts if "shape_expected" in part]
    if wrong:
        return {"not_finite": 0, "outside": 1, "max_abs_err": None, "over_tolerance": None, **wrong[0]}
    return {
        "elements": sum(part["elements"] for part in parts),
        "not_finite": sum(part["not_finite"] for part in parts),
        "outside": sum(part["outside"] for part in parts),
        "max_abs_err": max(part["max_abs_err"] for part in parts),
        "over_tolerance": _largest([part["over_tolerance"] for part in parts]),
        "reference_rms": max(part["reference_rms"] for part in parts),
    }


def _largest(values: list[float | None]) -> float | None:
    return None if None in values else max((v for v in values if v is not None), default=0.0)


def _sampled(check: Check, cpu: list[Any], made: list[Any], dtype: str, row: dict) -> dict[str, Any]:
    """Check a large result: every element finite on the device, and a spread of rows against float64."""
    import torch

    rows = cpu[0].shape[0]
    spread = torch.linspace(0, rows - 1, min(check.compared, rows)).long()
    index = spread if check.compared > 1 else torch.tensor([rows - 1])
    few = [cpu[0][index], *(x[index] if x.shape[:1] == cpu[0].shape[:1] and x.dim() > 2 else x for x in cpu[1:])]
    found = _compared(check, [m[index.to(m.device)] for m in made], inputs.reference(check, few, dtype), row)
    lost = sum(int((~torch.isfinite(m)).sum()) for m in made if not torch.isfinite(m.sum(dtype=torch.float64)))
    return {**found, "rows_compared": len(index), "rows": rows, "not_finite": max(found["not_finite"], lost)}


def _pieces(check: Check, cpu: list[Any], dtype: str, device: str, row: dict) -> dict[str, Any]:
    """Try a wrong one again in eight pieces of its first dimension: wrong as a whole, right in pieces?"""
    import torch

    each = []
    for index in torch.arange(cpu[0].shape[0]).chunk(8):
        few = [cpu[0][index], *(x[index] if x.shape[:1] == cpu[0].shape[:1] and x.dim() > 2 else x for x in cpu[1:])]
        made = inputs.flat(inputs.call(check, [x.to(device) for x in few], dtype))
        each.append(_compared(check, made, inputs.reference(check, few, dtype), row))
    return {"pieces": len(each), **{k: sum(one[k] for one in each) for k in ("not_finite", "outside")}}


# ---- gradient


def _has_gradient(check: Check, dtype: str, device: str) -> bool:
    """Gradients are tried in float32, and in 16 bit where a library or a fused kernel has one of its own."""
    fused = check.library is not None or check.family == "attention"
    return dtype == "float32" or (fused and device != "cpu")


def _gradient(check: Check, dtype: str, device: str, precision: str) -> dict[str, Any]:
    """Compare the gradients of a weighted sum of the outputs with float64 autograd on the CPU."""
    cpu = inputs.make(check, "random", check.inputs, dtype)
    got = _grads(check, [x.to(device) for x in cpu], dtype)
    timing.synchronise(device)
    wanted = _grads(check, inputs.exact(cpu), dtype)
    terms, steps = max(check.terms, GRAD_TERMS), check.steps + 3
    parts = [tolerance.compare(g, w, precision, terms, steps) for g, w in zip(got, wanted, strict=True)]
    return {
        "not_finite": sum(part.get("not_finite", 0) for part in parts),
        "outside": sum(part.get("outside", 1) for part in parts),
        "over_tolerance": _largest([part["over_tolerance"] for part in parts]),
    }


def _grads(check: Check, tensors: list[Any], dtype: str) -> list[Any]:
    import torch

    given = [x.detach().requires_grad_(x.is_floating_point()) for x in tensors]
    leaves = [x for x in given if x.requires_grad]
    total: Any = 0
    for number, out in enumerate(inputs.flat(inputs.call(check, given, dtype))):
        if not (out.is_floating_point() and out.requires_grad):
            continue
        weight = torch.randn(out.shape, generator=seeded(torch, f"{check.name} {number}")).to(torch.bfloat16)
        total = total + (out * weight.to(out.device, out.dtype)).sum(dtype=_wide(out))
    return [g for g in torch.autograd.grad(total, leaves, allow_unused=True) if g is not None]


def _wide(out: Any) -> Any:
    """Sum in float32 at least: a 16 bit sum of a million products would hide the operator's own error."""
    import torch

    return torch.float64 if out.dtype == torch.float64 else torch.float32
