"""What else can be known about an operator that has just run: does it wait in secret, and which kernels did it start?

Inside a worker, after operator_trial.trial(), as a call of its own: what dies here does not cost the operator's value.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from rocmlab import operator_inputs as inputs
from rocmlab import operator_timing, operators, timing

SPIN_MS = (4.0, 60.0)  # shortest and longest wait that is put in front to see whether a call waits for it
WAITED_SHARE = 0.8  # of the wait in front: a call that comes back sooner did not wait for it
TRIES = 3  # how often a call must have waited to be said to wait
TEXT_KEPT = 500

_state: dict[str, Any] = {}


def evidence(catalogue: str, name: str, dtype: str, device: str) -> dict[str, Any]:
    """Return hidden synchronisation, kernels and CPU times of a check whose trial() has just run in this worker.

    Each part that cannot be had is null with a reason; none of them can make the operator's own result worse.
    """
    check, last = operators.load(catalogue)[name], operator_timing.last
    if (last.get("name"), last.get("dtype")) != (name, dtype):
        return {"reason": "the worker that ran this operator is gone"}
    call = last["call"]
    found: dict[str, Any] = {}
    if device != "cpu":
        found["sync"] = _quietly(lambda: waits(call, device))
        found["kernels"] = _quietly(lambda: kernels(call, device))
        if check.needs is None:
            found["cpu"] = _quietly(lambda: operator_timing.on_cpu(check, device))
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

    torch's own check (set_sync_debug_mode) sees what torch does; this sees a library's waiting too. A call is said to
    wait only if it did so every time, because a host that was busy elsewhere looks the same once.
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
    found: dict[str, Any] = {}
    for _ in range(TRIES):
        found = {"host_ms": host_ms, **_behind_a_wait(call, device, spin_ms)}
        if not found.get("waited"):
            break
    return found


def _behind_a_wait(call: Callable[[], Any], device: str, spin_ms: float) -> dict[str, Any]:
    """Return whether the wait was over when the call came back, and how long that took."""
    import torch

    done = torch.cuda.Event()
    torch.cuda._sleep(int(spin_ms * _ticks_per_ms(device)))
    done.record()
    began = time.perf_counter()
    call()
    came_back_ms = 1000 * (time.perf_counter() - began)
    over = done.query()
    timing.synchronise(device)
    found = {"spin_ms": spin_ms, "came_back_ms": came_back_ms}
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
        single, double = min(spin(ticks) for _ in range(3)), min(spin(2 * ticks) for _ in range(3))
        _state["ticks"] = ticks / (double - single) if 1.5 < double / single < 2.5 else None
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


def once(catalogue: str, name: str, dtype: str, device: str) -> None:
    """Run a check once on its random inputs, for a library's log: nothing else may write into it."""
    check = operators.load(catalogue)[name]
    inputs.call(check, [x.to(device) for x in inputs.make(check, "random", check.inputs, dtype)], dtype)
    timing.synchronise(device)
