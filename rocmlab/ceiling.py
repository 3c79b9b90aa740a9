"""How fast can this device move bytes? Measured here: copy and read, over sizes well past the last-level cache.

`study(run, subject, ...)` runs `measure` in a child process and records rows of `clock` and `ceiling`;
`bandwidth(rows)` is pure: the better of copy and read, where no cache helps. A bandwidth-bound kernel could reach it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmlab import clock, isolate, timing
from rocmlab.results import Run, rows

SCHEMA = "rocmlab-ceiling-1"
MIB = 1 << 20
SMALLEST = 16 * MIB
# Four times the 128 MB of the largest cache on a Radeon card (RX 6800 and up); processors' caches are mostly smaller.
PAST_CACHE = 512 * MIB
LARGEST = {"cpu": 1024 * MIB, "gpu": 65536 * MIB}
FREE_SHARE = 0.85  # of the free memory of a card; on the CPU a quarter, which other programs need too
CPU_FREE_SHARE = 0.25
SAMPLES = 8
SLOW_S = 0.5  # a pass slower than this is sampled three times only
SPILL = 0.5  # a card's memory does not halve its speed with size; memory behind PCIe does


def study(
    run: Run, subject: dict[str, Any], *, limit_s: float, reuse: bool = False, table: str = "ceiling"
) -> list[dict[str, Any]]:
    """Measure clock and bandwidth in a child process and return how it ended; [] to `reuse` what this run has.

    The CPU beside a GPU under study has a `table` of its own, "ceiling_cpu", and leaves the GPU's clock alone.
    """
    known = rows(run.path, "ceiling")
    if reuse and bandwidth(known) and known[-1].get("device") == subject["device"]:
        return []
    given = run.where() | {"device": subject["device"]}
    given |= {"limit_s": limit_s / 2, "table": table}
    outcome = isolate.call("rocmlab.ceiling:measure", given, limit_s=limit_s)
    return [isolate.record(run, "ceiling_ended", f"clock and bandwidth ({table})", outcome)]


def measure(run_dir: str, notebook: str, attempt: str, device: str, limit_s: float, table: str = "ceiling") -> None:
    """Qualify the clock, then copy and read over growing sizes; a row is appended for each size and way."""
    run = Run(Path(run_dir), notebook, attempt)
    timing.use(device)
    record = clock.qualify(device)
    if table == "ceiling":
        run.append("clock", record)
    chosen, began = clock.choose(record), timing.load()
    spent = 0.0
    for size in sizes(device):
        if spent > limit_s:
            break
        with timing.OtherWork() as others:
            found = one_size(device, size, chosen)
        timing.release(device)  # a block that torch keeps would push the next, larger one out of the card
        for row in found:
            head = {"schema": SCHEMA, "device": device, "clock": chosen.clock, "load": began}
            head["evidence_grade"] = "B" if chosen.clock == clock.EVENTS else "D"
            run.append(table, head | {"others_cpu_pct": others.pct} | row)
            spent += sum(row.get("samples_ms") or []) * (row.get("passes") or 0) / 1000


def sizes(device: str) -> list[int]:
    """Return sizes in bytes, each four times the last, from one that a cache may hold up to what the memory allows."""
    import psutil
    import torch

    if device == "cpu":
        most = min(LARGEST["cpu"], CPU_FREE_SHARE * psutil.virtual_memory().available)
    else:
        most = min(LARGEST["gpu"], FREE_SHARE * torch.cuda.mem_get_info(torch.device(device))[0])
    found = [SMALLEST]
    while 4 * found[-1] <= most:
        found.append(4 * found[-1])
    # The last one fills what is free: where a driver moves memory out of the card, it shows only there.
    return [*found, int(most) // MIB * MIB] if device != "cpu" and most > 1.25 * found[-1] else found


def one_size(device: str, size: int, chosen: clock.Choice) -> list[dict[str, Any]]:
    """Copy one half of a buffer onto the other, and sum all of it: both move `size` bytes. Samples in ms a pass.

    Both ways take turns. The values are normally distributed, made once in a small block and repeated.
    """
    import torch

    try:
        buffer = torch.empty(size // 4, device=torch.device(device))
        block = torch.randn(MIB // 4, device=buffer.device)
        buffer.view(-1, len(block)).copy_(block)
        half = len(buffer) // 2
        ways: dict[str, Callable[[], Any]] = {"copy": lambda: buffer[:half].copy_(buffer[half:]), "read": buffer.sum}
        passes, samples = {}, {}
        for name, task in ways.items():
            once = min(clock.warm(task, device))
            passes[name] = max(1, math.ceil(max(2.0, 2 * chosen.smallest_ms) / once))
            samples[name] = [] if once < 1000 * SLOW_S else [once]
        for _ in range(SAMPLES if not any(samples.values()) else 2):
            for name, task in ways.items():
                samples[name].append(clock.each(task, passes[name], device, chosen.clock))
    except RuntimeError as error:  # also out of memory: then the sizes end here, and the row says why
        return [{"way": way, "bytes": size, "samples_ms": [], "error": str(error)[:500]} for way in ("copy", "read")]
    return [{"way": way, "bytes": size, "passes": passes[way], "samples_ms": samples[way]} for way in ways]


# ---- pure


@dataclass(frozen=True)
class Ceiling:
    """The best rate past the caches: GB/s with its interval (timing.Interval), the way and the size that gave it."""

    gb_s: float
    interval: timing.Interval
    way: str
    bytes: int


def rate(row: dict[str, Any]) -> float | None:
    """Return one row's median GB/s (GB = 1e9), None without samples."""
    good, _, _ = clock.kept(row.get("samples_ms") or [])
    return row["bytes"] / statistics.median(good) / 1e6 if good else None


