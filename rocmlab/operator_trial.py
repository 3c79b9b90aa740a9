"""One operator in one dtype on one device: everything that can be known about it, measured inside a worker.

`begin(device)` once in each worker, then `trial(...)` for value, gradient and time, and `evidence(...)` for what comes
on top (hidden synchronisation, kernels, the CPU beside it). Two calls, so that a profiler that dies does not cost the
value. Nothing is judged here.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import psutil

from rocmlab import operators, timing, tolerance
from rocmlab.operators.check import Check, Maker, seeded

MIN_CALLS, MAX_CALLS = 6, 30
STEADY_S = 0.03  # time for steady calls beyond the first six
STEADY_MOST_S = 0.6  # no further call begins after this
CPU_CALLS = 3  # on a CPU subject, where no speed is judged: enough for a first call beside a steady one
GRAD_TERMS = 1024  # a gradient sums over the rows of its inputs
WARNINGS_KEPT, TEXT_KEPT = 5, 500
SPIN_MS = (4.0, 60.0)  # shortest and longest wait that is put in front to see whether a call waits for it

WAITED_SHARE = 0.8  # of the wait in front: a call that comes back sooner did not wait for it

_state: dict[str, Any] = {}


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
    with _switched(check.library, off) as switch, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        row["switch"] = switch
        try:
            for given, makers in _inputs(check, device):
                row["inputs"].append(_value(check, given, makers, dtype, device, row))
            if check.grad and _has_gradient(check, dtype, device):
                row["gradient"] = _gradient(check, dtype, device, row["precision"])
            if check.timed:
                row.update(_steady_row(check, dtype, device))
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


# ---- inputs and reference


def _inputs(check: Check, device: str) -> Iterator[tuple[str, tuple[Maker, ...]]]:
    yield "random", check.inputs
    left_out = "large" if device == "cpu" else "large_cpu"
    for given, makers in check.more.items():
        if given != left_out:
            yield given, makers


def _make(check: Check, given: str, makers: tuple[Maker, ...], dtype: str) -> list[Any]:
    """Return inputs on the CPU, floating ones rounded to the dtype (autocast keeps its inputs in float32)."""
    import torch

    generator = seeded(torch, f"{check.name} {given}")
    made = [make(torch, generator) for make in makers]
    kind = torch.float32 if check.keyword else getattr(torch, dtype)
    return [x.to(kind) if x.is_floating_point() else x for x in made]


def _call(check: Check, tensors: list[Any], dtype: str) -> Any:
    import torch

    return check.run(torch, *tensors, **({"dtype": dtype} if check.keyword else {}))


def _exact(tensors: list[Any]) -> list[Any]:
    return [x.double() if x.is_floating_point() else x for x in tensors]


def _reference(check: Check, tensors: list[Any], dtype: str) -> list[Any]:
    import torch

    if check.reference is not None:
        return _flat(check.reference(torch, *_exact(tensors)))
    return _flat(_call(check, _exact(tensors), dtype))


def _flat(made: Any) -> list[Any]:
    """Return the tensors of a result, whatever tuple or list they are in."""
    if isinstance(made, (list, tuple)):
        return [tensor for part in made for tensor in _flat(part)]
    return [made]


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
    cpu = _make(check, given, makers, dtype)
    tensors = [x.to(device) for x in cpu]
    timing.synchronise(device)
    began = time.perf_counter()
    made = _flat(_call(check, tensors, dtype))
    timing.synchronise(device)
    first_ms = 1000 * (time.perf_counter() - began)
    if given == "random":
        row["first_ms"] = first_ms
        row["device"] = str(made[0].device) if made else None
        row["result_dtype"] = str(made[0].dtype).removeprefix("torch.") if made else None
    found = {"inputs": given, "shapes": [list(x.shape) for x in cpu], "first_ms": first_ms}
    large = given.startswith("large") and check.by_row
    found |= _sampled(check, cpu, made, dtype, row) if large else _whole(check, cpu, made, dtype, row)
    if check.by_row and (found["not_finite"] or found["outside"]):
        found["pieces"] = _pieces(check, cpu, dtype, device, row)
    return found


def _whole(check: Check, cpu: list[Any], made: list[Any], dtype: str, row: dict) -> dict[str, Any]:
    return _compared(check, made, _reference(check, cpu, dtype), row)


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
    found = _compared(check, [m[index.to(m.device)] for m in made], _reference(check, few, dtype), row)
    lost = sum(int((~torch.isfinite(m)).sum()) for m in made if not torch.isfinite(m.sum(dtype=torch.float64)))
    return {**found, "rows_compared": len(index), "rows": rows, "not_finite": max(found["not_finite"], lost)}


def _pieces(check: Check, cpu: list[Any], dtype: str, device: str, row: dict) -> dict[str, Any]:
    """Try a wrong one again in eight pieces of its first dimension: wrong as a whole, right in pieces?"""
    import torch

    each = []
    for index in torch.arange(cpu[0].shape[0]).chunk(8):
        few = [cpu[0][index], *(x[index] if x.shape[:1] == cpu[0].shape[:1] and x.dim() > 2 else x for x in cpu[1:])]
        made = _flat(_call(check, [x.to(device) for x in few], dtype))
        each.append(_compared(check, made, _reference(check, few, dtype), row))
    return {"pieces": len(each), **{k: sum(one[k] for one in each) for k in ("not_finite", "outside")}}


# ---- gradient


def _has_gradient(check: Check, dtype: str, device: str) -> bool:
    """Gradients are tried in float32, and in 16 bit where a library or a fused kernel has one of its own."""
    fused = check.library is not None or check.family == "attention"
    return dtype == "float32" or (fused and device != "cpu")


def _gradient(check: Check, dtype: str, device: str, precision: str) -> dict[str, Any]:
    """Compare the gradients of a weighted sum of the outputs with float64 autograd on the CPU."""
    cpu = _make(check, "random", check.inputs, dtype)
    got = _grads(check, [x.to(device) for x in cpu], dtype)
    timing.synchronise(device)
    wanted = _grads(check, _exact(cpu), dtype)
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
    for number, out in enumerate(_flat(_call(check, given, dtype))):
        if not (out.is_floating_point() and out.requires_grad):
            continue
        weight = torch.randn(out.shape, generator=seeded(torch, f"{check.name} {number}")).to(torch.bfloat16)
        total = total + (out * weight.to(out.device, out.dtype)).sum(dtype=_wide(out))
    return [g for g in torch.autograd.grad(total, leaves, allow_unused=True) if g is not None]


def _wide(out: Any) -> Any:
    """Sum in float32 at least: a 16 bit sum of a million products would hide the operator's own error."""
    import torch

    return torch.float64 if out.dtype == torch.float64 else torch.float32


