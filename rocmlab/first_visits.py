"""What does the first visit of a shape cost beside later ones of the same shape? Pure; for 03, 04, 05, 11 and 12.

Shapes differ by more than a first visit costs, so each is compared with itself, and only the differences are pooled.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from rocmlab.findings import Finding, finding

TIMES = 1.3  # a first visit slower than later ones by this factor is named
LEAST = 1.15  # times the later visits, for every shape: noise slows some of them, never all
ONE_OFF_TIMES = 5.0  # a gap of over this many medians of its visit is no part of what each token costs


@dataclass(frozen=True)
class Visit:
    """One shape: median ms a token at its first visit and at later ones, and the largest gap of the first visit."""

    first_ms: float
    usual_ms: float
    largest_ms: float | None = None

    @property
    def extra_ms(self) -> float:
        return self.first_ms - self.usual_ms

    @property
    def ratio(self) -> float:
        return self.first_ms / self.usual_ms


@dataclass(frozen=True)
class Cost:
    """The shape whose difference is the median, the range of the differences, and what the shapes say together.

    `slow` is True, False, or None where they do not agree; `one_off_ms` the largest gap that stands apart, or None.
    """

    first_ms: float
    usual_ms: float
    low_ms: float
    high_ms: float
    count: int
    slow: bool | None
    one_off_ms: float | None

    @property
    def extra_ms(self) -> float:
        return self.first_ms - self.usual_ms


def cost(visits: list[Visit]) -> Cost | None:
    """Return what a first visit costs: the shape in the middle of the differences, the lower of two; None: no shape.

    Both that shape's ratio and the median of all ratios must lie on the same side of the bar.
    """
    visits = [one for one in visits if one.usual_ms > 0]
    if not visits:
        return None
    ordered = sorted(visits, key=lambda one: one.extra_ms)
    middle = ordered[(len(ordered) - 1) // 2]
    ratios = [one.ratio for one in ordered]
    apart = [one.largest_ms for one in visits if one.largest_ms and one.largest_ms > ONE_OFF_TIMES * one.first_ms]
    return Cost(
        middle.first_ms, middle.usual_ms, ordered[0].extra_ms, ordered[-1].extra_ms, len(visits),
        slow=_slow([middle.ratio, statistics.median(ratios)], min(ratios)), one_off_ms=max(apart, default=None),
    )  # fmt: skip


def _slow(typical: list[float], least: float) -> bool | None:
    if min(typical) > TIMES and least > LEAST:
        return True
    return False if max(typical) <= TIMES and min(typical) >= 1 / TIMES else None


def slow(found: Cost, side: str, numbers: dict[str, Any]) -> Finding:
    """Return the finding that a first visit costs more; a single gap that stands apart is named apart."""
    first, usual = round(found.first_ms, 1), round(found.usual_ms, 1)  # as they are said: the reader subtracts them
    said: dict[str, Any] = {"first": first, "usual": usual, "extra": first - usual}
    numbers = numbers | {"extra_low_ms": found.low_ms, "extra_high_ms": found.high_ms, "comparisons": found.count}
    if found.one_off_ms is None:
        return finding("FIRST_VISIT_SLOW", numbers=numbers, side=side, **said)
    numbers["one_off_ms"] = found.one_off_ms
    return finding("FIRST_VISIT_SLOW", numbers=numbers, variant="one_off", side=side, **said)
