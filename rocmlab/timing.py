"""How long did it take, how sure is that, and was anybody else at work?

`median_interval(samples)` and `ratio_interval(a, b)` are pure; `OtherWork` measures what the rest of the machine did
while a clock ran, because steadiness alone proves nothing.
"""

from __future__ import annotations

import functools
import gc
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

MIN_REPEATS = 6  # below six samples no order-statistics interval of the median reaches 95%
NOISY_PCT = 10.0  # interquartile range over median: worth a warning
VERY_NOISY_PCT = 25.0
TWO_STATES_SHARE = 0.15
OTHERS_PCT = 5.0  # share of all processor time used by other processes while a clock ran
BOOTSTRAP_ROUNDS = 2000
BOOTSTRAP_SEED = 20261201  # fixed, so that a page redrawn from its records says the same


@dataclass(frozen=True)
class Interval:
    """A median with its 95% interval; `low` and `high` are the range and `enough` is False below six samples."""

    median: float
    low: float
    high: float
    n: int
    enough: bool


def interval_rank(n: int) -> int:
    """Return k so that [x(k), x(n+1-k)], counted from 1, covers the median with at least 95%; 0 when none does.

    Distribution-free: x(k) lies above the median with probability P(Binomial(n, 1/2) < k).
    """
    tail, ways, k = 0, 1, 0  # exact: whole numbers of the 2^n ways in which n samples fall above or below
    while True:
        tail += ways
        if 40 * tail > 2**n or k >= n // 2:
            return k
        ways = ways * (n - k) // (k + 1)
        k += 1


def median_interval(samples: Sequence[float]) -> Interval | None:
    """Return the median of samples (any unit) with its interval; None when there are no samples."""
    ordered = sorted(samples)
    n = len(ordered)
    if not n:
        return None
    k = interval_rank(n)
    low, high = (ordered[k - 1], ordered[n - k]) if k else (ordered[0], ordered[-1])
    return Interval(statistics.median(ordered), low, high, n, enough=n >= MIN_REPEATS)


def spread_pct(samples: Sequence[float]) -> float | None:
    """Return the interquartile range as a percentage of the median; None below four samples."""
    if len(samples) < 4:
        return None
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return 100 * (high - low) / middle if middle else None


@dataclass(frozen=True)
class States:
    """Two groups of samples with nothing between them: their medians and sizes, and the value that parts them."""

    low: float
    high: float
    n_low: int
    n_high: int
    cut: float


def two_states(samples: Sequence[float]) -> States | None:
    """Return the two states that samples fall into, None where they do not.

    The widest gap between neighbours must be 15% of the median and wider than the range of each side, and each side
    must hold three samples: then the gap is no tail of one distribution.
    """
    ordered = sorted(samples)
    if len(ordered) < 6:
        return None
    at = max(range(3, len(ordered) - 2), key=lambda i: ordered[i] - ordered[i - 1])
    low, high, gap = ordered[:at], ordered[at:], ordered[at] - ordered[at - 1]
    if gap < TWO_STATES_SHARE * statistics.median(ordered) or gap <= max(low[-1] - low[0], high[-1] - high[0]):
        return None
    middle = (ordered[at] + ordered[at - 1]) / 2
    return States(statistics.median(low), statistics.median(high), len(low), len(high), middle)


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> Interval | None:
    """Return the median of above / below with a 95% bootstrap interval; the i-th samples are one interleaved block.

    Each block gives a ratio of its own, so that a machine which changes its pace between blocks bends neither the ratio
    nor its interval: a ratio of two medians would set a fast block of one arm against a slow one of the other.
    """
    return _ratio_interval(tuple(zip(above, below, strict=True)))


@functools.lru_cache(512)
def _ratio_interval(blocks: tuple[tuple[float, float], ...]) -> Interval | None:
    """Do so once: tables, figures and findings ask about the same samples."""
    if not blocks or not all(below for _, below in blocks):  # no ratio to nothing, which a record of others may hold
        return None
    each = [above / below for above, below in blocks]
    whole = statistics.median(each)
    if len(each) < MIN_REPEATS:
        return Interval(whole, min(each), max(each), len(each), enough=False)
    return _bootstrap(whole, len(each), lambda draw: statistics.median(draw.choices(each, k=len(each))))