# ---- time and memory


def steady(call: Callable[[], Any], device: str, most: int = MAX_CALLS) -> list[float]:
    """Return times of single calls in ms, synchronised at both ends, at least six unless they are very slow."""
    samples: list[float] = []
    spent = 0.0
    while len(samples) < most and (spent < STEADY_S or len(samples) < MIN_CALLS) and spent < STEADY_MOST_S:
        timing.synchronise(device)
        began = time.perf_counter()
        call()
        timing.synchronise(device)
        seconds = time.perf_counter() - began
        samples.append(round(1000 * seconds, 5))
        spent += seconds
    return samples


def _steady_row(check: Check, dtype: str, device: str) -> dict[str, Any]:
    """Time steady calls, and see whether memory grows from call to call."""
    import torch

    tensors, timed = _timed(check, dtype, device, device)
    call = functools.partial(_call, check, tensors, dtype)
    made = _flat(call())
    timed["bytes"] = sum(x.numel() * x.element_size() for x in [*tensors, *made])
    del made
    gc.collect()
    before = _memory(device)
    samples = steady(call, device, CPU_CALLS if device == "cpu" else MAX_CALLS)
    gc.collect()
    after = _memory(device)
    _state["last"] = (check.name, dtype, call)
    growth = {f"{kind}_growth_bytes": after[kind] - before[kind] for kind in after if before[kind] is not None}
    found = {"steady_ms": samples, "timed": timed, "growth": {**growth, "calls": len(samples)}}
    return {**found, "threads": torch.get_num_threads()}


