"""Every quantity of one decode step: median, ends, grade, and whether it counts. Pure: rows of `step` in.

A quantity is {ms, low, high, n, grade, method, valid, reason}.
"""

from __future__ import annotations

import statistics
from typing import Any

from rocmlab import timing, words
from rocmlab.ledger_lanes import Quantity, known
from rocmlab.rates import is_number

TIMES = (
    "T", "T_block", "E1", "E_block", "H", "H_graph", "H_cpu", "D_graph", "D_busy", "smallest", "chain_queue",
    "chain_graph", "tokeniser",
)  # fmt: skip
COUNTS = ("launches", "nodes", "dispatches")  # of kernels: traced, in a graph, estimated
PARTS = ("forward", "choose", "read")  # of a step with its token on the host
QUEUE_SHARE = 0.5  # a prefilled queue counts if filling it took less than half the spin in front of it
RISES = 1.25  # a step of more rows that takes this much longer no longer hides behind the host


def quantity(
    samples: list[float], *, grade: str = "D", method: str = "", valid: bool = True, reason: Any = None
) -> Quantity:
    """Return a quantity from its samples in ms; ms, low and high are None without any."""
    found = timing.median_interval([one for one in samples if is_number(one)])
    ends = {"ms": found.median, "low": found.low, "high": found.high} if found else dict.fromkeys(("ms", "low", "high"))
    kept = {"grade": grade, "method": method, "valid": bool(valid and found), "reason": reason}
    return {**ends, "n": found.n if found else 0, **kept}


def quantities(
    rows: list[dict[str, Any]],
    shape_sum: dict[str, Any] | None,
    trace: dict[str, Any] | None,
    batches: list[tuple[int, float]] | None,
) -> dict[str, Quantity]:
    """Return every quantity that was tried, by name; one that does not count says so in `valid` and `reason`."""
    found: dict[str, Quantity] = {}
    for name in TIMES:
        mine = [row for row in rows if row.get("quantity") == name]
        if mine:
            row = mine[-1]
            found[name] = quantity(
                row.get("samples_ms") or [], grade=row.get("grade") or "D", method=row.get("method") or "",
                valid=row.get("valid", True), reason=row.get("reason"),
            )  # fmt: skip
    queued = queue([row for row in rows if row.get("quantity") == "D_queue"])
    if queued:
        found["D_queue"] = queued
    for name, part in (("sampling", "choose"), ("readback", "read")):
        samples: list[float] = next(
            (row[f"{part}_ms"] for row in rows if row.get("quantity") == "H" and row.get(f"{part}_ms")), []
        )
        if samples:
            found[name] = quantity(samples, method="stamps inside the tiny-width step")
    if trace and trace.get("busy_ms") and not known(found.get("D_busy")):
        found["D_busy"] = quantity(trace["busy_ms"], grade="A", method="union of the device events of a trace")
    failed = [row["reason"] for row in rows if row.get("quantity") == "launches" and row.get("reason")]
    if failed and "D_busy" not in found:
        found["D_busy"] = quantity([], grade="A", method="trace union", valid=False, reason=failed[-1])
    if shape_sum and is_number(shape_sum.get("ms")):
        found["D_ops"] = _operators(shape_sum)
    risen = by_batches(batches or [])
    return found | ({"D_batch": risen} if risen else {})


def _operators(found: dict[str, Any]) -> Quantity:
    missing, upper = found.get("missing") or [], found.get("host_may_bind") or []
    reason = words.both("ledger_operators_upper", names=", ".join(map(str, upper))) if upper else None
    reason = words.both("ledger_operators_missing", names=", ".join(map(str, missing))) if missing else reason
    ends = {"ms": found["ms"], "low": found.get("low", found["ms"]), "high": found.get("high", found["ms"])}
    return {**ends, "n": found.get("n") or 0, "grade": found.get("grade") or "D",
            "method": "sum of operators timed apart", "valid": True, "reason": reason}  # fmt: skip


def parts(rows: list[dict[str, Any]]) -> dict[str, dict[str, Quantity]]:
    """Return {T, H, H_cpu: {forward, choose, read: quantity}} where a step was stamped inside."""
    found: dict[str, dict[str, Quantity]] = {}
    for row in rows:
        if row.get("quantity") in ("T", "H", "H_cpu") and all(row.get(f"{part}_ms") for part in PARTS):
            found[row["quantity"]] = {part: quantity(row[f"{part}_ms"]) for part in PARTS}
    return found


def queue_counts(row: dict[str, Any]) -> bool:
    """Tell whether a reading of the prefilled queue counts: filling it took less than half the spin in front of it."""
    filled, spin = row.get("enqueue_ms") or [], spin_ms(row)
    return bool(filled and spin is not None and statistics.median(filled) < QUEUE_SHARE * spin)


def spin_ms(row: dict[str, Any]) -> float | None:
    """Return how long a spin was: as seen by the wall clock, and never longer than it was meant to be."""
    seen = [one for one in row.get("spin_seen_ms") or [] if is_number(one)]
    both = [row.get("spin_ms"), statistics.median(seen) if seen else None]
    return min((one for one in both if is_number(one)), default=None)


