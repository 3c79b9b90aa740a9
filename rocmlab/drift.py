"""Does a series of equal calls keep its speed, or does it ramp up, or slow down with heat? Pure.

`ramp(calls)` finds the call from which a series is steady; `slowing(calls)` compares its thirds; `judge(calls, sensor)`
makes findings of both. The calls must be the same work in the order in which it was done.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rocmlab.findings import Finding, finding

MIN_CALLS = 12  # fewer cannot show three thirds of four
RAMP_CALLS = 4  # one to three slow calls are compilation or plans, not a clock that rises
RAMP_PCT = 3.0  # the calls before the steady ones must be slower by this on average
SLOWER_PCT = 5.0  # last third against first, the bound of methods: throttling
TEMPERATURE_RISE_C = 5.0
CLOCK_FALL_PCT = 3.0
SIGMAS = 4.0  # how far outside the scatter a call must lie to count as slower


@dataclass(frozen=True)
class Ramp:
    """Steady from call `steady_from` (counted from 1) at `steady_ms`; the calls before took `before_ms` on average."""

    steady_from: int
    steady_ms: float
    before_ms: float


@dataclass(frozen=True)
class Slowing:
    """Medians of the first and last third, in the unit of the calls, and by how much the last is slower."""

    first_ms: float
    last_ms: float
    slower_pct: float


def scatter(samples: Sequence[float]) -> float:
    """Return a standard deviation that outliers do not move: 1.4826 x the median distance from the median."""
    middle = statistics.median(samples)
    return 1.4826 * statistics.median(abs(one - middle) for one in samples)


def ramp(calls: Sequence[float]) -> Ramp | None:
    """Return the ramp at the start of a series, None where there is none.

    The second half says what steady is. A ramp is a run of calls from the first one on that lie above it by more than
    the scatter; a single call inside may dip, so medians of three neighbours are compared.
    """
    if len(calls) < MIN_CALLS:
        return None
    half = calls[len(calls) // 2 :]
    middle = statistics.median(half)
    bound = middle + max(SIGMAS * scatter(half), 0.01 * middle)
    smooth = [statistics.median(calls[max(0, i - 1) : i + 2]) for i in range(len(calls))]
    length = next((i for i, one in enumerate(smooth) if one <= bound), len(calls))
    while length and calls[length - 1] <= bound:
        length -= 1
    if not RAMP_CALLS <= length <= len(calls) // 2:
        return None
    before, steady = statistics.mean(calls[:length]), statistics.median(calls[length:])
    falls = statistics.mean(calls[: length // 2]) > statistics.mean(calls[length // 2 : length])
    if not falls or before < steady * (1 + RAMP_PCT / 100):
        return None
    return Ramp(length + 1, steady, before)


def slowing(calls: Sequence[float]) -> Slowing | None:
    """Return first and last third where the last is slower by over 5% and by more than either scatters."""
    third = len(calls) // 3
    if len(calls) < MIN_CALLS:
        return None
    first, last = calls[:third], calls[-third:]
    early, late = statistics.median(first), statistics.median(last)
    apart = late - early
    if early <= 0 or 100 * apart / early <= SLOWER_PCT or apart <= 2 * max(scatter(first), scatter(last)):
        return None
    return Slowing(early, late, 100 * apart / early)


def sensors(rows: Any) -> dict[str, Any]:
    """Return first and last temperature (C) and shader clock (MHz) of sensor rows; null where a series lacks one."""
    found: dict[str, Any] = {}
    for key, name, unit in (("temp_c", "temp", "c"), ("sclk_mhz", "sclk", "mhz")):
        values = [row[key] for row in rows or [] if isinstance(row, dict) and isinstance(row.get(key), (int, float))]
        for place, index in (("first", 0), ("last", -1)):
            found[f"{name}_{place}_{unit}"] = values[index] if len(values) > 1 else None
    return found


def agree(read: dict[str, Any]) -> bool:
    """Tell whether sensors show a falling clock; heat where they give no clock: a card that works gets warm anyway."""
    warm, hot = read["temp_first_c"], read["temp_last_c"]
    fast, slow = read["sclk_first_mhz"], read["sclk_last_mhz"]
    if fast is not None and fast > 0:
        return 100 * (fast - slow) / fast >= CLOCK_FALL_PCT
    return warm is not None and hot - warm >= TEMPERATURE_RISE_C


def judge(calls: Sequence[float], sensor: Any = None, op: str = "operator") -> tuple[dict[str, Any], list[Finding]]:
    """Return (numbers, findings) of a series in ms: CLOCK_RAMP, and THROTTLING or SLOWS_DOWN."""
    numbers: dict[str, Any] = {}
    found = []
    rising = ramp(calls)
    if rising:
        numbers |= {"steady_from_call": rising.steady_from, "median_ms": rising.steady_ms}
        numbers["before_mean_ms"] = rising.before_ms
        found.append(finding("CLOCK_RAMP", numbers=dict(numbers), op=op))
    down = slowing(calls[rising.steady_from - 1 :] if rising else calls)
    if down is None:
        return numbers, found
    read = sensors(sensor)
    given: dict[str, Any] = {
        "first_third_ms": down.first_ms,
        "last_third_ms": down.last_ms,
        "slower_pct": down.slower_pct,
    }
    given |= read if any(value is not None for value in read.values()) else {}
    for key in [key for key, value in given.items() if value is None]:
        given[f"{key}_reason"] = "the series holds no such sensor readings"
    numbers |= given
    known = agree(read)
    variant = None if known or len(given) == 3 else "sensors_calm"
    found.append(finding("THROTTLING" if known else "SLOWS_DOWN", numbers=given, variant=variant, op=op))
    return numbers, found