def _timed(check: Check, dtype: str, device: str, subject: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what steady calls are timed on, on this device, and what that is: as large as an accelerator deserves."""
    name = check.timed_on if subject != "cpu" and check.timed_on in check.more else "random"
    grow = check.grow if subject != "cpu" else 1
    tensors = [x.to(device) for x in _make(check, name, check.more.get(name, check.inputs), dtype)]
    rows = tensors[0].shape[0] if tensors else 0
    if grow > 1:
        tensors = [x.repeat(grow, *[1] * (x.dim() - 1)) if x.shape[:1] == (rows,) else x for x in tensors]
    shapes = [list(x.shape) for x in tensors]
    return tensors, {"inputs": name, "shapes": shapes, "flop": check.flop(shapes) if check.flop else None}


def _memory(device: str) -> dict[str, Any]:
    import torch

    held = torch.cuda.memory_allocated(device) if device != "cpu" else None
    return {"device": held, "host": psutil.Process().memory_info().rss}


def once(catalogue: str, name: str, dtype: str, device: str) -> None:
    """Run a check once on its random inputs, for a library's log: nothing else may write into it."""
    check = operators.load(catalogue)[name]
    _call(check, [x.to(device) for x in _make(check, "random", check.inputs, dtype)], dtype)
    timing.synchronise(device)


# ---- the library off


@contextlib.contextmanager
def _switched(library: str | None, off: bool) -> Iterator[str | None]:
    """Switch a library off (or, for BLAS, to the other one) while inside; yields what was done, in words."""
    import torch

    if not off or library is None:
        yield None
        return
    on_gpu = torch.cuda.is_available()
    if library == "dnn" or not on_gpu:
        backend: Any = torch.backends.cudnn if on_gpu else torch.backends.mkldnn
        name = "oneDNN" if not on_gpu else "MIOpen" if torch.version.hip else "cuDNN"
        backend.enabled = False  # the attribute, because flags() would change the precision as well
        try:
            yield f"{name} off" if backend.is_available() else None
        finally:
            backend.enabled = True
    else:
        before = torch.backends.cuda.preferred_blas_library()
        other = "cublas" if "lt" in str(before).lower() else "cublaslt"
        after = torch.backends.cuda.preferred_blas_library(other)
        try:
            name = str(after).rsplit(".", 1)[-1]
            yield f"{name} instead of {str(before).rsplit('.', 1)[-1]}" if after != before else None
        finally:
            torch.backends.cuda.preferred_blas_library(before)


# ---- further evidence


def evidence(catalogue: str, name: str, dtype: str, device: str) -> dict[str, Any]:
    """Return hidden synchronisation, kernels and CPU times of a check whose trial() has just run in this worker.

    Each part that cannot be had is null with a reason; none of them can make the operator's own result worse.
    """
    check = operators.load(catalogue)[name]
    if _state.get("last", ("",))[:2] != (name, dtype):
        return {"reason": "the worker that ran this operator is gone"}
    call = _state["last"][2]
    found: dict[str, Any] = {}
    if device != "cpu":
        found["sync"] = _quietly(lambda: waits(call, device))
        found["kernels"] = _quietly(lambda: kernels(call, device))
        if check.needs is None:
            found["cpu"] = _quietly(lambda: _cpu_times(check, device))
    return found


def _quietly(measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return measure()
    except Exception as error:
        return {"reason": f"{type(error).__name__}: {error}".splitlines()[0][:TEXT_KEPT]}


def waits(call: Callable[[], Any], device: str) -> dict[str, Any]:
    """Put a long wait on the device, call the operator, and look whether the call came back before the wait ended.

    torch's own check (set_sync_debug_mode) sees what torch does; this sees a library's waiting too.
    """
    import torch

    if not hasattr(torch.cuda, "_sleep"):
        return {"reason": "this build has no device-side wait"}
    call()
    timing.synchronise(device)
    began = time.perf_counter()
    call()
    host_ms = 1000 * (time.perf_counter() - began)
    timing.synchronise(device)
    spin_ms = min(max(SPIN_MS[0], 4 * host_ms), SPIN_MS[1])
    if host_ms > SPIN_MS[1] / 2:
        return {"reason": f"one call takes {host_ms:.0f} ms of host time, too long for this method"}
    done = torch.cuda.Event()
    torch.cuda._sleep(int(spin_ms * _ticks_per_ms(device)))
    done.record()
    began = time.perf_counter()
    call()
    came_back_ms = 1000 * (time.perf_counter() - began)
    over = done.query()
    timing.synchronise(device)
    found = {"spin_ms": spin_ms, "host_ms": host_ms, "came_back_ms": came_back_ms}
    if over and came_back_ms < WAITED_SHARE * spin_ms:
        return {**found, "reason": "the wait was over before the call came back, but not by the clock"}
    return {**found, "waited": over}


def _ticks_per_ms(device: str) -> float:
    """Calibrate the device-side wait against the wall clock, once a worker: its clock differs by card.

    Raises RuntimeError when twice the ticks do not take about twice the time, so that nothing is built on it.
    """
    import torch

    def spin(ticks: int) -> float:
        timing.synchronise(device)
        began = time.perf_counter()
        torch.cuda._sleep(ticks)
        timing.synchronise(device)
        return 1000 * (time.perf_counter() - began)

    if "ticks" not in _state:
        spin(1000)  # the first call loads its kernel
        ticks = 100_000
        while spin(ticks) < 2.0 and ticks < 1 << 30:
            ticks *= 2
        once, twice = min(spin(ticks) for _ in range(3)), min(spin(2 * ticks) for _ in range(3))
        _state["ticks"] = ticks / (twice - once) if 1.5 < twice / once < 2.5 else None
    if _state["ticks"] is None:
        raise RuntimeError("the device-side wait does not follow the wall clock")
    return _state["ticks"]


def kernels(call: Callable[[], Any], device: str) -> dict[str, Any]:
    """Return the kernels of one call as torch.profiler names them, null where it is blind."""
    import torch
    from torch.profiler import ProfilerActivity, profile, supported_activities

    if ProfilerActivity.CUDA not in supported_activities():
        return {"names": None, "reason": "torch.profiler of this build cannot see the device"}
    timing.synchronise(device)
    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        call()
        timing.synchronise(device)
    names = [e.name for e in prof.events() if e.device_type != torch.autograd.DeviceType.CPU]
    return {"names": sorted(set(names)), "launches": len(names)}


def _cpu_times(check: Check, subject: str) -> dict[str, Any]:
    """Time the same operator on the CPU in float32, the dtype that CPUs are best at; measured once a worker."""
    kept = _state.setdefault("cpu", {})
    if check.name not in kept:
        dtype = check.dtypes[0] if check.dtypes[0] not in tolerance.EPSILON or check.keyword else "float32"
        call = functools.partial(_call, check, _timed(check, dtype, "cpu", subject)[0], dtype)
        call()
        kept[check.name] = {"dtype": dtype, "steady_ms": steady(call, "cpu")}
    return kept[check.name]
