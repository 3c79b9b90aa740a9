"""Faults to plant into a model, one a layer: what the ledger must then find. For `rocmlab selftest` and the tests.

Each is a forward hook on every decoder layer, inside `planted(model, fault)`; the hidden state goes on unchanged.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

Fault = Callable[[Any, dict[str, Any]], Any]  # (hidden state, keywords of the layer) -> hidden state


@contextlib.contextmanager
def planted(model: Any, fault: Fault, first_only: bool = False) -> Iterator[None]:
    """Let a fault work behind every layer (or the first one only) inside the context."""

    def hook(_: Any, args: Any, kwargs: dict[str, Any], out: Any) -> Any:
        if isinstance(out, tuple):  # layers before transformers 5
            return (fault(out[0], kwargs), *out[1:])
        return fault(out, kwargs)

    layers = list(model.model.layers)[: 1 if first_only else None]
    handles = [layer.register_forward_hook(hook, with_kwargs=True) for layer in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def nothing(hidden: Any, _: dict[str, Any]) -> Any:
    """Do nothing: the control."""
    return hidden


def host_delay(ms: float, now: Callable[[], float] = time.perf_counter) -> Fault:
    """Keep the host busy for so long on a clock, as slow Python would."""

    def fault(hidden: Any, _: dict[str, Any]) -> Any:
        until = now() + ms / 1000
        while now() < until:
            pass
        return hidden

    return fault


def device_spin(cycles: int) -> Fault:
    """Keep a GPU busy, with a single launch."""
    import torch

    def fault(hidden: Any, _: dict[str, Any]) -> Any:
        torch.cuda._sleep(cycles)
        return hidden

    return fault


ROWS = 64  # of the product: enough for arithmetic to bind, so that its time does not hang on where the matrix lies


class CpuWork:
    """Multiply ROWS copies of the hidden state by a matrix of its width x `share` of its width.

    The time goes with the width's square, so that a model of tiny width has almost nothing of it. `times_ms` holds what
    each product took, by width.
    """

    def __init__(self, share: float, now: Callable[[], float] = time.perf_counter) -> None:
        self.share, self.now = share, now
        self.matrices: dict[int, Any] = {}
        self.times_ms: dict[int, list[float]] = {}

    def __call__(self, hidden: Any, _: dict[str, Any]) -> Any:
        import torch

        width = hidden.shape[-1]
        if width not in self.matrices:
            self.matrices[width] = torch.randn(max(1, round(self.share * width)), width, dtype=hidden.dtype)
        began = self.now()
        torch.nn.functional.linear(hidden[:, -1].expand(ROWS, width), self.matrices[width])
        self.times_ms.setdefault(width, []).append(1000 * (self.now() - began))
        return hidden


def share_for(ms: float, width: int, now: Callable[[], float] = time.perf_counter) -> float:
    """Return the share of CpuWork that takes about `ms` at a width; tried, and tried again near the answer."""
    import torch

    share, hidden = 1.0, torch.randn(1, 1, width)
    for _ in range(3):
        share = max(1 / width, share * ms / _median_ms(partial(CpuWork(share), hidden, {}), now))
    return share


def _median_ms(task: Callable[[], Any], now: Callable[[], float]) -> float:
    times = []
    task()
    for _ in range(9):
        began = now()
        task()
        times.append(1000 * (now() - began))
    return max(statistics.median(times), 1e-6)


def fallback(hidden: Any, _: dict[str, Any]) -> Any:
    """Do one operator elsewhere: on a GPU subject on the CPU, on a CPU subject in float64; then come back."""
    import torch

    elsewhere = hidden.cpu() if hidden.is_cuda else hidden.to(torch.float64)
    return (elsewhere * 1.0).to(hidden.device, hidden.dtype)


class CompileEveryShape:
    """Compile at each length of the cache that was not seen before: generated Python, by Python's own compiler.

    `times_ms` holds what each compilation took, by width of the model.
    """

    def __init__(self, functions: int, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now
        self.times_ms: dict[int, list[float]] = {}
        self.source = "\n".join(f"def f{n}(a, b):\n    return (a + {n}) * b - a / (b + {n})" for n in range(functions))
        self.seen: set[int] = set()

    def __call__(self, hidden: Any, kwargs: dict[str, Any]) -> Any:
        cache: Any = kwargs.get("past_key_values", kwargs.get("cache"))
        length = int(cache.get_seq_length())
        if length not in self.seen:
            self.seen.add(length)
            began = self.now()
            compile(self.source, f"shape {length}", "exec")
            self.times_ms.setdefault(hidden.shape[-1], []).append(1000 * (self.now() - began))
        return hidden


def functions_for(ms: float, now: Callable[[], float] = time.perf_counter) -> int:
    """Return how many generated functions take the compiler about `ms`; tried, and tried again near the answer."""
    count = 100
    for _ in range(3):
        once = _median_ms(partial(compile, CompileEveryShape(count).source, "trial", "exec"), now)
        count = max(1, round(count * ms / once))
    return count


def foreign(work: Callable[[], Any], device: str, dtype: str) -> int:
    """Return how many operators of some work give a floating value of another device, or of float64."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    count = 0

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal count
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.is_floating_point():
                elsewhere = out.device.type != torch.device(device).type
                count += elsewhere or (out.dtype == torch.float64 and dtype != "float64")
            return out

    with Watching():
        work()
    return count
