"""Where do the milliseconds of one decode step go? Two lanes, host and device, each as wide as the step. Pure.

`build(step_rows, ...)` makes the account from the records of `steps.study`; `of_run(run)` gathers what a run folder
holds and calls it. The lanes overlap, so they are never added together. Times are ms a token.

An account is {subject, quantities, device_ms, device_by, regime, binding, host_lane, device_lane, residual,
residual_pct, hidden_ms, launches, others_cpu_pct, checks}.
A quantity is {ms, low, high, n, grade, method, valid, reason}: median and
95% interval (the range below six samples), grade A device trace, B events, C log counts, D wall clock. A row of a lane
is {name, ms, low, high, grade, how}; `ms` is None where it could not be measured, and `how` then says why.
"""

from __future__ import annotations

import importlib
import statistics
from pathlib import Path
from typing import Any

from rocmlab import curves, ledger_checks, ledger_lanes, results, roof, sections, timing, words
from rocmlab.ledger_lanes import known
from rocmlab.rates import is_number

Quantity = dict[str, Any]

TIMES = (
    "T", "T_block", "E1", "E_block", "H", "H_graph", "H_cpu", "D_graph", "D_busy", "smallest", "chain_queue",
    "chain_graph", "tokeniser",
)  # fmt: skip
SUBJECT = ("device", "dtype", "model", "model_spec", "model_hash", "batch", "context", "attention", "threads")
COUNTS = ("launches", "nodes", "dispatches")  # of kernels: traced, in a graph, estimated
PARTS = ("forward", "choose", "read")  # of a step with its token on the host
PREFERRED = ("D_graph", "D_queue", "D_busy", "D_ops", "D_batch")
BY = {"D_graph": "graph", "D_queue": "queue", "D_busy": "trace", "D_ops": "operators", "D_batch": "batches"}
ON_CPU = ("D_ops",)
QUEUE_SHARE = 0.5  # a prefilled queue counts if filling it took less than half the spin in front of it
RISES = 1.25  # a step of more rows that takes this much longer no longer hides behind the host


def build(
    step_rows: list[dict[str, Any]],
    *,
    shape_sum: dict[str, Any] | None = None,
    trace: dict[str, Any] | None = None,
    launches: dict[str, Any] | None = None,
    launch_cost: list[dict[str, Any]] | None = None,
    ceiling_gb_s: float | None = None,
    bytes_a_token: float | None = None,
    batches: list[tuple[int, float]] | None = None,
) -> dict[str, Any]:
    """Return the account of one decode step; without a step time everything that needs one is None.

    `shape_sum` is shapes.step_sum(...) ({ms, low, high, missing, n}), `trace` {busy_ms: [a value a step], kernels},
    `launches` {count, grade, method}, `launch_cost` the rows of that table, `batches` [(rows, ms a step)] of one
    context, `bytes_a_token` what a step must read and write.
    """
    head = step_rows[0] if step_rows else {}
    subject = {name: head.get(name) for name in SUBJECT}
    found = quantities(step_rows, shape_sum, trace, batches)
    count = None if subject["device"] == "cpu" else _launches(step_rows, launches, trace)
    names = ON_CPU if subject["device"] == "cpu" else PREFERRED
    used = next((name for name in names if known(found.get(name))), None)
    facts: dict[str, Any] = {"cpu": subject["device"] == "cpu", "launches": count, "parts": parts(step_rows)}
    facts |= {"dispatches": dispatched(step_rows)}
    facts |= {"ratios": _ratios(step_rows)}
    facts |= {"floor_ms": bytes_a_token / ceiling_gb_s / 1e6 if bytes_a_token and ceiling_gb_s else None}
    facts |= {"missing": (shape_sum or {}).get("missing") or [], "upper": (shape_sum or {}).get("host_may_bind") or []}
    facts |= {"launch_cost": launch_cost or [], "used": used}
    facts["twin_share"] = ledger_checks.twin_share(found, used)
    if (facts["twin_share"] or 0) > ledger_checks.TWIN_SHARE and not facts["cpu"]:
        found["H"] |= {"valid": False, "reason": words.both("ledger_twin_heavy")}
    regime = ledger_checks.regime(found, facts)
    lanes = ledger_lanes.lanes(found, facts, regime)
    step, device = found.get("T"), found[used] if used else None
    account = {
        "subject": subject,
        "quantities": found,
        "device_ms": device,
        "device_by": BY[used] if used else None,
        "regime": regime,
        "binding": {"host_bound": "host", "device_bound": "device"}.get(regime),
        **lanes,
        "residual_pct": _share(lanes["residual"]["ms"], step),
        "hidden_ms": _hidden(found.get("H"), device, step, regime, facts["cpu"]),
        "launches": count,
        "others_cpu_pct": next((row["others_cpu_pct"] for row in step_rows if row.get("others_cpu_pct")), None),
    }
    return account | {"checks": ledger_checks.checks(account, step_rows, facts)}


def _share(ms: float | None, step: Quantity | None) -> float | None:
    return 100 * ms / step["ms"] if ms is not None and step and step["ms"] else None


