"""Which clock may be trusted here, and down to which interval? And: warm up until it is steady.

`qualify(device)` measures both clocks on tiny and on long work; `choose(record)` is pure and picks. HIP events on
Windows have given negative times for short work, so events are used only where they agree with the wall clock.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rocmlab.findings import Finding, finding
from rocmlab.timing import spread_pct, synchronise

SCHEMA = "rocmlab-clock-1"
WALL, EVENTS = "perf_counter", "events"
LAUNCHES = (1, 8, 64)  # of the smallest kernel: a few microseconds to about a millisecond
LONG_MS = 60.0  # long work: what one start and one stop cost no longer shows
SAMPLES, LONG_SAMPLES = 20, 5
AGREE_PCT = 5.0  # events against wall on long work
STEADY_PCT = 25.0  # readings of equal work that scatter more than this are no measurement
RESOLUTIONS = 100  # an interval of 100 ticks is read to 1%
WAITS = 10  # and it must be ten times what waiting for an idle device costs
IMPROVES = 0.95  # warm while a block is still 5% faster than the best before


# ---- measure


def timed(task: Callable[[], Any], device: str) -> float:
    """Return the wall time of a task in ms, with the device idle before it and done after it."""
    synchronise(device)
    began = time.perf_counter()
    task()
    synchronise(device)
    return 1000 * (time.perf_counter() - began)


def each(task: Callable[[], Any], times: int, device: str, which: str) -> float:
    """Return the time of one task in ms, from several between one start and one stop of the clock that is trusted."""
    if device == "cpu" or which == WALL:
        return timed(lambda: [task() for _ in range(times)], device) / times
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(times):
        task()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / times


def warm(task: Callable[[], Any], device: str, *, blocks: int = 8, limit_s: float = 5.0) -> list[float]:
    """Run a task until a block is no longer 5% faster than the best before it; return every block's time in ms."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < blocks and time.perf_counter() - began < limit_s:
        times.append(timed(task, device))
        if len(times) > 1 and times[-1] > IMPROVES * min(times[:-1]):
            break
    return times


def qualify(device: str) -> dict[str, Any]:
    """Measure the clocks (schema rocmlab-clock-1): ticks of the wall clock, and on a GPU its events beside it."""
    events = _events(device) if device != "cpu" else None
    return {"schema": SCHEMA, "device": device, **_wall(device), "events": events}


def _wall(device: str) -> dict[str, Any]:
    """Read the wall clock 20,000 times: ticks in ns, whether it ever ran backwards, and what waiting costs in ms."""
    reads = [time.perf_counter_ns() for _ in range(20_000)]
    steps = [late - early for early, late in itertools.pairwise(reads)]
    return {
        "tick_ns": min((step for step in steps if step > 0), default=None),
        "read_ns": (reads[-1] - reads[0]) / (len(reads) - 1),
        "backwards": sum(step < 0 for step in steps),
        "wait_ms": statistics.median(timed(lambda: None, device) for _ in range(SAMPLES)),
    }


def _events(device: str) -> dict[str, Any]:
    """Time tiny and long work by events and by the wall clock at once; every reading is kept, in ms."""
    import torch

    where = torch.device(device)
    small, square = torch.randn(1, device=where), torch.randn(2048, 2048, device=where)
    for _ in range(3):
        once = timed(lambda: square @ square, device)
    repeats = max(1, min(2000, round(LONG_MS / max(once, 1e-3))))
    work = [(f"{count} tiny kernels", count, _times(lambda: small + 1, count), SAMPLES) for count in LAUNCHES]
    work.append(("long work", repeats, _times(lambda: square @ square, repeats), LONG_SAMPLES))
    rows = []
    for name, count, task, samples in work:
        task()
        pairs = [_both(task, where) for _ in range(samples)]
        rows.append(
            {"work": name, "launches": count, "event_ms": [p[0] for p in pairs], "wall_ms": [p[1] for p in pairs]}
        )
    return {
        "rows": rows,
        "record_us": 10 * timed(lambda: [torch.cuda.Event(enable_timing=True).record() for _ in range(100)], device),
    }


