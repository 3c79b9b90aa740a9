"""The catalogue, operator by operator, in a worker that may die: every row is written as soon as it is known.

`study(run, device, ...)` keeps the worker, tries again with the library off what went wrong, and goes on whatever
happens; `evidence.py` judges the rows. Nothing here touches a device.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmlab import evidence, libraries, logbook, operators, results, worker
from rocmlab.operators.check import Check
from rocmlab.readers import logs
from rocmlab.results import Run

SCHEMA = "rocmlab-operator-1"
TABLE = "operators"
SET = "curated"
LOGS = "operator_logs"
TEXT_KEPT = 2000
MODES = ("curated", "all", "failed")
PATIENCE = 3  # workers that may fail to start before the rest is given up


@dataclass(frozen=True)
class Plan:
    """What to try: a catalogue, dtypes, seconds for one operator and for all; `only` names operators or families."""

    catalogue: str = operators.CURATED
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16")
    limit_s: float = 20.0
    budget_s: float = 300.0
    only: tuple[str, ...] = ()
    pairs: frozenset[tuple[str, str]] | None = None  # of (operator, dtype): these only


def planned(run: Path, mode: str, only: str, dtypes: str, limit_s: float, budget_s: float) -> Plan:
    """Return the plan that a notebook's parameters ask for. Raises ValueError for a mode that does not exist."""
    if mode not in MODES:
        raise ValueError(f"operators={mode}: use one of {', '.join(MODES)}")
    return Plan(
        dtypes=tuple(name.strip() for name in dtypes.split(",") if name.strip()),
        limit_s=limit_s,
        budget_s=budget_s,
        only=tuple(name.strip() for name in only.split(",") if name.strip()),
        pairs=failed(run) if mode == "failed" else None,
    )


def chosen(plan: Plan, device: str) -> Iterator[tuple[Check, str, str | None]]:
    """Yield (check, dtype, reason why not to try it or None), in the catalogue's order."""
    for check in operators.load(plan.catalogue).values():
        if plan.only and not {check.name, check.family} & set(plan.only):
            continue
        for dtype in check.dtypes:
            if dtype in operators.FLOATS and dtype not in plan.dtypes:
                continue
            if plan.pairs is not None and (check.name, dtype) not in plan.pairs:
                continue
            yield check, dtype, "needs_accelerator" if check.needs == "accelerator" and device == "cpu" else None


def study(run: Run, device: str, plan: Plan, keeper: worker.Worker | None = None) -> int:
    """Try all that is chosen; append one row each to the table "operators". Returns the number of rows."""
    keeper = keeper or worker.Worker(first=("rocmlab.operator_trial:begin", {"device": device}))
    header = {"schema": SCHEMA, "set": SET, "device_asked": device, "plan_only": bool(plan.only or plan.pairs)}
    began, count, dead = time.monotonic(), 0, 0
    last: dict[str, Any] = {}
    with keeper:
        for check, dtype, reason in chosen(plan, device):
            late_end(run, keeper, last)
            name = {"op": check.name, "family": check.family, "dtype": dtype}
            if dead >= PATIENCE:
                reason = "worker_will_not_start"
            elif reason is None and time.monotonic() - began > plan.budget_s:
                reason = "budget_spent"
            row = {"status": "NOT_TRIED", "not_tried": reason} if reason else one(keeper, check, dtype, device, plan)
            if not reason:  # a row that was not tried says nothing about workers
                dead = dead + 1 if row.get("no_worker") else 0
            last = {**header, **name, **static(check, dtype), **row, "worker": keeper.started}
            run.append(TABLE, last)
            count += 1
        late_end(run, keeper, last)
    return count


def late_end(run: Run, keeper: worker.Worker, last: dict[str, Any]) -> None:
    """Write the last row once more, with a warning, where its worker ended after it had answered."""
    ended = keeper.gone()
    if ended and last:
        warning = f"its worker ended after it had answered: {ended}"
        run.append(TABLE, last | {"warnings": [*(last.get("warnings") or []), warning]})


def static(check: Check, dtype: str) -> dict[str, Any]:
    """Return what a judge must know about the check itself."""
    return {
        "waits_by_design": check.waits,
        "library_switch": check.library,
        "has_gradient": check.grad,
        "random_numbers": check.reference is not None and check.atol is not None,
        "compute_dtype": dtype,
    }


def one(keeper: worker.Worker, check: Check, dtype: str, device: str, plan: Plan) -> dict[str, Any]:
    """Return one row: the trial, its evidence, and the second try with the library off where the first went wrong."""
    row = _try(keeper, check, dtype, device, plan)
    verdict = evidence.verdict({**row, "device_asked": device})
    if verdict in evidence.SOUND:
        row |= _evidence(keeper, check, dtype, device, plan)
    elif check.library and verdict in evidence.RETRIED:
        retry = _try(keeper, check, dtype, device, plan, off=True)
        row["retry"] = {"verdict": evidence.verdict({**retry, "device_asked": device}), "switch": retry.get("switch")}
        if row["retry"]["verdict"] in evidence.ENDED:  # it took the word for what had been switched with it
            given = {"library": check.library, "device": device}
            row["retry"]["switch"] = keeper.call("rocmlab.switches:said", given, limit_s=plan.limit_s).result
        row["retry"]["error"] = (retry.get("error") or retry.get("words") or "").splitlines()[:1]
    if evidence.poisoned(row) or evidence.leaks(row):
        keeper.retire()
    return row


