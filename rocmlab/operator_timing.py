"""How long do single calls of an operator take, and does memory grow with them? Inside a worker."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable
from typing import Any

import psutil

from rocmlab import operator_inputs as inputs
from rocmlab import timing, tolerance
from rocmlab.operators.check import Check

MIN_CALLS, MAX_CALLS = 6, 30
STEADY_S = 0.01  # time for steady calls beyond the first six; half a thousand checks have to fit into a minute
STEADY_MOST_S = 0.6  # no further call begins after this
SUSPECT_BYTES = 1 << 20  # growth over the steady calls beyond which as many calls are made again
CPU_CALLS = 3  # on a CPU subject, where no speed is judged: enough for a first call beside a steady one

last: dict[str, Any] = {}  # the call that was timed last in this worker, for further evidence about it
_cpu: dict[str, Any] = {}


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


def row(check: Check, dtype: str, device: str) -> dict[str, Any]:
    """Time steady calls, and see whether memory grows from call to call."""
    import torch

    tensors, timed = inputs.timed(check, dtype, device, device)
    call = functools.partial(inputs.call, check, tensors, dtype)
    made = inputs.flat(call())
    timed["bytes"] = sum(x.numel() * x.element_size() for x in [*tensors, *made])
    del made
    samples, growth = _grown(lambda: steady(call, device, CPU_CALLS if device == "cpu" else MAX_CALLS), device)
    if max(growth.values()) > SUSPECT_BYTES:  # an allocator that keeps what was freed does so once, a leak again
        _, again = _grown(functools.partial(_repeat, call, len(samples)), device)
        growth = {kind: min(growth[kind], again[kind]) for kind in growth}
    last.update(name=check.name, dtype=dtype, call=call)
    found = {"steady_ms": samples, "timed": timed, "growth": {**growth, "calls": len(samples)}}
    return {**found, "threads": torch.get_num_threads()}


def _repeat(call: Callable[[], Any], times: int) -> None:
    for _ in range(times):
        call()


def _grown(work: Callable[[], Any], device: str) -> tuple[Any, dict[str, int]]:
    """Do some work; return (its result, by how many bytes memory on device and host has grown)."""
    gc.collect()
    gc.freeze()  # what lives now need not be looked through again: that took more time than most operators
    before = _memory(device)
    done = work()
    gc.collect()
    after = _memory(device)
    return done, {f"{kind}_growth_bytes": after[kind] - before[kind] for kind in after if before[kind] is not None}


def _memory(device: str) -> dict[str, Any]:
    import torch

    held = torch.cuda.memory_allocated(device) if device != "cpu" else None
    return {"device": held, "host": psutil.Process().memory_info().rss}


def on_cpu(check: Check, subject: str) -> dict[str, Any]:
    """Time the same operator on the CPU in float32, the dtype that CPUs are best at; measured once a worker."""
    if check.name not in _cpu:
        dtype = check.dtypes[0] if check.dtypes[0] not in tolerance.EPSILON or check.keyword else "float32"
        call = functools.partial(inputs.call, check, inputs.timed(check, dtype, "cpu", subject)[0], dtype)
        call()
        _cpu[check.name] = {"dtype": dtype, "steady_ms": steady(call, "cpu")}
    return _cpu[check.name]
