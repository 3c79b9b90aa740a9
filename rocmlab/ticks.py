"""Numbers of a trace as they are said: ticks as microseconds, shares in percent, quantiles that were measured."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rocmlab.readers.traces import TICKS


def us(ticks: Any) -> float:
    """Return microseconds, to the nanosecond."""
    return round(float(ticks) / TICKS, 3)


def share(part: Any, whole: Any) -> float:
    """Return a percentage; 0 of nothing."""
    return round(100 * float(part) / float(whole), 3) if whole else 0.0


def rank(values: np.ndarray, q: float) -> float | None:
    """Return the nearest-rank quantile in microseconds: a value that was measured; None of nothing."""
    if not len(values):
        return None
    return us(np.sort(values)[max(math.ceil(q * len(values)) - 1, 0)])
