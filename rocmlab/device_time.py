"""How long did the device work, with what, and how long did it rest, in one window?

Every function takes a `Timeline` and positions of device events in it, and returns plain numbers in microseconds.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from rocmlab import idle, kernels
from rocmlab.readers import traces
from rocmlab.readers.traces import TICKS
from rocmlab.ticks import rank, share, us
from rocmlab.timeline import Timeline, Window

TOP = 10


def numbers(line: Timeline, events: np.ndarray) -> dict[str, int]:
    cats = line.trace.cat[line.rows[events]]
    return {
        "n": len(events),
        "kernels": int((cats == traces.KERNEL).sum()),
        "memcpy": int((cats == traces.COPY).sum()),
        "memset": int((cats == traces.FILL).sum()),
        "linked": int(line.linked[events].sum()),
        "streams": len(np.unique(line.trace.stream[line.rows[events]])),
        "same_stream_overlaps": line.overlaps,
        "outside": int(line.kernel.sum() - line.kernel[events].sum()),
    }


def busy(line: Timeline, window: Window, gaps: idle.Gaps) -> dict[str, Any]:
    events = gaps.events
    lengths = np.minimum(line.raw_end[events], window.end) - np.maximum(line.start[events], window.begin)
    unlinked = idle.union(line, window, events[~line.linked[events]])
    return {
        "busy_us": us(gaps.busy),
        "busy_pct": share(gaps.busy, window.length),
        "device_time_sum_us": us(lengths.sum()),
        "overlap_factor": round(float(lengths.sum()) / gaps.busy, 3) if gaps.busy else None,
        "unlinked_busy_us": us(unlinked),
        "unlinked_busy_pct": share(unlinked, gaps.busy),
    }


def kernel_times(line: Timeline, events: np.ndarray) -> dict[str, Any]:
    mine = events[line.kernel[events]]
    lengths = line.raw_end[mine] - line.start[mine]
    gemm = lengths[[kernels.is_gemm(line.trace.called(row)) for row in line.rows[mine]]] if len(mine) else lengths
    return {
        "n": len(mine),
        "sum": us(lengths.sum()),
        "mean": us(lengths.mean()) if len(mine) else None,
        "median": rank(lengths, 0.5),
        "p90": rank(lengths, 0.9),
        "max": rank(lengths, 1),
        "share_below_10us": round(float((lengths < 10 * TICKS).mean()), 3) if len(mine) else None,
        "gemm_mean": us(gemm.mean()) if len(gemm) else None,
    }


def idle_time(gaps: idle.Gaps, window: Window) -> dict[str, Any]:
    counted = idle.counted(gaps.inner)
    return {
        "total": us(window.length - gaps.busy),
        "lead": us(gaps.lead),
        "tail": us(gaps.tail),
        "inner": us(gaps.inner.sum()),
        "gaps": len(counted),
        "gaps_ge_10us": int((counted >= 10 * TICKS).sum()),
        "median_gap": rank(counted, 0.5),
        "p90_gap": rank(counted, 0.9),
        "max_gap": rank(counted, 1),
    }


def _by_name(line: Timeline, events: np.ndarray) -> list[tuple[str, str, int, int]]:
    """Return (name, library, number, ticks) of the device events, whole lengths, by name."""
    trace = line.trace
    rows = line.rows[events]
    lengths = line.raw_end[events] - line.start[events]
    found = []
    for cat, fixed in ((traces.KERNEL, None), (traces.COPY, "memcpy"), (traces.FILL, "memset")):
        mine = trace.cat[rows] == cat
        numbers, inverse = np.unique(trace.name[rows[mine]], return_inverse=True)
        ticks = np.zeros(len(numbers), dtype=np.int64)
        np.add.at(ticks, inverse, lengths[mine])
        counts = np.bincount(inverse, minlength=len(numbers))
        for number, n, length in zip(numbers.tolist(), counts.tolist(), ticks.tolist(), strict=True):
            name = trace.names[number]
            found.append((name, fixed or kernels.library(name), n, length))
    return found


def libraries(line: Timeline, events: np.ndarray) -> dict[str, dict[str, Any]]:
    numbers: Counter[str] = Counter()
    lengths: Counter[str] = Counter()
    for _, library, n, ticks in _by_name(line, events):
        numbers[library] += n
        lengths[library] += ticks
    whole = sum(lengths.values())
    return {name: {"n": numbers[name], "us": us(t), "pct": share(t, whole)} for name, t in lengths.most_common()}


def top_kernels(line: Timeline, events: np.ndarray) -> list[dict[str, Any]]:
    rows = sorted(_by_name(line, events), key=lambda row: -row[3])
    whole = sum(row[3] for row in rows)
    return [
        {"name": name, "library": library, "n": n, "us": us(ticks), "pct": share(ticks, whole)}
        for name, library, n, ticks in rows[:TOP]
    ]
