"""A trace becomes kernels, busy and idle time, and a verdict.

`measure(trace, "auto")` returns the metrics of one window and of each annotated step; `judge(metrics)` turns them into
findings. Both are pure. Times are in microseconds; a quantity that the file cannot give is None or absent, never 0.

The definitions: busy is the union of kernels, copies and memsets over all streams of one device, clipped to the window;
idle is the rest, split by what the device waited for; the critical path walks back from the end of the window. Each
split adds up to what it splits.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from rocmlab import idle, kernels, launches
from rocmlab.calls import ACTIVITIES
from rocmlab.readers import traces
from rocmlab.readers.traces import TICKS, Trace
from rocmlab.timeline import STEPS, Timeline, Window, rank, share, us

TOP = 10

# Conventions, reported beside the numbers: a device this busy is the limit; a cause that explains this much of idle.
DEVICE_BOUND_PCT, HOST_BOUND_PCT, MAIN_CAUSE_PCT = 85, 25, 60

CATEGORIES = {
    "op": (traces.OP,),
    "ua": (traces.MARK,),
    "py": (traces.PYTHON,),
    "rt": (traces.CALL,),
    "dev": traces.DEVICE,
    "gua": (traces.GPU_MARK,),
    "oh": (traces.OVERHEAD,),
}


def measure(trace: Trace, asked: str = "auto") -> dict[str, Any]:
    """Return the metrics of a window: auto, linked, device, trace, annotation:NAME or BEGIN,END in microseconds.

    Raises ValueError for a window that cannot be understood or a name that is not in the trace.
    """
    line = Timeline(trace)
    window = None if trace.truncated else line.window(asked)
    found: dict[str, Any] = {
        "kind": trace.form,
        "events": len(trace),
        "counts": dict(trace.counts),
        "truncated": trace.truncated,
        "categories": {name: len(trace.of(*cats)) for name, cats in CATEGORIES.items()},
        "quirks": _quirks(line),
        "platform": _platform(line),
        "devices": len(line.devices),
        "window": _window(line, window),
        "all_kernels": _kernel_times(line, np.arange(len(line.rows))),
        "launches_in_file": len(line.launches),
    }
    if window is None:
        return found | verdict(found)
    found |= host_only(line, window) if not len(line.rows) else in_window(line, window)
    found |= verdict(found)
    return found | {"steps": steps(line)}


def _quirks(line: Timeline) -> dict[str, int]:
    trace = line.trace
    python = trace.of(traces.PYTHON)
    at_zero = [number for number, (_, tid) in enumerate(trace.threads) if tid == 0]
    return {
        "unlinked_device_event": int((~line.linked).sum()),
        "launch_without_device_event": int((~np.isin(line.launches, line.call)).sum()),
        "python_function_on_tid0": int(np.isin(trace.thread[python], at_zero).sum()),
    }


def _platform(line: Timeline) -> str | None:
    """Return hip or cuda, as the names of the runtime calls say; None without any."""
    names = {line.trace.names[number] for number in np.unique(line.trace.name[line.calls]).tolist()}
    found = [kind for kind in ("hip", "cuda") if any(name.startswith((kind, kind[:2])) for name in names)]
    return found[0] if found else None


def _window(line: Timeline, window: Window | None) -> dict[str, Any] | None:
    if window is None:
        return None
    return {
        "mode": window.mode,
        "label": str(window),
        "start_us": us(window.begin),
        "end_us": us(window.end),
        "dur_us": us(window.length),
        "device": line.device,
    }


def host_only(line: Timeline, window: Window) -> dict[str, Any]:
    """Return what a trace without device events can say: the host's time and its operators."""
    operators = launches.starting(line, line.trace.of(traces.OP), window)
    named = Counter(line.trace.called(row) for row in launches.starting(line, line.sync_operators, window))
    return {
        "host_exclusive_pct": _host(line, window, line.busiest_thread),
        "sync": {"sync_ops": dict(named)},
        "aten_ops": len(operators),
    }