def _hidden(
    host: Quantity | None, device: Quantity | None, step: Quantity | None, regime: str, cpu: bool
) -> float | None:
    """Return how many ms of the lane that does not bind lie behind the other: 0 on a CPU, where nothing overlaps."""
    if cpu:
        return 0.0
    if not known(step) or not known(device) or not known(host) or regime == "undecided":
        return None
    if regime == "host_bound":
        return device["ms"]
    return host["ms"] if regime == "device_bound" else max(0.0, host["ms"] + device["ms"] - step["ms"])


def _ratios(rows: list[dict[str, Any]]) -> dict[str, timing.Interval]:
    """Return H / T and D_graph / T from blocks that were measured in turns."""
    by_name = {row.get("quantity"): row for row in rows}
    whole = (by_name.get("T") or {}).get("samples_ms") or []
    found: dict[str, timing.Interval] = {}
    for name in ("H", "D_graph"):
        row = by_name.get(name) or {}
        mine, beside = row.get("samples_ms") or [], row.get("beside_ms") or whole
        ratio = timing.ratio_interval(mine, beside) if mine and len(mine) == len(beside) else None
        found |= {name: ratio} if ratio else {}
    return found


# ---- quantities


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
    filled, spin = row.get("enqueue_ms") or [], row.get("spin_ms")
    return bool(filled and is_number(spin) and statistics.median(filled) < QUEUE_SHARE * spin)


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
        why = words.both("ledger_queue_not_here")
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

    Three risen batches make a line; fewer make none. A rough figure: kernels change with the batch.
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
    ends = {"ms": base + slope, "low": min(every), "high": max(every), "n": len(risen), "grade": "D"}
    return ends | {"method": "batch raised until the step rises", "valid": base + slope > 0, "reason": None}


def _launches(
    rows: list[dict[str, Any]], given: dict[str, Any] | None, trace: dict[str, Any] | None
) -> dict[str, Any] | None:
    """Return {count, grade, method} of what one token launches: kernels where a trace shows them, else an estimate."""
    counted = {row["quantity"]: row for row in rows if row.get("quantity") in COUNTS and is_number(row.get("count"))}
    own = [{key: counted[name].get(key) for key in ("count", "grade", "method")} for name in COUNTS if name in counted]
    seen = {"count": trace["kernels"], "grade": "A", "method": "trace"} if trace and trace.get("kernels") else None
    known = [one for one in (*own, given, seen) if one and is_number(one.get("count"))]
    return min(known, key=lambda one: one["grade"] or "D", default=None)


def dispatched(rows: list[dict[str, Any]]) -> int | None:
    """Return how many operators one step dispatches."""
    counts = [row["count"] for row in rows if row.get("quantity") == "dispatches" and is_number(row.get("count"))]
    return counts[-1] if counts else None


# ---- from a run folder


def of_run(run: Path | str) -> dict[str, Any] | None:
    """Return the account of a run folder (a path), None where no step was measured in it."""
    path = Path(run)
    rows = results.rows(path, "step")
    if not any(row.get("quantity") == "T" for row in rows):
        return None
    head = rows[0]
    peak = roof.stated(sections.snapshot(path), results.birth(path).get("subject") or {})
    limit = roof.roof(results.rows(path, "ceiling"), peak, head.get("weight_bytes"))
    return build(
        rows,
        shape_sum=_shape_sum(path, head),
        trace=_trace(path, head),
        launch_cost=results.rows(path, "launch_cost"),
        ceiling_gb_s=limit.gb_s,
        bytes_a_token=curves.bytes_a_token(head, head.get("context") or 0),
        batches=_batches(path, head),
    )


def _alike(row: dict[str, Any], head: dict[str, Any]) -> bool:
    """Tell whether a row is of the same model, device and dtype, as far as it says."""
    names = ("model_hash", "device", "dtype")
    return all(row.get(name) in (None, head.get(name)) for name in names)


def _shape_sum(path: Path, head: dict[str, Any]) -> dict[str, Any] | None:
    rows = [row for row in results.rows(path, "shapes") if _alike(row, head)]
    return importlib.import_module("rocmlab.shapes").step_sum(rows, phase="decode") if rows else None


def _trace(path: Path, head: dict[str, Any]) -> dict[str, Any] | None:
    """Return busy time and kernels of the decode steps that notebook 07 traced."""
    rows = [row for row in results.rows(path, "profiler") if row.get("what") == "trace" and _alike(row, head)]
    steps = [one for row in rows[-1:] for one in (row.get("metrics") or {}).get("steps") or []]
    steps = [one for one in steps if one.get("kind") == "token" and one.get("linked_busy_us")]
    if not steps:
        return None
    kernels = round(statistics.median(one.get("kernels") or 0 for one in steps))
    return {"busy_ms": [one["linked_busy_us"] / 1000 for one in steps], "kernels": kernels}


def _batches(path: Path, head: dict[str, Any]) -> list[tuple[int, float]]:
    """Return (batch, ms a step) of notebook 05 at the context that is nearest to the step's."""
    from rocmlab import sweep

    rows = [row for row in results.rows(path, "batches") if _alike(row, head)]
    contexts = {one["context"] for one in sweep.items(rows)}
    if not contexts:
        return []
    near = min(contexts, key=lambda one: abs(one - (head.get("context") or 0)))
    items = sweep.sweep(rows, near, None, "")["items"]
    return [(one["batch"], one["decode_step_ms"]) for one in items if is_number(one.get("decode_step_ms"))]