def _try(keeper: worker.Worker, check: Check, dtype: str, device: str, plan: Plan, off: bool = False) -> dict[str, Any]:
    given = {"catalogue": plan.catalogue, "name": check.name, "dtype": dtype, "device": device, "off": off}
    before = keeper.started
    outcome = keeper.call("rocmlab.operator_trial:trial", given, limit_s=check.limit_s or plan.limit_s)
    began = keeper.begun
    row = dict(outcome.result or {})
    row |= {"status": outcome.status, "words": outcome.words, "exit_code": outcome.exit_code}
    row |= {"seconds": round(outcome.seconds, 3), "stderr": _short(outcome.stderr)}
    if outcome.result is None:
        row["error"] = outcome.error
    if keeper.started > before and began is not None and began.status != "OK":
        row["no_worker"] = True
    return row


def _evidence(keeper: worker.Worker, check: Check, dtype: str, device: str, plan: Plan) -> dict[str, Any]:
    """Ask for further evidence; a worker that dies of it costs the evidence only."""
    given = {"catalogue": plan.catalogue, "name": check.name, "dtype": dtype, "device": device}
    if not check.timed or device == "cpu":
        return {}
    outcome = keeper.call("rocmlab.witnesses:evidence", given, limit_s=plan.limit_s)
    if outcome.status != "OK":
        return {"evidence_lost": f"{outcome.status}: {outcome.words}"}
    return {"evidence": outcome.result, "evidence_seconds": round(outcome.seconds, 3)}


# ---- with the libraries' logs on


def listen(run: Run, device: str, plan: Plan) -> int:
    """Run what a library may serve once more with the libraries' logs on, where no profiler told whose kernels ran.

    A worker of its own, because the variables must be set before the libraries are loaded, and because logging slows
    everything down. Appends one row each to the table "operator_logs"; returns their number.
    """
    if device != "cpu" and not evidence.blind(run.rows(TABLE)):
        return 0
    variables = {
        k: v
        for kind, found in logbook.KINDS[logbook.backend(device)].items()
        for k, v in found.items()
        if kind != "runtime"
    }
    rows = []
    with worker.Worker(env=variables, first=("rocmlab.operator_trial:begin", {"device": device})) as keeper:
        for check, dtype, reason in chosen(plan, device):
            if reason or not (check.library or check.family == "attention"):
                continue
            given = {"catalogue": plan.catalogue, "name": check.name, "dtype": dtype, "device": device}
            outcome = keeper.call("rocmlab.witnesses:once", given, limit_s=plan.limit_s)
            heard = {"status": outcome.status, "words": outcome.words, "libraries": served(outcome.stderr)}
            rows.append({"set": SET, "op": check.name, "dtype": dtype, "variables": sorted(variables), **heard})
    if rows:
        run.append(LOGS, rows)
    return len(rows)


def served(text: str) -> dict[str, int]:
    """Return the calls by library that a log names, in the order of the log."""
    parsers = logs.Parsers()
    for number, line in enumerate(text.splitlines(), 1):
        parsers.feed(line, number)
    found: dict[str, int] = {}
    for row in libraries.rows(parsers.log):
        if row["stage"] == "run" and row["kind"] not in ("kernel", "plan"):
            found[row["library"]] = found.get(row["library"], 0) + row["calls"]
    return found


def _short(text: str) -> str:
    """Keep the end of what libraries printed; a stack of Python's fault handler ends in what matters least."""
    return text if len(text) <= TEXT_KEPT else text[:TEXT_KEPT]


# ---- attempts


def attempts(run: Path) -> list[list[dict[str, Any]]]:
    """Return the rows by attempt, the oldest first, each with the libraries that a log named for it (`logged`)."""
    heard = {(row["set"], row["op"], row["dtype"]): row["libraries"] for row in _every(run, LOGS)}
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in _every(run, TABLE):
        row["logged"] = heard.get((row.get("set"), row.get("op"), row.get("dtype")))
        groups.setdefault(str(row.get("attempt", "")), []).append(row)
    return [groups[key] for key in sorted(groups)]


def _every(run: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of all attempts."""
    path = run / "records" / f"{table}.jsonl"
    return results.parse_lines(path.read_text(encoding="utf-8", errors="replace"))[0] if path.exists() else []


def merged(tries: list[list[dict[str, Any]]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return (rows that hold now, rows that they replaced).

    A partial attempt (`only` or `failed`) stands on the last whole one; a whole one stands alone, and what it replaced
    is the attempt before.
    """
    now: dict[tuple[str, str, str], dict[str, Any]] = {}
    before: dict[tuple[str, str, str], dict[str, Any]] = {}
    for rows in tries:
        fresh = {(r["set"], r["op"], r["dtype"]): r for r in rows if "op" in r}
        partial = any(row.get("plan_only") for row in rows)
        before = {key: now[key] for key in fresh if key in now}
        sets = {key[0] for key in fresh}
        kept = now if partial else {key: row for key, row in now.items() if key[0] not in sets}
        now = {**kept, **fresh}
    return list(now.values()), list(before.values())


def failed(run: Path, name: str = SET) -> frozenset[tuple[str, str]]:
    """Return (operator, dtype) of all of one set that went wrong, or were left out, when they were last tried."""
    rows = [row for row in merged(attempts(run))[0] if row["set"] == name]
    bad = [row for row in rows if evidence.verdict(row) in (*evidence.BROKEN, "NOT_TRIED")]
    return frozenset((row["op"], row["dtype"]) for row in bad if row.get("not_tried") != "needs_accelerator")
