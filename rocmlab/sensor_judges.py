"""Did heat, a power limit or memory pushed out of the card change what was timed? Pure: sensor rows in, findings out.

`judge(rows, calls, op)` serves every notebook that times something: rows as `sensors.row` makes them, in order, and the
times of equal calls. `judge_cost(rows)` says whether the sampler disturbs.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from rocmlab import drift, timing
from rocmlab.findings import Finding, finding
from rocmlab.rates import is_number

GIB, MIB = 2**30, 2**20
SPILL_BYTES = 256 * MIB  # less of the machine's memory is what any program pins for its copies
FULL = 0.9  # of the card's memory: with more room than this nothing is pushed out
AT_CAP = 0.97  # of the power limit
MOST = 0.5  # of the readings
DISTURBS_PCT = 2.0


def judge(
    rows: Sequence[dict[str, Any]], calls: Sequence[float] = (), op: str = "operator",
    before: dict[str, Any] | None = None,
) -> list[Finding]:  # fmt: skip
    """Return THROTTLING, SLOWS_DOWN or CLOCK_RAMP of the calls, what limits the clock, and where the memory lies.

    `before` is a reading from before anything was put on the card: what was spilled at once would show no growth else.
    """
    told = [row for row in rows if row.get("source")]
    found = drift.judge(calls, told, op)[1]
    if not told:
        return [*found, finding("SENSORS_ABSENT")] if rows else found
    found += _limits(told, op) + _memory(told, before)
    slowed = any(one["code"] in ("THROTTLING", "SLOWS_DOWN") for one in found)
    return found if slowed or len(calls) < drift.MIN_CALLS else [*found, *_held(told, calls, op)]


def faults(
    rows: Sequence[Any], calls: Sequence[float] = (), op: str = "operator", before: dict[str, Any] | None = None
) -> list[Finding]:
    """Return only what went wrong, for notebooks whose subject is something else; what is no row is passed over."""
    told = [row for row in rows if isinstance(row, dict)]
    return [one for one in judge(told, calls, op, before) if one["status"] != "ok"]


def values(rows: Sequence[dict[str, Any]], key: str) -> list[float]:
    """Return what is known of one field, in order."""
    return [row[key] for row in rows if is_number(row.get(key))]


def _held(rows: list[dict[str, Any]], calls: Sequence[float], op: str) -> list[Finding]:
    """Say that equal calls kept their speed, with the sensors beside them; [] where no clock is known."""
    clock, warm, power = (values(rows, key) for key in ("sclk_mhz", "temp_c", "power_w"))
    if not clock:
        return []
    third = len(calls) // 3
    change = 100 * (statistics.median(calls[-third:]) / statistics.median(calls[:third]) - 1)
    given: dict[str, Any] = {"change_pct": change, "clock_median_mhz": statistics.median(clock)}
    given |= {"clock_low_mhz": min(clock), "clock_high_mhz": max(clock)}
    for key, known in (("temp_highest_c", warm), ("power_highest_w", power)):
        given[key] = max(known, default=None)
        if not known:
            given[f"{key}_reason"] = "the source gives no such reading"
    return [finding("SPEED_HELD", numbers=given, op=op, n=len(rows))]


def _limits(rows: list[dict[str, Any]], op: str) -> list[Finding]:
    """Say it when most readings lie at the power limit, or the driver names heat as what holds the clock down."""
    found = []
    named = [row["limited_by"] for row in rows if isinstance(row.get("limited_by"), list)]
    hot = [one for one in named if any("heat" in name for name in one)]
    if hot:
        given: dict[str, Any] = {
            "hot_pct": 100 * len(hot) / len(named),
            "temp_highest_c": max(values(rows, "temp_c"), default=None),
        }
        if given["temp_highest_c"] is None:
            given["temp_highest_c_reason"] = "the source gives no temperature"
        found.append(finding("HEAT_LIMIT", numbers=given, op=op))
    pairs = [(row["power_w"], row["power_cap_w"]) for row in rows if row.get("power_w") and row.get("power_cap_w")]
    at_cap = [power for power, cap in pairs if power >= AT_CAP * cap]
    if pairs and len(at_cap) > MOST * len(pairs):
        given = {"power_w": statistics.median(at_cap), "power_cap_w": pairs[-1][1]}
        found.append(finding("POWER_LIMIT", numbers=given, op=op, share=100 * len(at_cap) / len(pairs)))
    return found


def _memory(rows: list[dict[str, Any]], before: dict[str, Any] | None = None) -> list[Finding]:
    """Say whether the driver pushed memory out of the card while this ran; [] where it does not tell.

    Pinned memory of the host counts as spilled too, so that alone is no spill: the card must be full as well.
    """
    used, whole, spilled = (values(rows, f"{key}_bytes") for key in ("memory_used", "memory_total", "spilled"))
    if not spilled or not used or any(row.get("integrated") for row in rows):  # those keep everything there
        return []
    first = [*values([before or {}], "spilled_bytes"), *spilled][0]
    grew = max(spilled) - first
    if rows[0]["source"] == "psutil":  # the machine itself: what lies in swap
        swapped = {"spilled_gib": grew / GIB, "memory_used_gib": max(used) / GIB}
        return [finding("SPILL_SEEN", numbers=swapped, variant="swap")] if grew >= SPILL_BYTES else []
    full = max(used) / whole[-1] if whole else None
    given: dict[str, Any] = {"memory_used_gib": max(used) / GIB, "memory_total_gib": whole[-1] / GIB if whole else None}
    given |= {"spilled_gib": grew / GIB}
    if not whole:
        given["memory_total_gib_reason"] = "the source does not give it"
    if grew < SPILL_BYTES:
        return [finding("MEMORY_HELD", numbers=given)]
    if full is None:
        return [finding("SPILL_SEEN", numbers=given, variant="unsure")]
    return [
        finding("SPILL_SEEN", numbers=given)
        if full >= FULL
        else finding("MEMORY_HELD", numbers=given, variant="pinned")
    ]


def judge_cost(rows: Sequence[dict[str, Any]], readings: Sequence[dict[str, Any]]) -> list[Finding]:
    """Say whether the sampler slows a task down, from blocks with and without it in turns; [] without such blocks.

    A sampler that took fewer readings than there were blocks with it has shown nothing.
    """
    ratio = cost(rows)
    if ratio is None:
        return []
    took = [one["reading_ms"] for one in readings if is_number(one.get("reading_ms"))]
    name = next((one["source"] for one in readings if one.get("source")), None)
    given: dict[str, Any] = {"sampler_extra_pct": 100 * (ratio.median - 1), "reading_ms": None}
    given |= {"sampler_extra_low_pct": 100 * (ratio.low - 1), "sampler_extra_high_pct": 100 * (ratio.high - 1)}
    given |= {"reading_ms": statistics.median(took)} if took else {"reading_ms_reason": "no reading was recorded"}
    others = max(values(rows, "others_cpu_pct"), default=0.0)
    if others > timing.OTHERS_PCT:  # they press on the blocks unevenly, and more than a reading does
        return [finding("SAMPLER_UNDECIDED", numbers=given, variant="loaded", name=name or "?", others=others)]
    if len(took) < ratio.n:
        return [finding("SAMPLER_UNDECIDED", numbers=given, variant="silent", n=ratio.n, readings=len(took))]
    if ratio.low > 1 and ratio.median > 1 + DISTURBS_PCT / 100:
        code = "SAMPLER_DISTURBS"
    else:
        code = "SAMPLER_CALM" if ratio.enough and ratio.high <= 1 + DISTURBS_PCT / 100 else "SAMPLER_UNDECIDED"
    return [finding(code, numbers=given, n=ratio.n, name=name or "?", bound=DISTURBS_PCT)]


def cost(rows: Sequence[dict[str, Any]]) -> timing.Interval | None:
    """Return mean call with the sampler over mean call without it, paired by block; None without whole pairs.

    Means, not medians: a reading twice a second disturbs few calls, and a median would not see them.
    """
    blocks: dict[Any, dict[bool, float]] = {}
    for row in rows:
        if row.get("calls_ms"):
            blocks.setdefault(row.get("pair"), {})[bool(row.get("sampling"))] = statistics.mean(row["calls_ms"])
    pairs = [both for both in blocks.values() if len(both) == 2]
    return timing.ratio_interval([one[True] for one in pairs], [one[False] for one in pairs]) if pairs else None
