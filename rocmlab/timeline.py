"""What did the device and each host thread do at every instant of a trace?

`line = Timeline(trace)` picks one device and links its events to the calls that launched them; `line.window("auto")`
chooses what is looked at; `line.clock(thread).spent(begin, end)` splits host time by what ran innermost. All times are
whole nanoseconds from the first event of the trace, so that parts add up exactly.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rocmlab import calls
from rocmlab.host import ACTIVITY, Clock
from rocmlab.readers import WindowError, traces
from rocmlab.readers.traces import TICKS, Trace

OVERLAP = TICKS  # 1 us; less is jitter between two records
GAP = math.ceil(0.01 * TICKS)  # a double of 4e12 us steps by 1 ns: less than 0.01 us between two kernels is no gap
STEPS = {
    "profiler_step": re.compile(r"^ProfilerStep#\d+"),
    "token": re.compile(r"^(?:decode|generate|token)(?:[_.:-]?(?:step|token))?[_#.:-]?\d*$", re.IGNORECASE),
    "prefill": re.compile(r"^prefill(?:[_#.:-]?\d+)?$", re.IGNORECASE),
}
HOST_CATEGORIES = {
    traces.PYTHON: ACTIVITY["python"],
    traces.OP: ACTIVITY["aten"],
    traces.MARK: ACTIVITY["annotation"],
    traces.OVERHEAD: ACTIVITY["profiler"],
}


@dataclass(frozen=True)
class Window:
    """A span of the trace in ticks, how it was asked for, and the annotations that it covers."""

    mode: str
    begin: int
    end: int
    label: str = ""

    @property
    def length(self) -> int:
        return self.end - self.begin

    def __str__(self) -> str:
        return self.label or self.mode


class Timeline:
    """One device of a trace: its events by start, and the calls that launched them.

    Arrays by device event: `rows` (index in the trace), `start`, `end` (cut where an event runs over the next one of
    its stream), `raw_end` (as recorded), `kernel`, `call` (index of the launching call, -1 unknown), `linked`,
    `is_launch`, `call_start`, `submitted` (when the work was handed over: the end of a launch call, the begin of a
    copy, which may block until it is done).
    """

    def __init__(self, trace: Trace, device: int | None = None) -> None:
        self.trace = trace
        every = trace.of(*traces.DEVICE)
        found, counts = np.unique(trace.device[every], return_counts=True)
        self.devices: list[int] = found.tolist()
        self.device = device if device is not None else int(found[counts.argmax()]) if len(found) else None
        self.rows = every[trace.device[every] == self.device] if len(every) else every
        self.start, self.raw_end = trace.start[self.rows], trace.end[self.rows]
        self.end, self.overlaps = _clipped(self.start, self.raw_end, trace.stream[self.rows])
        self.kernel = trace.cat[self.rows] == traces.KERNEL
        self.calls = trace.of(traces.CALL)
        self.call_kind = _kinds(trace, self.calls)
        self._of_kind: dict[str, np.ndarray] = {}
        self.launches = self.kind("launch_api")
        self.graph_launches = _named(trace, self.launches, calls.is_graph)
        self._link()
        self._clocks: dict[int, Clock] = {}
        self._thread_rows: dict[int, np.ndarray] = {}

    def _link(self) -> None:
        trace = self.trace
        self.call = _launched_by(trace, self.calls, self.rows)
        self.linked = self.call >= 0
        self.is_launch = np.isin(self.call, self.launches)
        self.call_start, handed = self.start.copy(), self.start.copy()
        self.call_start[self.linked] = trace.start[self.call[self.linked]]
        handed[self.linked] = self.call_start[self.linked]
        handed[self.is_launch] = trace.end[self.call[self.is_launch]]
        self.submitted = np.minimum(handed, self.start)
        known = np.flatnonzero(self.linked)
        self._by_call_start = known[np.argsort(self.call_start[known], kind="stable")]
        self._calls_by_start = self.call_start[self._by_call_start]
        self._reached = np.maximum.accumulate(self.end) if len(self.end) else self.end

    def inside(self, window: Window) -> np.ndarray:
        """Return the positions of the device events that run in the window, or stand in it without any length."""
        first = int(np.searchsorted(self._reached, window.begin))
        last = int(np.searchsorted(self.start, window.end, side="right"))
        start, end = self.start[first:last], self.end[first:last]
        running = (start < window.end) & (end > window.begin)
        instant = (start == end) & (start >= window.begin)
        return first + np.flatnonzero(running | instant)

    def begun(self, window: Window) -> np.ndarray:
        """Return the positions of the device events whose call starts in the window."""
        first, last = np.searchsorted(self._calls_by_start, (window.begin, window.end))
        return np.sort(self._by_call_start[first:last])

    def starting(self, rows: np.ndarray, window: Window) -> np.ndarray:
        """Return those of some sorted rows that start in the window."""
        first, last = np.searchsorted(self.trace.start, (window.begin, window.end))
        return rows[np.searchsorted(rows, first) : np.searchsorted(rows, last)]

    def kind(self, activity: str) -> np.ndarray:
        """Return the rows of host calls of one activity, such as "sync_api", by start."""
        if activity not in self._of_kind:
            self._of_kind[activity] = self.calls[self.call_kind == ACTIVITY[activity]]
        return self._of_kind[activity]

    def thread_rows(self, thread: int) -> np.ndarray:
        """Return the rows of a host thread's events, by start, longest first."""
        if thread not in self._thread_rows:
            mine = np.isin(self.trace.cat, [*HOST_CATEGORIES, traces.CALL]) & (self.trace.thread == thread)
            self._thread_rows[thread] = np.flatnonzero(mine)
        return self._thread_rows[thread]

    def clock(self, thread: int) -> Clock:
        """Return the clock of a host thread; made once."""
        if thread not in self._clocks:
            trace, mine = self.trace, self.thread_rows(thread)
            activity = np.zeros(len(mine), dtype=np.int64)
            for cat, number in HOST_CATEGORIES.items():
                activity[trace.cat[mine] == cat] = number
            is_call = trace.cat[mine] == traces.CALL
            activity[is_call] = self.call_kind[np.searchsorted(self.calls, mine[is_call])]
            self._clocks[thread] = Clock(trace.start[mine], trace.end[mine], activity)
        return self._clocks[thread]

    @functools.cached_property
    def busiest_thread(self) -> int | None:
        """The host thread with most events, for a trace without launches."""
        host = self.trace.thread[np.isin(self.trace.cat, [*HOST_CATEGORIES, traces.CALL])]
        return int(np.bincount(host).argmax()) if len(host) else None

    @functools.cached_property
    def processes(self) -> np.ndarray:
        """A number for the process of each thread of the trace."""
        pids = [str(pid) for pid, _ in self.trace.threads]
        return np.unique(pids, return_inverse=True)[1] if pids else np.zeros(0, dtype=np.int64)

    @functools.cached_property
    def operators(self) -> np.ndarray:
        return self.trace.of(traces.OP)

    @functools.cached_property
    def sync_operators(self) -> np.ndarray:
        """Rows of operators that need a value or a size from the device."""
        return _named(self.trace, self.trace.of(traces.OP), calls.SYNC_OPS.__contains__)

    @functools.cached_property
    def marks(self) -> dict[str, np.ndarray]:
        """Rows of the annotations of the host, by name, in the order of their first start."""
        found: dict[str, list[int]] = {}
        for row in self.trace.of(traces.MARK).tolist():
            found.setdefault(self.trace.called(row), []).append(row)
        return {name: np.array(rows) for name, rows in found.items()}

    def marked(self, kind: str) -> np.ndarray:
        """Return the rows of the annotated steps of one kind by start: profiler_step, token or prefill."""
        rows = [rows for name, rows in self.marks.items() if STEPS[kind].match(name)]
        return np.sort(np.concatenate(rows)) if rows else np.zeros(0, dtype=np.int64)

    def window(self, asked: str = "auto") -> Window | None:
        """Choose a window: auto, linked, device, trace, annotation:NAME, or BEGIN,END in microseconds.

        None where the trace has nothing to make it from, or nothing that takes time. Raises WindowError for a form
        that is none, or a name that is not there or takes no time.
        """
        found = self._window(asked)
        if found and not found.length and asked.startswith("annotation:"):
            raise WindowError(f"{found} takes no time in this trace: there is nothing to measure")
        return found if found and found.length else None

    def _window(self, asked: str) -> Window | None:
        if asked == "auto":
            every = (self.marked("profiler_step"), self.marked("token"))
            lasting = [rows[self.trace.end[rows] > self.trace.start[rows]] for rows in every]
            kinds = [rows for rows in lasting if len(rows)]
            return self._span("auto", kinds[0]) if len(kinds) == 1 else self._window("linked")
        if asked == "linked":
            if not self.linked.any():
                return None
            return Window("linked", int(self.call_start[self.linked].min()), int(self.end[self.linked].max()))
        if asked == "device":
            return Window("device", int(self.start.min()), int(self.end.max())) if len(self.rows) else None
        if asked == "trace":
            return Window("trace", 0, int(self.trace.end.max())) if len(self.trace) else None
        if asked.startswith("annotation:"):
            return self._span(asked, self._named(asked.removeprefix("annotation:")))
        numbers = re.fullmatch(r"(-?\d+(?:\.\d+)?),(-?\d+(?:\.\d+)?)", asked)
        if not numbers or float(numbers[1]) >= float(numbers[2]):
            raise WindowError(f"{asked} is no window: auto, linked, device, trace, annotation:NAME or BEGIN,END in us")
        return Window(asked, round(float(numbers[1]) * TICKS), round(float(numbers[2]) * TICKS))

    def _named(self, name: str) -> np.ndarray:
        rows = self.marks.get(name)
        if rows is None:
            alike = [found for called, found in self.marks.items() if called.startswith(name)]
            rows = np.concatenate(alike) if alike else None
        if rows is None:
            known = ", ".join(list(self.marks)[:12]) or "none"
            raise WindowError(f"no annotation is called {name}; this trace has: {known}")
        return rows

    def _span(self, mode: str, rows: np.ndarray) -> Window | None:
        if not len(rows):
            return None
        first, last = self.trace.called(rows[0]), self.trace.called(rows[-1])
        label = first if first == last else f"{first} .. {last}"
        return Window(mode, int(self.trace.start[rows].min()), int(self.trace.end[rows].max()), label)


