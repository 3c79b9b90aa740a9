"""What do the host thread, its launches and the device do within one decode step?

`lanes(trace)` picks the step of median length and returns plain lists that a record can hold and `lane_plot` can draw.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from rocmlab.calls import ACTIVITIES
from rocmlab.host import ACTIVITY, Clock
from rocmlab.readers import traces
from rocmlab.ticks import us
from rocmlab.timeline import Timeline, Window

PARTS = 360  # equal parts of a step in its figure, two pixels each
GROUPS = {"aten": "operator", "launch_api": "launch", "sync_api": "wait"}
KINDS = {traces.KERNEL: "kernel", traces.COPY: "copy", traces.FILL: "copy"}


def lanes(trace: traces.Trace) -> dict[str, Any] | None:
    """Return the decode step of median length as lanes: `{name, wall_us, part, host, host_part, launches, device}`.

    Lanes are lists of [begin_us, end_us, what] from the step's begin: what the step's thread did, in shares of 360
    equal parts of the step ([operator, launch, wait, other]) and exactly for `part`, the stretch around the middle
    kernel that the figure magnifies; launch calls; kernels and copies. None without an annotated decode step.
    """
    line = Timeline(trace)
    rows = line.marked("token")
    if not len(rows):
        return None
    lengths = trace.end[rows] - trace.start[rows]
    row = int(rows[lengths.argsort()[len(rows) // 2]])
    window = Window("step", int(trace.start[row]), int(trace.end[row]))
    events, called = line.inside(window), line.starting(line.launches, window)
    part, clock = _part(line, window, events), line.clock(int(trace.thread[row]))
    since = window.begin
    return {
        "name": trace.called(row),
        "wall_us": us(window.length),
        "part": [us(part.begin - since), us(part.end - since)],
        "host": _shares(clock, window),
        "host_part": [[us(b - since), us(e - since), _group(a)] for b, e, a in clock.segments(part.begin, part.end)],
        "launches": [[us(trace.start[c] - since), us(trace.end[c] - since), "launch"] for c in called],
        "device": [
            [us(line.start[e] - since), us(line.end[e] - since), KINDS[int(trace.cat[line.rows[e]])]] for e in events
        ],
    }


def _group(activity: int) -> str:
    return GROUPS.get(ACTIVITIES[activity], "other")


def _part(line: Timeline, window: Window, events: Any) -> Window:
    """Return the stretch that is shown magnified: 1/25 of the step around its middle kernel, or around its middle."""
    width = window.length // 25
    centre = int(line.start[events[len(events) // 2]]) if len(events) else (window.begin + window.end) // 2
    begin = min(max(centre - width // 2, window.begin), window.end - width)
    return Window("part", begin, begin + width)


def _shares(clock: Clock, window: Window) -> list[list[float]]:
    """Return the shares of each equal part of a window that operators, launch calls, waits and the rest take."""
    edges = np.linspace(window.begin, window.end, PARTS + 1).astype(np.int64)
    found = []
    for begin, end in itertools.pairwise(edges):
        spent = clock.spent(np.array([begin]), np.array([end])) / max(int(end - begin), 1)
        known = [float(spent[ACTIVITY[name]]) for name in GROUPS]
        found.append([round(value, 3) for value in (*known, max(0.0, 1 - sum(known)))])
    return found