def in_window(line: Timeline, window: Window) -> dict[str, Any]:
    """Return the metrics M2 to M12 of one window of a trace that has device events."""
    gaps = idle.gaps(line, window)
    main = launches.main_thread(line, window)
    why = idle.causes(line, gaps)
    path = idle.critical_path(line, window, gaps, main)
    return {
        "device_events": _device_events(line, gaps.events),
        **_busy(line, window, gaps),
        "kernel_us": _kernel_times(line, gaps.events),
        "idle_us": _idle(gaps, window),
        "launch_delay_us": launches.delays(line, gaps.events),
        "launches": launches.launches(line, window, main),
        "replays": launches.replays(line, window),
        "queue": launches.queue(line, window, gaps.events),
        "idle_why_us": {cause: us(ticks) for cause, ticks in why.most_common()},
        **_starved(line, window, gaps, why),
        "host_exclusive_pct": _host(line, window, main),
        "libraries": _libraries(line, gaps.events),
        "top_kernels": _top(line, gaps.events),
        "sync": launches.syncs(line, window, gaps.events),
        "waits": launches.waits(line, window),
        "critical_path_us": {part: us(ticks) for part, ticks in path.most_common()},
        "critical_path_pct": _path_shares(path, window),
        "no_launch_ops": launches.idle_operators(line, window),
    }


def _device_events(line: Timeline, events: np.ndarray) -> dict[str, int]:
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


def _busy(line: Timeline, window: Window, gaps: idle.Gaps) -> dict[str, Any]:
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


def _kernel_times(line: Timeline, events: np.ndarray) -> dict[str, Any]:
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


def _idle(gaps: idle.Gaps, window: Window) -> dict[str, Any]:
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


def _starved(line: Timeline, window: Window, gaps: idle.Gaps, why: Counter[str]) -> dict[str, Any]:
    """Return the time for which the host had handed over nothing, and what of the host it went to."""
    starved = sum(ticks for cause, ticks in why.items() if cause.startswith("host:")) + why["launch_latency"]
    loading = min(launches.cold_ticks(line, window), why["host:launch_api"])
    parts = {
        "sync": why["host:sync_api"],
        "alloc": why["host:alloc_api"],
        "code_load": loading + why["host:module_load_api"],
        "launch": why["host:launch_api"] + why["launch_latency"] - loading,
    }
    parts["dispatch"] = starved - sum(parts.values())
    total = window.length - gaps.busy
    main = starved >= HOST_BOUND_PCT / 100 * window.length and starved >= MAIN_CAUSE_PCT / 100 * total and starved > 0
    return {
        "starved_us": us(starved),
        "starved_pct_of_window": share(starved, window.length),
        "starved_pct_of_idle": share(starved, total),
        "starved_by_us": {part: us(ticks) for part, ticks in parts.items()},
        "cause": max(parts, key=parts.__getitem__).upper() if main else None,
    }


def _host(line: Timeline, window: Window, thread: int | None) -> dict[str, float]:
    if thread is None:
        return {}
    spent = line.clock(thread).spent(np.array([window.begin]), np.array([window.end]))
    return {ACTIVITIES[i]: share(ticks, window.length) for i, ticks in enumerate(spent.tolist()) if ticks}


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


def _libraries(line: Timeline, events: np.ndarray) -> dict[str, dict[str, Any]]:
    numbers: Counter[str] = Counter()
    lengths: Counter[str] = Counter()
    for _, library, n, ticks in _by_name(line, events):
        numbers[library] += n
        lengths[library] += ticks
    whole = sum(lengths.values())
    return {name: {"n": numbers[name], "us": us(t), "pct": share(t, whole)} for name, t in lengths.most_common()}


def _top(line: Timeline, events: np.ndarray) -> list[dict[str, Any]]:
    rows = sorted(_by_name(line, events), key=lambda row: -row[3])
    whole = sum(row[3] for row in rows)
    return [
        {"name": name, "library": library, "n": n, "us": us(ticks), "pct": share(ticks, whole)}
        for name, library, n, ticks in rows[:TOP]
    ]


