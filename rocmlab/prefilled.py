"""How long does the device work on a step that it was given whole? A prefilled queue: spin first, queue behind it.

While the device spins, the host queues the step; then the device works through it without waiting for the host. The
reading counts only if queueing took less than half the spin (`ledger_quantities.queue_counts`): a launch queue holds
about 1,024 launches, and behind a full one the host waits for the device. The spin is as long as it was seen to be, not
as long as it was meant: a card that was calibrated at low clocks spins shorter once they have risen.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rocmlab import clock, timing

LONGEST_MS = 300.0  # of a spin: Windows resets a driver that does not answer for 2 s
CALIBRATED_MS = 2.0
TINY = 400  # kernels of the chain that measures the gap between two


def cycles_a_ms(device: str) -> float:
    """Return how many cycles of torch.cuda._sleep take one ms here, against the wall clock."""
    import torch

    def spin(cycles: int) -> float:
        return min(clock.timed(lambda: torch.cuda._sleep(cycles), device) for _ in range(3))

    cycles = 10_000
    while (ms := spin(cycles)) < CALIBRATED_MS and cycles < 1 << 32:
        cycles *= 2
    waiting = min(clock.timed(lambda: None, device) for _ in range(3))
    if ms < CALIBRATED_MS or ms <= waiting:
        raise RuntimeError(f"a spin of {cycles:,} cycles takes {ms:.3g} ms: torch.cuda._sleep does not spin here")
    return cycles / (ms - waiting)


def read(device: str, work: Callable[[], Any], spin_ms: float, rate: float, events: bool) -> dict[str, float]:
    """Return {ms, enqueue_ms, spin_ms}: device time of `work` behind a spin, by events or as wall time less the spin's
    own; how long queueing took; and how long the spin was, by the wall clock."""
    import torch

    cycles = round(min(spin_ms, LONGEST_MS) * rate)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    alone = 0.0 if events else clock.timed(lambda: torch.cuda._sleep(cycles), device)
    timing.synchronise(device)
    began = time.perf_counter()
    torch.cuda._sleep(cycles)
    start.record()
    work()
    end.record()
    filled = time.perf_counter()
    timing.synchronise(device)
    done = time.perf_counter()
    whole = 1000 * (done - began)
    ms = start.elapsed_time(end) if events else whole - alone
    return {"ms": ms, "enqueue_ms": 1000 * (filled - began), "spin_ms": whole - ms}


def chain(device: str) -> Callable[[], None]:
    """Return a chain of TINY kernels, each waiting for the one before."""
    import torch

    value = torch.zeros(1, device=torch.device(device))

    def work() -> None:
        for _ in range(TINY):
            value.add_(1.0)

    return work