def _times(task: Callable[[], Any], count: int) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(count):
            task()

    return repeated


def _both(task: Callable[[], None], where: Any) -> tuple[float, float]:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize(where)
    began = time.perf_counter()
    start.record()
    task()
    end.record()
    torch.cuda.synchronize(where)
    return start.elapsed_time(end), 1000 * (time.perf_counter() - began)


# ---- judge


@dataclass(frozen=True)
class Choice:
    """The clock to use, the smallest interval it may be trusted with, readings dropped, and why."""

    clock: str
    smallest_ms: float
    negative: int
    zero: int
    long_ratio: float | None
    why: str


def kept(readings: list[float]) -> tuple[list[float], int, int]:
    """Return (readings above zero, how many were negative, how many were zero): neither is a time."""
    return [one for one in readings if one > 0], sum(one < 0 for one in readings), sum(one == 0 for one in readings)


def choose(record: dict[str, Any]) -> Choice:
    """Pick the clock: events where they agree with the wall clock on long work, else the wall clock."""
    wall = max(RESOLUTIONS * (record.get("tick_ns") or 0) / 1e6, WAITS * (record.get("wait_ms") or 0))
    rows = (record.get("events") or {}).get("rows") or []
    if not rows:
        return Choice(WALL, wall, 0, 0, None, "no device events here")
    sorted_out = [kept(row["event_ms"]) for row in rows]
    negative, zero = sum(one[1] for one in sorted_out), sum(one[2] for one in sorted_out)
    long, wall_ms = sorted_out[-1][0], statistics.median(rows[-1]["wall_ms"])
    ratio = statistics.median(long) / wall_ms if long and wall_ms else None
    if ratio is None or abs(ratio - 1) > AGREE_PCT / 100:
        return Choice(WALL, wall, negative, zero, ratio, "events disagree with the wall clock on long work")
    smallest = None
    for row, (good, *bad) in zip(reversed(rows), reversed(sorted_out), strict=True):
        if any(bad) or not _sound(good, row["wall_ms"]):
            break
        smallest = statistics.median(good)
    if smallest is None:
        return Choice(WALL, wall, negative, zero, ratio, "not even long work is timed well by events")
    return Choice(EVENTS, smallest, negative, zero, ratio, "events agree with the wall clock on long work")


def _sound(good: list[float], wall_ms: list[float]) -> bool:
    """Events lie inside the wall time of the same work, and equal work gives nearly equal readings."""
    spread = spread_pct(good)
    inside = statistics.median(good) <= statistics.median(wall_ms) * (1 + AGREE_PCT / 100)
    return inside and (spread is None or spread <= STEADY_PCT)


def judge(record: dict[str, Any]) -> list[Finding]:
    """Say which clock is used and from which interval on; readings that cannot be times are counted and named."""
    chosen = choose(record)
    numbers = {"smallest_trusted_ms": chosen.smallest_ms, "tick_ns": record.get("tick_ns")}
    found = [finding("CLOCK_CHOSEN", numbers=numbers, variant=None if chosen.clock == WALL else "events")]
    if chosen.negative or chosen.zero:
        counts = {"negative_readings": chosen.negative, "zero_readings": chosen.zero}
        found.insert(0, finding("EVENT_TIMES_IMPOSSIBLE", numbers=counts, clock=chosen.clock, ms=chosen.smallest_ms))
    if chosen.long_ratio is not None and abs(chosen.long_ratio - 1) > AGREE_PCT / 100:
        found.insert(0, finding("EVENTS_DISAGREE", numbers={"events_over_wall": chosen.long_ratio}))
    if record.get("backwards"):
        found.insert(0, finding("CLOCK_RAN_BACKWARDS", numbers={"backwards": record["backwards"]}))
    return found