def _path_shares(path: Counter[str], window: Window) -> dict[str, float]:
    parts = {
        "device": path["device"] + path["device_gap"],
        "unexplained": path["unexplained_wait"] + path["unlinked"],
        "host": sum(ticks for part, ticks in path.items() if part.startswith("host:")),
        "handover": path["launch_latency"] + path["sync_return"],
    }
    return {part: share(ticks, window.length) for part, ticks in parts.items()}


def steps(line: Timeline) -> list[dict[str, Any]]:
    """Return the metrics of each annotated step by start: ProfilerStep#N, prefill, and one decoded token each (M9)."""
    rows = [(int(row), kind) for kind in STEPS for row in line.marked(kind)]
    return [{"kind": kind, **_step(line, row)} for row, kind in sorted(rows)]


def _step(line: Timeline, row: int) -> dict[str, Any]:
    trace = line.trace
    window = Window("step", int(trace.start[row]), int(trace.end[row]))
    found: dict[str, Any] = {"name": trace.called(row), "wall_us": us(window.length)}
    process = line.processes == line.processes[trace.thread[row]]
    operators = launches.starting(line, line.operators, window)
    found["aten_ops"] = int(process[trace.thread[operators]].sum())
    if not len(line.rows):
        return found
    begun = line.linked & (line.call_start >= window.begin) & (line.call_start < window.end)
    begun[begun] = process[trace.thread[line.call[begun]]]
    events = np.flatnonzero(begun)
    waits = launches.starting(line, line.kind("sync_api"), window)
    spill = int(line.end[events].max()) - window.end if len(events) else 0
    found |= {
        "device_events": len(events),
        "kernels": int(line.kernel[events].sum()),
        "launch_calls": len(np.unique(line.call[events])),
        "linked_busy_us": us(idle.union(line, None, events)),
        "spill_us": us(max(spill, 0)),
        "sync_calls": int(process[trace.thread[waits]].sum()),
    }
    inside = in_window(line, window)
    found["device_busy_in_span_us"], found["busy_in_span_pct"] = inside["busy_us"], inside["busy_pct"]
    keys = ("idle_us", "idle_why_us", "starved_us", "starved_pct_of_window", "starved_by_us", "queue", "cause")
    found |= {key: inside[key] for key in (*keys, "critical_path_pct")}
    return found | {"verdict": verdict(_outer(line) | inside)["verdict"]}


def _outer(line: Timeline) -> dict[str, Any]:
    return {"quirks": _quirks(line), "launches_in_file": len(line.launches), "truncated": False, "window": {}}


def verdict(found: dict[str, Any]) -> dict[str, Any]:
    """Return {verdict, why}: HOST_BOUND, DEVICE_BOUND, DEVICE_GAPS, MIXED, INCOMPLETE or NO_DEVICE_DATA; `why` says which
    rule an INCOMPLETE comes from."""
    code, why = _rule(found)
    return {"verdict": code, "why": why}


def _rule(found: dict[str, Any]) -> tuple[str, str | None]:
    if found["truncated"]:
        return "INCOMPLETE", "CUT"
    if "all_kernels" in found and "dev" in found["categories"] and not found["categories"]["dev"]:
        return "NO_DEVICE_DATA", None
    if found["window"] is None:
        return "INCOMPLETE", "NO_WINDOW"
    if found["quirks"]["launch_without_device_event"] * 2 > found["launches_in_file"]:
        return "INCOMPLETE", "LAUNCHES_WITHOUT_KERNELS"
    if found["busy_pct"] >= DEVICE_BOUND_PCT:
        return "DEVICE_BOUND", None
    if found["unlinked_busy_us"] * 2 > found["busy_us"]:
        return "INCOMPLETE", "UNLINKED"
    if found["cause"]:
        return "HOST_BOUND", None
    idle_us, why = found["idle_us"]["total"], found["idle_why_us"]
    if why.get("unexplained_wait", 0) >= MAIN_CAUSE_PCT / 100 * idle_us:
        return "INCOMPLETE", "SLICE"
    if why.get("graph_internal", 0) + why.get("queued", 0) >= MAIN_CAUSE_PCT / 100 * idle_us:
        return "DEVICE_GAPS", None
    return "MIXED", None
