"""Why was the device idle, and what did the end of the window wait for?

`gaps(line, window)` finds idle time, `causes(line, window, found)` names its reason gap by gap, `critical_path(line,
window)` walks back from the end of the window. The parts of each add up to the idle time and to the window.
"""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass

import numpy as np

from rocmlab import calls
from rocmlab.readers.traces import TICKS
from rocmlab.timeline import GAP, Timeline, Window

LONGEST_LATENCY = 200 * TICKS  # a device that starts later than this waits for work that the trace does not show


@dataclass(frozen=True)
class Gaps:
    """Idle time of one window: `before` the position, in `events`, of the device event that ends each gap."""

    events: np.ndarray  # positions in Timeline.rows
    begin: np.ndarray
    end: np.ndarray
    before: np.ndarray
    lead: int
    tail: int
    busy: int

    @property
    def inner(self) -> np.ndarray:
        """Lengths of the gaps between events, without lead and tail, also those too short to count."""
        lengths = self.end - self.begin
        return lengths[self.before > 0]


def gaps(line: Timeline, window: Window) -> Gaps:
    """Return the union of all streams' events in the window and what it leaves open; lead and tail included."""
    inside = line.inside(window)
    begin = np.maximum(line.start[inside], window.begin)
    reached = np.maximum.accumulate(np.minimum(line.end[inside], window.end)) if len(inside) else begin
    before = np.concatenate([[window.begin], reached[:-1]]) if len(inside) else begin
    open_at = np.flatnonzero(begin > before)
    tail = window.end - int(reached[-1]) if len(inside) else window.length
    idle = int((begin - before)[open_at].sum()) + tail
    lead = int(begin[0] - window.begin) if len(inside) else 0
    return Gaps(inside, before[open_at], begin[open_at], open_at, lead, tail, window.length - idle)


def union(line: Timeline, window: Window | None, events: np.ndarray) -> int:
    """Return the time for which at least one of these events ran, in the window if there is one."""
    begin, end = line.start[events], line.raw_end[events]
    if window is not None:
        begin, end = np.clip(begin, window.begin, window.end), np.clip(end, window.begin, window.end)
    if not len(events):
        return 0
    reached = np.concatenate([begin[:1], np.maximum.accumulate(end)[:-1]])
    return int((np.maximum(end, reached) - np.maximum(begin, reached)).clip(0).sum())


def causes(line: Timeline, found: Gaps) -> Counter[str]:
    """Split the idle time by cause, in ticks: host:*, launch_latency, queued, graph_internal, unlinked, tail,
    unexplained_wait (M6)."""
    event = found.events[found.before]
    call = line.call[event]
    previous = np.where(found.before > 0, line.call[found.events[np.maximum(found.before - 1, 0)]], -2)
    begin, end = found.begin, found.end
    submitted = line.submitted[event]
    unlinked, replayed = call < 0, (call >= 0) & (call == previous)
    queued = ~unlinked & ~replayed & (submitted <= begin)
    waited = ~unlinked & ~replayed & ~queued
    spent: Counter[str] = Counter()
    spent["unlinked"] = int((end - begin)[unlinked].sum())
    spent["graph_internal"] = int((end - begin)[replayed].sum())
    _wait(spent, "queued", (end - begin)[queued])
    call_start = np.clip(line.call_start[event], begin, end)
    handed = np.maximum(submitted, call_start)
    spent["host:launch_api"] += int((handed - call_start)[waited].sum())
    _wait(spent, "launch_latency", (end - handed)[waited])
    spent.update(host_time(line, line.trace.thread[call[waited]], begin[waited], call_start[waited]))
    spent["tail"] = found.tail
    return Counter({cause: ticks for cause, ticks in spent.items() if ticks})


def _wait(spent: Counter[str], cause: str, lengths: np.ndarray) -> None:
    spent[cause] += int(np.minimum(lengths, LONGEST_LATENCY).sum())
    spent["unexplained_wait"] += int(np.maximum(lengths - LONGEST_LATENCY, 0).sum())


def host_time(line: Timeline, thread: np.ndarray, begin: np.ndarray, end: np.ndarray) -> Counter[str]:
    """Split intervals, none overlapping, by the innermost activity of their thread."""
    spent: Counter[str] = Counter()
    for number in np.unique(thread).tolist():
        mine = thread == number
        for activity, ticks in enumerate(line.clock(number).spent(begin[mine], end[mine])):
            spent[f"host:{calls.ACTIVITIES[activity]}"] += int(ticks)
    return spent


def critical_path(line: Timeline, window: Window, found: Gaps, main: int | None) -> Counter[str]:
    """Walk back from the end of the window over what it waited for, in ticks by part; they add up to it (M11)."""
    walk = _Walk(line, window, found)
    walk.run(main)
    thread, begin, end = np.array(walk.host, dtype=np.int64).reshape(-1, 3).T
    walk.spent.update(host_time(line, thread, begin, end))
    return Counter({part: ticks for part, ticks in walk.spent.items() if ticks})


