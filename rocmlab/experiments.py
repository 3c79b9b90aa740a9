"""One change, its prediction, its measurement: for notebook 11.

`study(run, model, arm, names, ...)` writes every prediction to the table `predictions` before the first experiment
runs, then tries one after the other in a worker that may die; a row goes to `experiments` as soon as it is measured.
`score(rows, predictions)` is pure.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from rocmlab import (
    attention_tables,
    ceiling,
    changes,
    curves,
    first_visits,
    ledger,
    predictions,
    results,
    step_costs,
    step_lanes,
    timing,
    words,
    worker,
)
from rocmlab.changes import Change
from rocmlab.evidence import poisoned
from rocmlab.isolate import Outcome
from rocmlab.results import Run

SCHEMA = "rocmlab-experiment-1"
TABLE, PREDICTIONS, FACTS = "experiments", "predictions", "experiment_facts"
FACTS_LIMIT_S = 120.0
HIT_SHARE, HIT_SPREADS = 0.15, 3.0  # of the observed change, and of its spread: methods section 5
PATIENCE = 2  # workers that may fail to start before the rest is given up
TIMED_APART = ("shapes", "attention", "gemm_rate", "one_row", "one_row_layer")  # tables of 06 and 09
HEAD = ("device", "dtype", "model", "model_spec", "model_hash", "context", "threads")
SAMPLES = ("baseline_samples_ms", "changed_samples_ms")


def study(
    run: Run, model: str, arm: dict[str, str], names: list[str], *, limit_s: float, evidence: dict[str, Any]
) -> list[dict[str, Any]]:
    """Predict every change, then try it; return the rows of `experiments`. `limit_s` bounds all of it.

    `evidence` is what gather() found in the run folder. Raises ValueError for a name that is not in the catalogue.
    """
    plan, deadline = changes.chosen(names), time.monotonic() + limit_s
    begin = {"model": model, "device": arm["device"], "dtype": arm["dtype"]}
    with worker.Worker(first=("rocmlab.experiment_trial:begin", begin)) as keeper:
        asked = {"counted": changes.counted(plan)}
        outcome = keeper.call("rocmlab.experiment_trial:facts", asked, limit_s=min(limit_s, FACTS_LIMIT_S))
        facts = outcome.result or {**begin, "model_spec": model, "error": outcome.error or outcome.words}
        run.append(FACTS, facts)
        head = {"schema": SCHEMA, **{name: facts.get(name) for name in HEAD}}
        known = evidence_of(facts, evidence)
        amounts = step_lanes.doses(known.lanes if known else None)
        given = {one.name: step_lanes.dosed(one, amounts) for one in plan}
        texts = evidence.get("texts") or 1
        foretold = {one.name: foretell(one, given[one.name], facts, known, texts) for one in plan}
        run.append(PREDICTIONS, [head | {"name": one.name, "kind": one.kind} | foretold[one.name] for one in plan])
        return _tried(run, keeper, plan, given, foretold, head, facts, deadline)


def foretell(
    change: Change, given: dict[str, Any], facts: dict[str, Any], known: Any, texts: int = 1
) -> dict[str, Any]:
    """Return the prediction of one change; of one that cannot exist here, or without facts, why there is none.

    `texts` are those of the step that was taken apart: of more than one it foretells nothing of the step of one.
    """
    missing = changes.absent(change, facts)
    if missing or "error" in facts:
        reason = words.both(missing or "prediction_no_facts")
        return {"predicted_ratio": None, "predicted_ratio_reason": reason, "given": given}
    if texts != 1:
        several = words.both("prediction_several", texts=f"{texts:,}")
        return {"predicted_ratio": None, "predicted_ratio_reason": several, "given": given}
    return predictions.predict(change, given, known) | {"given": given}


def _tried(
    run: Run, keeper: worker.Worker, plan: list[Change], given: dict[str, Any], foretold: dict[str, Any],
    head: dict[str, Any], facts: dict[str, Any], deadline: float,
) -> list[dict[str, Any]]:  # fmt: skip
    rows, dead = [], 0
    for change in plan:
        missing = changes.absent(change, facts)
        left = deadline - time.monotonic()
        if missing:
            found = {"status": "SKIPPED", "reason": words.both(missing), "exists": False}
        elif "error" in facts and dead >= PATIENCE:
            found = {"status": "SKIPPED", "reason": str(facts["error"])[:500], "exists": None}
        elif left < 1:
            found = {"status": "SKIPPED", "reason": words.both("experiment_no_time"), "exists": True}
        else:
            found = one(keeper, change, given[change.name], min(change.limit_s, left))
            dead = dead + 1 if keeper.begun is None or keeper.begun.status != "OK" else 0
        row = head | {"name": change.name, "kind": change.kind, "given": given[change.name]} | foretold[change.name]
        rows.append(row | found)
        run.append(TABLE, rows[-1])
    return rows


def one(keeper: worker.Worker, change: Change, given: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """Try one change; return what its row says: raw blocks and ratios, costs, or how it ended."""
    arguments = {"arm": change.arm, "given": given, "remedy": change.kind == changes.REMEDY}
    outcome = keeper.call("rocmlab.experiment_trial:trial", arguments, limit_s=limit_s)
    found = {"status": _status(outcome), "exists": True, "seconds": round(outcome.seconds, 2), "worker": keeper.started}
    if outcome.status != "OK" or not outcome.result:
        said = outcome.error or f"{outcome.words}\n{outcome.stderr[-1000:]}"
        if poisoned({"error": outcome.error}):
            keeper.retire()  # the error stays in the driver and would meet the next one too
        return found | {"reason": said[:1500]}
    made = dict(outcome.result)
    costs = {"compile_s": made.pop("facts", {}).get("compile_s")} if "facts" in made else {}
    made["ratios"] = [above / below for below, above in zip(*(made[name] for name in SAMPLES), strict=True)]
    return found | made | costs


def _status(outcome: Outcome) -> str:
    if outcome.status in ("OK", "TIMEOUT", "ERROR"):
        return outcome.status
    return "CRASH"


# ---- what the run folder holds


def gather(run: Run) -> dict[str, Any]:
    """Return what predictions may use from earlier measurements: the ledger, and the records of 04, 06 and 09."""
    path = run.path
    found = {table: results.rows(path, table) for table in TIMED_APART}
    best = ceiling.bandwidth(results.rows(path, "ceiling"))
    account = ledger.of_run(path)
    texts = (account["subject"].get("batch") or 1) if account else 1  # the experiments change a step of one text
    return {
        "ledger": account if texts == 1 else None,
        "texts": texts,
        "ceiling_gb_s": best.gb_s if best else None,
        "first_visit": first_visit(results.rows(path, "lengths")),
        "visit_charge_ms": visit_charge(found["attention"]),
        **found,
    }


def first_visit(rows: list[dict[str, Any]]) -> tuple[float, float] | None:
    """Return ms a token at the first and the second visit of the length in the middle, as notebook 04 saw them."""
    found = first_visits.cost(curves.first_visits(rows)) if rows else None
    return (found.first_ms, found.usual_ms) if found else None


def visit_charge(rows: list[dict[str, Any]]) -> float | None:
    """Return what attention by itself charges a decode step at a new length in ms, as notebook 09 saw it: first pass
    over all layers less the second, of the path that is taken by default, called as transformers calls it."""
    mine = [one for one in attention_tables.usual(attention_tables.own(rows), "decode") if one["backend"] == "default"]
    charges = [
        first - second
        for row in mine
        for first, second in zip(row.get("first_pass_ms") or [], row.get("second_pass_ms") or [], strict=False)
    ]
    return statistics.median(charges) if charges else None


def evidence_of(facts: dict[str, Any], evidence: dict[str, Any]) -> step_costs.Known | None:
    """Return what predictions may use, None without a ledger; records of another dtype or device are left out."""
    found = step_lanes.lanes(evidence.get("ledger"))
    if found is None or "error" in facts:
        return None
    mine = {}
    for table in TIMED_APART:
        rows = [row for row in evidence.get(table) or [] if row.get("device") in (None, facts["device"])]
        mine[table] = [row for row in rows if row.get("dtype") in (None, facts["dtype"])]
    return step_costs.Known(
        found,
        facts,
        str((evidence.get("ledger") or {}).get("regime")),
        first_visit=evidence.get("first_visit"),
        visit_charge_ms=evidence.get("visit_charge_ms"),
        ceiling_gb_s=evidence.get("ceiling_gb_s"),
        **mine,
    )


# ---- score


def observed(row: dict[str, Any]) -> timing.Interval | None:
    """Return T changed / T baseline of one experiment with its interval, None where it was not measured."""
    below, above = ([ms for ms in row.get(name) or [] if ms and ms > 0] for name in SAMPLES)
    if row.get("status") != "OK" or not below or len(below) != len(above):
        return None
    return timing.ratio_interval(above, below)


def spread(row: dict[str, Any]) -> float:
    """Return the interquartile range of the blocks' ratios: the range of fewer than four."""
    ratios = sorted(row.get("ratios") or [])
    if len(ratios) < 4:
        return ratios[-1] - ratios[0] if ratios else 0.0
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return high - low


