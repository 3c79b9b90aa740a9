"""Where do the milliseconds of one decode step go? Two lanes, host and device, each as wide as the step. Pure.

`build(step_rows, ...)` makes the account from the records of `steps.study`; `of_run(run)` gathers what a run folder
holds and calls it. The lanes overlap, so they are never added together. Times are ms a token.

An account is {subject, quantities, device_ms, device_by, device_upper, regime, binding, host_lane, device_lane,
residual, residual_pct, hidden_ms, launches, texts_asked, others_cpu_pct, checks}. `device_upper`: the device time is an
upper bound. A quantity is {ms, low, high, n, grade, method, valid,
reason}: median and 95% interval (the range below six samples), grade A device trace, B events, C log counts, D wall
clock. A row of a lane is {name, ms, low, high, grade, how}; `ms` is None where it could not be measured, and `how` then
says why.
"""

from __future__ import annotations

import importlib
import statistics
from pathlib import Path
from typing import Any

from rocmlab import curves, ledger_checks, ledger_lanes, ledger_quantities, results, roof, sections, words
from rocmlab.ledger_lanes import Quantity, known
from rocmlab.rates import is_number

SUBJECT = ("device", "dtype", "model", "model_spec", "model_hash", "batch", "context", "attention", "threads")
PREFERRED = ("D_graph", "D_queue", "D_busy", "D_ops", "D_batch")
BY = {"D_graph": "graph", "D_queue": "queue", "D_busy": "trace", "D_ops": "operators", "D_batch": "batches"}
ON_CPU = ("D_ops",)


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
    found = ledger_quantities.quantities(step_rows, shape_sum, trace, batches)
    count = None if subject["device"] == "cpu" else ledger_quantities.launches(step_rows, launches, trace)
    names = ON_CPU if subject["device"] == "cpu" else PREFERRED
    used = next((name for name in names if known(found.get(name))), None)
    facts: dict[str, Any] = {"cpu": subject["device"] == "cpu", "launches": count}
    facts |= {"dispatches": ledger_quantities.dispatched(step_rows), "parts": ledger_quantities.parts(step_rows)}
    facts["nodes"] = ledger_quantities.dispatched(step_rows, "nodes")
    facts |= {"ratios": ledger_quantities.ratios(step_rows)}
    facts |= {"floor_ms": bytes_a_token / ceiling_gb_s / 1e6 if bytes_a_token and ceiling_gb_s else None}
    facts |= {"missing": (shape_sum or {}).get("missing") or [], "upper": (shape_sum or {}).get("host_may_bind") or []}
    facts |= {"launch_cost": launch_cost or []}
    facts["used"] = used = ledger_checks.of_this_step(used, found, facts)
    facts["twin_share"], facts["twin_measured"] = ledger_checks.twin_share(found, facts), known(found.get("H_graph"))
    if (facts["twin_share"] or 0) > ledger_checks.TWIN_SHARE and not facts["cpu"]:
        why = "ledger_twin_heavy" if facts["twin_measured"] else "ledger_twin_unbounded"
        found["H"] |= {"valid": False, "reason": words.both(why)}
    regime = ledger_checks.regime(found, facts)
    lanes = ledger_lanes.lanes(found, facts, regime)
    step, device = found.get("T"), found[used] if used else None
    account = {
        "subject": subject,
        "quantities": found,
        "device_ms": device,
        "device_by": BY[used] if used else None,
        "device_upper": used == "D_ops" and bool(facts["upper"]),
        "regime": regime,
        "binding": {"host_bound": "host", "device_bound": "device"}.get(regime),
        **lanes,
        "residual_pct": _share(lanes["residual"]["ms"], step),
        "hidden_ms": _hidden(found.get("H"), device, step, regime, facts["cpu"]),
        "launches": count,
        "texts_asked": next((row["asked"] for row in step_rows if row.get("quantity") == "rows"), None),
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
        bytes_a_token=curves.bytes_a_token(head, head.get("context") or 0, head.get("batch") or 1),
        batches=_batches(path, head),
    )


def _alike(row: dict[str, Any], head: dict[str, Any]) -> bool:
    """Tell whether a row is of the same model, device and dtype, as far as it says."""
    names = ("model_hash", "device", "dtype")
    return all(row.get(name) in (None, head.get(name)) for name in names)


def _shape_sum(path: Path, head: dict[str, Any]) -> dict[str, Any] | None:
    rows = [row for row in results.rows(path, "shapes") if _alike(row, head) and head.get("batch", 1) == 1]
    return importlib.import_module("rocmlab.shapes").step_sum(rows, phase="decode") if rows else None


def _trace(path: Path, head: dict[str, Any]) -> dict[str, Any] | None:
    """Return busy time and kernels of the decode steps that notebook 07 traced."""
    rows = [row for row in results.rows(path, "profiler") if row.get("what") == "trace" and _alike(row, head)]
    rows = rows if head.get("batch", 1) == 1 else []  # 06 and 07 look at one text
    steps = [one for row in rows[-1:] for one in (row.get("metrics") or {}).get("steps") or []]
    steps = [one for one in steps if one.get("kind") == "token" and one.get("linked_busy_us")]
    if not steps:
        return None
    kernels = round(statistics.median(one.get("kernels") or 0 for one in steps))
    return {"busy_ms": [one["linked_busy_us"] / 1000 for one in steps], "kernels": kernels}


def _batches(path: Path, head: dict[str, Any]) -> list[tuple[int, float]]:
    """Return (batch, ms a step) of notebook 05 at the context that is nearest to the step's."""
    from rocmlab import sweep

    rows = [row for row in results.rows(path, "batches") if _alike(row, head) and head.get("batch", 1) == 1]
    contexts = {one["context"] for one in sweep.items(rows)}
    if not contexts:
        return []
    near = min(contexts, key=lambda one: abs(one - (head.get("context") or 0)))
    items = sweep.sweep(rows, near, None, "")["items"]
    return [(one["batch"], one["decode_step_ms"]) for one in items if is_number(one.get("decode_step_ms"))]
