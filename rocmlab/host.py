"""What was a host thread doing at every instant: Python, an operator, a launch, a wait?

`Clock(begin, end, activity)` cuts a thread into segments by its innermost event; `clock.spent(begins, ends)` sums them.
"""

from __future__ import annotations

import numpy as np

from rocmlab import calls

ACTIVITY = {name: number for number, name in enumerate(calls.ACTIVITIES)}


class Clock:
    """One host thread, cut into segments by its innermost event."""

    def __init__(self, begin: np.ndarray, end: np.ndarray, activity: np.ndarray) -> None:
        times, kinds = _innermost(begin.tolist(), end.tolist(), activity.tolist())
        changes = np.flatnonzero(np.diff(kinds, prepend=-1)) if len(kinds) else np.zeros(0, dtype=np.int64)
        self.times = np.append(times[changes], times[-1:]) if len(times) else np.zeros(1, dtype=np.int64)
        kinds = kinds[changes]
        lengths = np.diff(self.times)
        self.sums = np.zeros((len(calls.ACTIVITIES), len(self.times)), dtype=np.int64)
        for number in np.unique(kinds):
            self.sums[number, 1:] = np.cumsum(np.where(kinds == number, lengths, 0))

    def spent(self, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Return ticks by activity, shape (len(calls.ACTIVITIES),), over intervals that may not overlap."""
        begin, end = np.asarray(begin, dtype=np.int64), np.asarray(end, dtype=np.int64)
        total = self._until(end) - self._until(begin)
        total[0] = int((end - begin).sum()) - total[1:].sum()
        return total

    def segments(self, begin: int, end: int) -> list[tuple[int, int, int]]:
        """Return (begin, end, activity) of each segment that overlaps an interval, cut to it; gaps are left out."""
        first = max(int(np.searchsorted(self.times, begin, side="right")) - 1, 0)
        last = min(int(np.searchsorted(self.times, end)), len(self.times) - 1)
        found = []
        for place in range(first, last):
            grown = self.sums[:, place + 1] - self.sums[:, place]
            inside = max(begin, int(self.times[place])), min(end, int(self.times[place + 1]))
            found.append((*inside, int(grown.argmax())))
        return [segment for segment in found if segment[1] > segment[0]]

    def _until(self, at: np.ndarray) -> np.ndarray:
        at = np.clip(at, self.times[0], self.times[-1])
        left = np.clip(np.searchsorted(self.times, at, side="right") - 1, 0, max(len(self.times) - 2, 0))
        if len(self.times) < 2:
            return np.zeros(len(calls.ACTIVITIES), dtype=np.int64)
        step = self.times[left + 1] - self.times[left]
        part = at - self.times[left]
        # Inside a segment exactly one activity grows, by one tick a tick.
        grown = np.where(self.sums[:, left + 1] - self.sums[:, left] == step, part, 0) * (step > 0)
        return (self.sums[:, left] + grown).sum(axis=1)


def _innermost(begin: list[int], end: list[int], activity: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return (n + 1 times, n activities) of nested events sorted by start, longest first.

    An event that outlasts the one around it is cut at that one's end, so that the segments never overlap.
    """
    times: list[int] = []
    kinds: list[int] = []
    ends: list[int] = []
    open_kinds: list[int] = []
    for first, last, kind in zip(begin, end, activity, strict=True):
        while ends and ends[-1] <= first:
            times.append(ends.pop())
            open_kinds.pop()
            kinds.append(open_kinds[-1] if open_kinds else 0)
        times.append(first)
        kinds.append(kind)
        ends.append(min(last, ends[-1]) if ends else last)
        open_kinds.append(kind)
    while ends:
        times.append(ends.pop())
        open_kinds.pop()
        kinds.append(open_kinds[-1] if open_kinds else 0)
    return np.array(times, dtype=np.int64), np.array(kinds, dtype=np.int64)