def score(rows: list[dict[str, Any]], foretold: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one line an experiment that was both predicted and measured.

    `error` = |predicted - observed change|, `allowed` the larger of 15% of the observed change and three times its
    spread, `naive_error` what "no change" would have missed by. A change is the ratio less one.
    """
    said = {one["name"]: one for one in foretold}
    lines = []
    for row in rows:
        seen, told = observed(row), said.get(row["name"]) or {}
        ratio = told.get("predicted_ratio")
        if seen is None or ratio is None:
            continue
        change, scatter = seen.median - 1, spread(row)
        line = {"name": row["name"], "kind": row.get("kind"), "predicted_ratio": ratio, "observed_ratio": seen.median}
        line |= {"observed_ratio_low": seen.low, "observed_ratio_high": seen.high, "spread": scatter}
        line |= {"error": abs(ratio - seen.median), "naive_error": abs(change)}
        line["allowed"] = max(HIT_SHARE * abs(change), HIT_SPREADS * scatter)
        line["hit"] = line["error"] <= line["allowed"]
        lines.append(line | {"why": told.get("prediction_why"), "from": told.get("prediction_from")})
    return lines


def totals(lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many predictions held, the summed errors of ours and of "no change", and how many were of changes so
    large that "no change" would have missed them."""
    ours, naive = (sum(line[key] for line in lines) for key in ("error", "naive_error"))
    telling = [line for line in lines if line["naive_error"] > line["allowed"]]  # else "no change" would have held too
    return {"n": len(lines), "hits": sum(line["hit"] for line in lines), "error": ours, "naive_error": naive,
            "telling": len(telling), "telling_hits": sum(line["hit"] for line in telling)}  # fmt: skip
