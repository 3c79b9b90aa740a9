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

from rocmlab import device_time, idle, launches, trace_judge
from rocmlab.calls import ACTIVITIES
from rocmlab.readers import traces
from rocmlab.readers.traces import Trace
from rocmlab.ticks import share, us
from rocmlab.timeline import STEPS, Timeline, Window

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

    Raises WindowError for a window that cannot be understood or a name that is not in the trace.
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
        "all_kernels": device_time.kernel_times(line, np.arange(len(line.rows))),
        "launches_in_file": len(line.launches),
    }
    if window is None:
        return found | trace_judge.verdict(found)
    found |= host_only(line, window) if not len(line.rows) else in_window(line, window)
    found |= trace_judge.verdict(found)
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
    """Return hip or cuda, as the names of the runtime calls or else of the devices say; None without any."""
    names = {line.trace.names[number] for number in np.unique(line.trace.name[line.calls]).tolist()}
    names |= {str(device.get("name")) for device in line.trace.devices}
    if any(name.startswith(("hip", "AMD")) for name in names):
        return "hip"
    return "cuda" if any(name.startswith(("cu", "NVIDIA")) for name in names) else None


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
    operators = line.starting(line.trace.of(traces.OP), window)
    named = Counter(line.trace.called(row) for row in line.starting(line.sync_operators, window))
    return {
        "host_exclusive_pct": _host(line, window, line.busiest_thread),
        "sync": {"sync_ops": dict(named)},
        "aten_ops": len(operators),
    }


def in_window(line: Timeline, window: Window) -> dict[str, Any]:
    """Return the metrics M2 to M12 of one window of a trace that has device events."""
    gaps, main = idle.gaps(line, window), launches.main_thread(line, window)
    return {
        **split(line, window, gaps, main),
        "device_events": device_time.numbers(line, gaps.events),
        "kernel_us": device_time.kernel_times(line, gaps.events),
        "launch_delay_us": launches.delays(line, gaps.events),
        "launches": launches.launches(line, window, main),
        "replays": launches.replays(line, window),
        "libraries": device_time.libraries(line, gaps.events),
        "top_kernels": device_time.top_kernels(line, gaps.events),
        "sync": launches.syncs(line, window, gaps.events),
        "waits": launches.waits(line, window),
        "no_launch_ops": launches.idle_operators(line, window),
    }


def split(line: Timeline, window: Window, gaps: idle.Gaps, main: int | None) -> dict[str, Any]:
    """Return how a window splits: busy and idle, idle by cause, the host's time, the critical path, the queue."""
    why = idle.causes(line, gaps)
    path = idle.critical_path(line, window, gaps, main)
    return {
        **device_time.busy(line, window, gaps),
        "idle_us": device_time.idle_time(gaps, window),
        "idle_why_us": {cause: us(ticks) for cause, ticks in why.most_common()},
        **_starved(line, window, gaps, why),
        "host_exclusive_pct": _host(line, window, main),
        "critical_path_us": {part: us(ticks) for part, ticks in path.most_common()},
        "critical_path_pct": _path_shares(path, window),
        "queue": launches.queue(line, window, gaps.events),
    }


def _starved(line: Timeline, window: Window, gaps: idle.Gaps, why: Counter[str]) -> dict[str, Any]:
    """Return the time for which no work had reached the device (M6: not handed over, or still on its way), and what of
    the host it went to."""
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
    return {
        "starved_us": us(starved),
        "starved_pct_of_window": share(starved, window.length),
        "starved_pct_of_idle": share(starved, total),
        "starved_by_us": {part: us(ticks) for part, ticks in parts.items()},
        "cause": trace_judge.cause(parts, window.length, total),
    }


def _host(line: Timeline, window: Window, thread: int | None) -> dict[str, float]:
    if thread is None:
        return {}
    spent = line.clock(thread).spent(np.array([window.begin]), np.array([window.end]))
    return {ACTIVITIES[i]: share(ticks, window.length) for i, ticks in enumerate(spent.tolist()) if ticks}


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
    operators = line.starting(line.operators, window)
    found["aten_ops"] = int(process[trace.thread[operators]].sum())
    if not len(line.rows):
        return found
    events = line.begun(window)
    events = events[process[trace.thread[line.call[events]]]]
    waits = line.starting(line.kind("sync_api"), window)
    spill = int(line.end[events].max()) - window.end if len(events) else 0
    found |= {
        "device_events": len(events),
        "kernels": int(line.kernel[events].sum()),
        "launch_calls": len(np.unique(line.call[events])),
        "linked_busy_us": us(idle.union(line, None, events)),
        "spill_us": us(max(spill, 0)),
        "sync_calls": int(process[trace.thread[waits]].sum()),
    }
    if not window.length:
        return found
    inside = split(line, window, idle.gaps(line, window), launches.main_thread(line, window))
    found["verdict"] = trace_judge.window_rule(inside)[0]
    found["device_busy_in_span_us"], found["busy_in_span_pct"] = inside.pop("busy_us"), inside.pop("busy_pct")
    return found | inside