def queue(rows: list[dict[str, Any]]) -> Quantity | None:
    """Return the device time by prefilled queue: at full depth, else carried on from the depths that the queue holds.

    None without any reading; not valid where fewer than two depths count. The ends of an extrapolation are those of
    the lines through every two depths.
    """
    if not rows:
        return None
    good = {row["layers"]: row for row in rows if row.get("samples_ms") and queue_counts(row)}
    depth = max(row.get("of_layers") or 0 for row in rows)
    grade = max((row.get("grade") or "D" for row in rows), default="D")
    if depth in good:
        return quantity(good[depth]["samples_ms"], grade=grade, method="prefilled queue")
    if len(good) < 2:
        failed = [row["reason"] for row in rows if row.get("reason")]
        read = any(row.get("enqueue_ms") for row in rows)
        why = failed[-1] if failed and not read else words.both("ledger_queue_not_here")
        return quantity([], grade=grade, method="prefilled queue", valid=False, reason=why)
    points = {layers: statistics.median(row["samples_ms"]) for layers, row in good.items()}
    slope, base = statistics.linear_regression(list(points), list(points.values()))
    every = [_carried(a, b, points, depth) for a in points for b in points if a < b]
    said = words.both("ledger_queue_carried", depths=", ".join(map(str, sorted(points))), depth=depth)
    whole = {"ms": base + slope * depth, "low": min(every), "high": max(every), "n": len(points), "grade": grade}
    return whole | {"method": "prefilled queue at smaller depths", "valid": True, "reason": said}


def _carried(a: int, b: int, points: dict[int, float], depth: int) -> float:
    return points[a] + (points[b] - points[a]) / (b - a) * (depth - a)


def by_batches(points: list[tuple[int, float]]) -> Quantity | None:
    """Return the device time of one row, carried back from the batches at which the step has risen above batch 1.

    Three risen batches make a line; fewer make none. A rough figure: kernels change with the batch, and where another
    kernel serves several rows the line falls, or meets one row above the step that it was measured at: it then does not
    count.
    """
    alone = next((ms for batch, ms in points if batch == 1), None)
    if alone is None:
        return None
    risen = [(batch, ms) for batch, ms in points if ms >= RISES * alone]
    if len(risen) < 3:
        return None
    slope, base = statistics.linear_regression([b for b, _ in risen], [ms for _, ms in risen])
    pairs = [(a, b) for place, a in enumerate(risen) for b in risen[place + 1 :]]
    every = [a[1] + (b[1] - a[1]) / (b[0] - a[0]) * (1 - a[0]) for a, b in pairs]
    ends: Quantity = {"ms": base + slope, "low": min(every), "high": max(every), "n": len(risen), "grade": "D"}
    why = "falls" if slope <= 0 else "above" if ends["low"] > alone else "negative" if ends["ms"] <= 0 else None
    given = {"batches": ", ".join(str(batch) for batch, _ in risen), "alone": words.number(alone, "ms")}
    reason = words.both(f"ledger_batches_{why}", ms=words.number(ends["ms"], "ms"), **given) if why else None
    return ends | {"method": "batch raised until the step rises", "valid": why is None, "reason": reason}


def launches(
    rows: list[dict[str, Any]], given: dict[str, Any] | None, trace: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return {count, grade, method} of what one token launches: kernels where a trace shows them, else an estimate."""
    counted = {row["quantity"]: row for row in rows if row.get("quantity") in COUNTS and is_number(row.get("count"))}
    own = [{key: counted[name].get(key) for key in ("count", "grade", "method")} for name in COUNTS if name in counted]
    seen = {"count": trace["kernels"], "grade": "A", "method": "trace"} if trace and trace.get("kernels") else None
    known = [one for one in (*own, given, seen) if one and is_number(one.get("count"))]
    return min(known, key=lambda one: one["grade"] or "D", default=None)


def dispatched(rows: list[dict[str, Any]], what: str = "dispatches") -> int | None:
    """Return how many operators one step dispatches, or how many "nodes" its graph has."""
    counts = [row["count"] for row in rows if row.get("quantity") == what and is_number(row.get("count"))]
    return counts[-1] if counts else None


def ratios(rows: list[dict[str, Any]]) -> dict[str, timing.Interval]:
    """Return H / T and D_graph / T from blocks that were measured in turns."""
    by_name = {row.get("quantity"): row for row in rows}
    whole = (by_name.get("T") or {}).get("samples_ms") or []
    found: dict[str, timing.Interval] = {}
    for name in ("H", "D_graph"):
        row = by_name.get(name) or {}
        mine, beside = row.get("samples_ms") or [], row.get("beside_ms") or whole
        pairs = list(zip(mine, beside, strict=True)) if len(mine) == len(beside) else []
        ratio = timing.median_interval([part / whole for part, whole in pairs if whole])
        found |= {name: ratio} if ratio else {}
    return found