def _bootstrap(whole: float, n: int, drawn: Callable[[random.Random], float]) -> Interval:
    draw = random.Random(BOOTSTRAP_SEED)
    found = sorted(drawn(draw) for _ in range(BOOTSTRAP_ROUNDS))
    cut = round(0.025 * BOOTSTRAP_ROUNDS)
    return Interval(whole, found[cut], found[-cut - 1], n, enough=True)


def apart_interval(above: Sequence[float], below: Sequence[float]) -> Interval | None:
    """Return median(above) / median(below) of samples above zero that were not taken in turns, such as two runs', each
    drawn by itself; with fewer than six on a side, the widest ratios that the samples allow."""
    if not above or not below:
        return None
    whole, n = statistics.median(above) / statistics.median(below), min(len(above), len(below))
    if n < MIN_REPEATS:
        return Interval(whole, min(above) / max(below), max(above) / min(below), n, enough=False)

    def drawn(draw: random.Random) -> float:
        top, bottom = (statistics.median(draw.choices(side, k=len(side))) for side in (above, below))
        return top / bottom

    return _bootstrap(whole, n, drawn)


def synchronise(device: str) -> None:
    """Wait until a device has done all that it was given; the CPU has nothing to wait for."""
    if device != "cpu":
        import torch

        torch.cuda.synchronize(torch.device(device))


def use(device: str) -> None:
    """Make a GPU the current one: events and streams belong to the current device, whichever a tensor is on."""
    if device != "cpu":
        import torch

        torch.cuda.set_device(torch.device(device))


def release(device: str) -> None:
    """Give memory that nothing uses any more back to the driver, so that the next attempt has all the room there is."""
    gc.collect()
    if device != "cpu":
        import torch

        torch.cuda.empty_cache()


def core() -> int | None:
    """Return the number of the core that this process runs on now, None where the system does not tell."""
    ask = getattr(psutil.Process(), "cpu_num", None)
    return ask() if ask else None


class OtherWork:
    """Measure the share of all processor time that other processes used between `__enter__` and `__exit__`.

    Own time is this process with all its threads. `pct` is null where the interval is too short for the system's own
    clock of 10 ms ticks.
    """

    pct: float | None = None

    def __enter__(self) -> OtherWork:
        self._began = self._reading()
        return self

    def __exit__(self, *_: object) -> None:
        elapsed, busy, own = (now - then for now, then in zip(self._reading(), self._began, strict=True))
        if elapsed >= 0.5:
            cores = psutil.cpu_count() or 1
            self.pct = round(max(0.0, 100 * (busy - own) / (elapsed * cores)), 1)

    @staticmethod
    def _reading() -> tuple[float, float, float]:
        times, own = psutil.cpu_times(), psutil.Process().cpu_times()
        if os.name == "nt":  # interrupt and dpc are parts of system there
            return time.perf_counter(), times.user + times.system, own.user + own.system
        busy = sum(times) - times.idle - getattr(times, "iowait", 0.0)
        # Linux counts guests inside user time as well: do not add them twice.
        busy -= getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
        return time.perf_counter(), busy, own.user + own.system


def load(device: str = "cpu") -> dict[str, Any]:
    """Return the machine's load now: average of one minute, cores, free memory in bytes; null where unknown.

    On an accelerator also its memory and how much of it is free, before this process has taken any.
    """
    try:
        average: float | None = os.getloadavg()[0]
    except (OSError, AttributeError):
        average = None
    return {
        "load_1min": average,
        "load_1min_reason": None if average is not None else "this system keeps no load average",
        "cores": psutil.cpu_count(),
        "memory_free_bytes": psutil.virtual_memory().available,
        **_device_memory(device),
    }


def _device_memory(device: str) -> dict[str, int]:
    if device == "cpu":
        return {}
    import torch

    free, whole = torch.cuda.mem_get_info(torch.device(device))
    return {"device_free_bytes": free, "device_memory_bytes": whole}