class _Walk:
    """The state of one walk: where it stands in time, and what it has passed."""

    def __init__(self, line: Timeline, window: Window, found: Gaps) -> None:
        self.line, self.window = line, window
        self.at = window.end
        self.begin = np.maximum(line.start[found.events], window.begin).tolist()
        self.ends = np.minimum(line.raw_end[found.events], window.end).tolist()
        self.call = line.call[found.events].tolist()
        self.call_start = line.call_start[found.events].tolist()
        self.submitted = line.submitted[found.events].tolist()
        self.spent: Counter[str] = Counter()
        self.host: list[tuple[int, int, int]] = []
        # Events by end, to find the last one that ended during a sync call.
        self.by_end = sorted(range(len(self.ends)), key=self.ends.__getitem__)
        self.sorted_ends = [self.ends[i] for i in self.by_end]
        self.syncs: dict[int, tuple[list[int], list[int]]] = {}

    def run(self, main: int | None) -> None:
        last = self.by_end[-1] if self.by_end else -1
        host_end = self._host_end(main) if main is not None else self.window.begin
        if last < 0 or host_end > self.ends[last]:
            if main is None:
                self.pass_to(self.window.begin, "tail")
                return
            self.pass_to(host_end, "tail")
            event = self.from_host(main, len(self.begin))
        else:
            self.pass_to(self.ends[last], "tail")
            event = last
        while event >= 0:
            event = self.from_device(event)

    def _host_end(self, thread: int) -> int:
        return min(int(self.line.clock(thread).times[-1]), self.window.end)

    def pass_to(self, to: int, part: str) -> None:
        """Walk back to a time, never before the window, and charge the way to one part."""
        to = min(max(to, self.window.begin), self.at)
        self.spent[part] += self.at - to
        self.at = to

    def wait_to(self, to: int, part: str) -> None:
        """As pass_to, but no more than the longest latency; the rest is work that the trace does not show."""
        to = min(max(to, self.window.begin), self.at)
        limit = max(to, self.at - LONGEST_LATENCY)
        self.pass_to(limit, part)
        self.pass_to(to, "unexplained_wait")

    def from_device(self, event: int) -> int:
        """Pass one device event; return the device event that the walk comes to next, or -1 at the window's begin."""
        self.pass_to(self.begin[event], "device")
        previous = self._ended_in(self.window.begin - 1, self.begin[event], event)
        if self.at <= self.window.begin:
            return -1
        same_graph = previous >= 0 and self.call[previous] == self.call[event]
        unlinked = self.call[event] < 0
        if previous >= 0 and (unlinked or same_graph or self.ends[previous] > self.submitted[event]):
            self.pass_to(self.ends[previous], "device_gap")
            return previous
        if unlinked:
            self.pass_to(self.window.begin, "unlinked")
            return -1
        self.wait_to(self.submitted[event], "launch_latency")
        self.pass_to(self.call_start[event], "host:launch_api")
        if self.at <= self.window.begin:
            return -1
        return self.from_host(int(self.line.trace.thread[self.call[event]]), event)

    def from_host(self, thread: int, before: int) -> int:
        """Walk a host thread back to a sync call that a device event ended; return that event, or -1."""
        starts, ends = self._syncs(thread)
        at = bisect.bisect_right(ends, self.at) - 1
        while at >= 0 and ends[at] > self.window.begin:
            event = self._ended_in(starts[at], ends[at], before)
            if event >= 0:
                self._host_to(thread, ends[at])
                self.pass_to(self.ends[event], "sync_return")
                return event
            self._host_to(thread, starts[at])
            at -= 1
        self._host_to(thread, self.window.begin)
        return -1

    def _host_to(self, thread: int, to: int) -> None:
        to = min(max(to, self.window.begin), self.at)
        if to < self.at:
            self.host.append((thread, to, self.at))
        self.at = to

    def _syncs(self, thread: int) -> tuple[list[int], list[int]]:
        if thread not in self.syncs:
            line = self.line
            rows = line.kind("sync_api")
            rows = rows[line.trace.thread[rows] == thread]
            rows = rows[np.argsort(line.trace.end[rows], kind="stable")]
            self.syncs[thread] = (line.trace.start[rows].tolist(), line.trace.end[rows].tolist())
        return self.syncs[thread]

    def _ended_in(self, begin: int, end: int, before: int) -> int:
        """Return the last event that ended in a span of time and stands before another one, or -1."""
        at = bisect.bisect_right(self.sorted_ends, min(end, self.at)) - 1
        while at >= 0 and self.sorted_ends[at] > begin:
            if self.by_end[at] < before:
                return self.by_end[at]
            at -= 1
        return -1


def counted(lengths: np.ndarray) -> np.ndarray:
    """Return the gaps that are long enough to count."""
    return lengths[lengths >= GAP]