def _clipped(start: np.ndarray, end: np.ndarray, stream: np.ndarray) -> tuple[np.ndarray, int]:
    """Cut each event at the next start on its stream; return (ends, how many ran over by more than a rounding)."""
    order = np.lexsort((start, stream))
    following = np.full(len(start), np.iinfo(np.int64).max)
    same = stream[order][1:] == stream[order][:-1]
    following[order[:-1][same]] = start[order][1:][same]
    return np.minimum(end, following), int((end - following >= OVERLAP).sum())


def _launched_by(trace: Trace, rows: np.ndarray, events: np.ndarray) -> np.ndarray:
    """Return for each device event the index of the call with the same correlation number, -1 where there is none."""
    usable = rows[trace.correlation[rows] != 0]
    if not len(usable) or not len(events):
        return np.full(len(events), -1)
    numbers, first = np.unique(trace.correlation[usable], return_index=True)
    wanted = trace.correlation[events]
    at = np.clip(np.searchsorted(numbers, wanted), 0, len(numbers) - 1)
    return np.where((numbers[at] == wanted) & (wanted != 0), usable[first[at]], -1)


def _kinds(trace: Trace, rows: np.ndarray) -> np.ndarray:
    """Return the activity number of each host call."""
    numbers, inverse = np.unique(trace.name[rows], return_inverse=True)
    return np.array([ACTIVITY[calls.kind(trace.names[n])] for n in numbers], dtype=np.int64)[inverse]


def _named(trace: Trace, rows: np.ndarray, wanted: Callable[[str], bool]) -> np.ndarray:
    """Return those of some rows whose name is wanted; asks once a name."""
    numbers, inverse = np.unique(trace.name[rows], return_inverse=True)
    return rows[np.array([wanted(trace.names[n]) for n in numbers], dtype=bool)[inverse]]
