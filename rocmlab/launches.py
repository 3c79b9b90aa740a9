"""What did the host ask of the device: launches, their delay, the queue, hidden waits, work that stayed on the CPU?

Every function takes a `Timeline` and a `Window` and returns plain numbers, times in microseconds; None is unknown.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from rocmlab import calls
from rocmlab.host import ACTIVITY
from rocmlab.readers import traces
from rocmlab.readers.traces import TICKS
from rocmlab.ticks import rank, share, us
from rocmlab.timeline import Timeline, Window

COLD = 1000 * TICKS  # a launch call over 1 ms loads code
LOOK_BACK = 4096  # host events searched for the operator around a call
WORKING = tuple(ACTIVITY[name] for name in ("launch_api", "copy_api", "sync_api"))


def main_thread(line: Timeline, window: Window) -> int | None:
    """Return the thread with most launch calls in the window, the earlier one of two equals."""
    threads = line.trace.thread[line.starting(line.launches, window)].tolist()
    return Counter(threads).most_common(1)[0][0] if threads else None


def delays(line: Timeline, events: np.ndarray) -> dict[str, Any]:
    """Time from each launch call to its first device event; `idle_*`: only those that found the device idle (M4)."""
    mine = events[line.is_launch[events]]
    first = mine[np.unique(line.call[mine], return_index=True)[1]]
    waited = line.start[first] - line.call_start[first]
    reached = np.maximum.accumulate(line.raw_end[events]) if len(events) else events
    position = np.searchsorted(events, first)
    before = np.where(position > 0, reached[np.maximum(position - 1, 0)], np.iinfo(np.int64).min)
    idle = waited[before <= line.call_start[first]]
    return {
        "n": len(waited),
        "median": rank(waited, 0.5),
        "p90": rank(waited, 0.9),
        "min": rank(waited, 0),
        "max": rank(waited, 1),
        "idle_n": len(idle),
        "idle_median": rank(idle, 0.5),
    }


def cold_ticks(line: Timeline, window: Window) -> int:
    """Return the time of launch calls so long that they loaded code; graph launches are long by nature."""
    rows = np.setdiff1d(line.starting(line.launches, window), line.graph_launches)
    lengths = line.trace.end[rows] - line.trace.start[rows]
    return int(lengths[lengths > COLD].sum())


def launches(line: Timeline, window: Window, main: int | None) -> dict[str, Any]:
    """Launch calls that start in the window: number, cost, rate on the main thread, cold ones, graphs."""
    trace = line.trace
    rows = line.starting(line.launches, window)
    lengths = trace.end[rows] - trace.start[rows]
    graph = np.isin(rows, line.graph_launches)
    cold = lengths[~graph & (lengths > COLD)]
    starts = trace.start[rows[trace.thread[rows] == main]] if main is not None else rows
    span = int(starts[-1] - starts[0]) if len(starts) > 1 else 0
    replayed = line.call[np.isin(line.call, rows[graph])]
    return {
        "n": len(rows),
        "names": dict(Counter(trace.called(row) for row in rows)),
        "threads": len(np.unique(trace.thread[rows])),
        "graph_launches": int(graph.sum()),
        "graph_replays_recorded": len(np.unique(replayed)),
        "graph_device_events": len(replayed),
        "without_device_event": int((~np.isin(rows, line.call)).sum()),
        "api_us_mean": us(lengths.mean()) if len(lengths) else None,
        "api_us_median": rank(lengths, 0.5),
        "cold": {"n": len(cold), "us": us(cold.sum())},
        "period_us_median": rank(np.diff(starts), 0.5),
        "per_ms": round(len(starts) * 1000 * TICKS / span, 3) if span else None,
    }


def replays(line: Timeline, window: Window) -> dict[str, int]:
    """Graph replays that hold fewer device events than another replay beginning with the same kernel.

    A replay without any device event counts where another one has some: parts were not recorded, or came late.
    """
    trace, rows = line.trace, line.starting(line.graph_launches, window)
    events = np.flatnonzero(np.isin(line.call, rows))
    found, first, counts = np.unique(line.call[events], return_index=True, return_counts=True)
    sizes: dict[str, list[int]] = {}
    for event, size in zip(events[first].tolist(), counts.tolist(), strict=True):
        sizes.setdefault(trace.called(line.rows[event]), []).append(size)
    empty = len(rows) - len(found)
    short = sum(sum(size < max(alike) for size in alike) for alike in sizes.values())
    known = [size for alike in sizes.values() for size in alike]
    return {"short": short + (empty if known else 0), "fewest": min(known, default=0), "most": max(known, default=0)}


def queue(line: Timeline, window: Window, events: np.ndarray) -> dict[str, Any]:
    """Device events launched and not ended, weighted by time: mean, maximum, share of the window with none (M5)."""
    mine = events[line.linked[events]]
    begin = np.clip(line.call_start[mine], window.begin, window.end)
    end = np.clip(line.end[mine], begin, window.end)
    times = np.concatenate([begin, end])
    step = np.repeat([1, -1], len(mine))
    order = np.lexsort((step, times))
    depth = np.cumsum(step[order])
    lengths = np.diff(np.append(times[order], window.end))
    lasting = depth[lengths > 0]
    filled = int(lengths[depth > 0].sum())
    weighted = float((depth * (lengths / max(window.length, 1))).sum())
    return {
        "mean_depth": round(weighted, 3),
        "max_depth": int(lasting.max()) if len(lasting) else 0,
        "empty_pct": share(window.length - filled, window.length),
    }


def syncs(line: Timeline, window: Window, events: np.ndarray) -> dict[str, Any]:
    """Calls that wait for the device, operators that force one, copies by direction, allocations (M10)."""
    trace = line.trace
    rows = line.starting(line.kind("sync_api"), window)
    names: dict[str, dict[str, Any]] = {}
    for row in rows.tolist():
        entry = names.setdefault(trace.called(row), {"n": 0, "us": 0})
        entry["n"] += 1
        entry["us"] += int(trace.end[row] - trace.start[row])
    operators = Counter(trace.called(row) for row in line.starting(line.sync_operators, window))
    directions, mislabelled = _copies(line, events)
    return {
        "calls": len(rows),
        "us": us((trace.end[rows] - trace.start[rows]).sum()),
        "names": {name: {"n": entry["n"], "us": us(entry["us"])} for name, entry in names.items()},
        "sync_ops": dict(operators),
        "copies": directions,
        "mislabelled_copies": mislabelled,
        "alloc_calls": len(line.starting(line.kind("alloc_api"), window)),
    }


def _copies(line: Timeline, events: np.ndarray) -> tuple[dict[str, int], int]:
    """Count copies by direction; the host call is right where the device event says DtoD for every blit kernel."""
    trace = line.trace
    copies = events[trace.cat[line.rows[events]] == traces.COPY]
    said = trace.direction[line.rows[copies]]
    asked = np.where(line.linked[copies], trace.direction[np.maximum(line.call[copies], 0)], "")
    directions = Counter(a or s or "unknown" for a, s in zip(asked.tolist(), said.tolist(), strict=True))
    return dict(directions), int(((asked != "") & (said != "") & (asked != said)).sum())


def waits(line: Timeline, window: Window) -> list[dict[str, Any]]:
    """Return the sync calls of the window with the operator and, where stacks were recorded, the frame behind them,
    summed by these three and the costliest first: `{call, operator, frame, n, us}`."""
    found: dict[tuple[str, str | None, str | None], list[int]] = {}
    for row in line.starting(line.kind("sync_api"), window).tolist():
        key = (line.trace.called(row), *_behind(line, row))
        found.setdefault(key, []).append(int(line.trace.end[row] - line.trace.start[row]))
    rows = [
        {"call": call, "operator": operator, "frame": frame, "n": len(lengths), "us": us(sum(lengths))}
        for (call, operator, frame), lengths in found.items()
    ]
    return sorted(rows, key=lambda row: -row["us"])


def _behind(line: Timeline, row: int) -> tuple[str | None, str | None]:
    """Return (outermost aten operator, innermost own Python frame) around a host call."""
    trace = line.trace
    rows = line.thread_rows(int(trace.thread[row]))
    at = int(np.searchsorted(rows, row))
    near = rows[max(0, at - LOOK_BACK) : at]
    around = near[trace.end[near] >= trace.end[row]]
    operators = [trace.called(i) for i in around[trace.cat[around] == traces.OP]]
    frames = [trace.called(i) for i in around[trace.cat[around] == traces.PYTHON]]
    own = [name for name in frames if ".py(" in name and not name.replace("\\", "/").startswith(("torch/", "<"))]
    outer = next((name for name in operators if name.startswith("aten::")), operators[-1] if operators else None)
    return outer, own[-1] if own else None


def idle_operators(line: Timeline, window: Window) -> dict[str, dict[str, Any]]:
    """Leaf aten operators that started nothing on the device, views and allocations left out: CPU tensors (M12)."""
    trace = line.trace
    found: dict[str, list[int]] = {}
    for row in line.starting(leaf_operators(line), window).tolist():
        found.setdefault(trace.called(row), []).append(int(trace.end[row] - trace.start[row]))
    rows = {name: {"n": len(lengths), "us": us(sum(lengths))} for name, lengths in found.items()}
    return dict(sorted(rows.items(), key=lambda item: -item[1]["us"]))


def leaf_operators(line: Timeline) -> np.ndarray:
    """Return the rows of aten operators without an operator, launch, copy or wait inside, and that should have one."""
    trace = line.trace
    operators = trace.of(traces.OP)
    working = line.calls[np.isin(line.call_kind, WORKING)]
    found = []
    for thread in np.unique(trace.thread[operators]).tolist():
        mine = operators[trace.thread[operators] == thread]
        start, end = trace.start[mine], trace.end[mine]
        following = np.append(start[1:], np.iinfo(np.int64).max)
        called = trace.start[working[trace.thread[working] == thread]]
        asked = np.searchsorted(called, end) - np.searchsorted(called, start)
        found.append(mine[(following >= end) & (asked == 0)])
    rows = np.sort(np.concatenate(found)) if found else operators
    names = [trace.names[number] for number in np.unique(trace.name[rows]).tolist()]
    wanted = {name for name in names if name.startswith("aten::") and not calls.launches_nothing(name)}
    return rows[np.isin(trace.name[rows], [n for n, name in enumerate(trace.names) if name in wanted])]