def bandwidth(found: list[dict[str, Any]], peak_gb_s: float | None = None) -> Ceiling | None:
    """Return the measured ceiling: the better of copy and read over all sizes past the caches; None if none is.

    A rate above the stated peak is impossible and never becomes the ceiling.
    """
    sound = [r for r in found if r.get("way") in ("copy", "read") and r["bytes"] >= PAST_CACHE and rate(r)]
    sound = [r for r in sound if not peak_gb_s or (rate(r) or 0) <= peak_gb_s]
    if not sound:
        return None
    best = max(sound, key=lambda r: rate(r) or 0)
    interval = timing.median_interval([best["bytes"] / ms / 1e6 for ms in clock.kept(best["samples_ms"])[0]])
    assert interval is not None
    return Ceiling(interval.median, interval, best["way"], best["bytes"])


def impossible(found: list[dict[str, Any]], peak_gb_s: float | None) -> list[dict[str, Any]]:
    """Return the rows past the caches whose rate lies above the stated peak."""
    return [r for r in found if peak_gb_s and r.get("bytes", 0) >= PAST_CACHE and (rate(r) or 0) > peak_gb_s]


def spill(found: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return {bytes, gb_s, usual_gb_s, way} of the smallest size from which a card is less than half as fast.

    Memory of a card has one speed; where the driver puts a part behind PCIe, the rate falls. None on the CPU, whose
    memory is one.
    """
    for way in ("read", "copy"):
        mine = sorted((r for r in found if r.get("way") == way and rate(r)), key=lambda r: r["bytes"])
        mine = [r for r in mine if r["bytes"] >= PAST_CACHE and r.get("device") != "cpu"]
        for place in range(1, len(mine)):
            usual = statistics.median(rate(r) or 0 for r in mine[:place])
            if (rate(mine[place]) or 0) < SPILL * usual:
                return {"bytes": mine[place]["bytes"], "gb_s": rate(mine[place]), "usual_gb_s": usual, "way": way}
    return None


def in_cache(found: list[dict[str, Any]], working_set: float, roof: Ceiling | None) -> bool:
    """Tell whether a cache may serve a working set: the largest measured size not above it is 10% over the ceiling.

    What is as large as the sizes that the ceiling itself is taken from lies past the caches as they do.
    """
    if roof is None or working_set >= PAST_CACHE:
        return working_set < PAST_CACHE
    below = [r for r in found if r.get("way") in ("copy", "read") and r["bytes"] <= working_set and rate(r)]
    if not below:
        return True
    largest = max(r["bytes"] for r in below)
    return max(rate(r) or 0 for r in below if r["bytes"] == largest) > 1.1 * roof.gb_s
