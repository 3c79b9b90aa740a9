"""What the logs of notebook 08 mean: are all products accounted for, what nobody tells, and what the logs cost.

Pure functions from the records `library_runs` and `library_calls` to findings; `backends` makes the tables of them.
"""

from __future__ import annotations

from rocmlab import backends, gemms
from rocmlab.backends import Row
from rocmlab.findings import Finding, finding, worst_first

SLOWER, FASTER = 1.1, 0.9  # beyond these a logged decode step is called slower, or the comparison disturbed


def judge(runs: list[Row], calls: list[Row]) -> list[Finding]:
    """Return the findings of the notebook, worst first."""
    done = backends.work(runs)
    if done is None:
        return [finding("LOGS_NOT_TAKEN", reason="; ".join(f"{r['kind']}: {r['words']}" for r in runs) or "not run")]
    found: list[Finding] = []
    for dtype in done["dtypes"]:
        found += gemms.judge(backends.reconciled(done, calls, dtype), dtype=dtype)
    for run in runs:
        found += [one for one in run.get("findings") or [] if one["status"] != "ok"]
    # Projections that no log names have their own finding above.
    gaps = [r for r in backends.table(runs, calls) if not r["library"] and " x " not in r["operator"]]
    if gaps:
        found.append(finding("NOT_LOGGED", operators=", ".join(dict.fromkeys(_gap(r) for r in gaps))))
    found += _plans(done, calls)
    slow = _slowest(runs)
    if slow:
        found.append(slow)
    failed = [f"{name}: {text}" for name, text in done.get("errors", {}).items()]
    if failed:
        found.append(finding("LOGGED_PART_FAILED", parts="; ".join(failed)))
    return worst_first(found)


def _gap(row: Row) -> str:
    """Name an operator that no log mentions, with its part where the name does not say it, and torch's choice."""
    said = [] if row["part"] in ("decode", row["operator"]) else [row["part"]]
    said += [f"torch: {row['chosen']}"] if row["chosen"] else []
    return f"{row['operator']} ({'; '.join(said)})" if said else row["operator"]


def _plans(done: Row, calls: list[Row]) -> list[Finding]:
    """Say where cuDNN made as many new plans for attention as there were decode steps: a plan is for one length."""
    found = []
    for dtype in done["dtypes"]:
        made = [c for c in calls if c["kind"] == "plan_made" and c["phase"] == f"decode {dtype}"]
        made = [c for c in made if c["shape"] in ("attention", "plan")]
        count, ms = sum(c["calls"] for c in made), sum(c["time_ms"] or 0.0 for c in made) / done["steps"]
        if count >= done["steps"]:
            numbers = {"plans_made": count, "plans_ms_a_step": ms or None}
            if not ms:
                numbers["plans_ms_a_step_reason"] = "the log has no times"
            found.append(finding("PLANS_IN_EVERY_STEP", numbers=numbers, dtype=dtype, steps=done["steps"]))
    return found


def _slowest(runs: list[Row]) -> Finding | None:
    rates = [(rate, run["kind"], dtype) for run in runs for dtype, rate in (run.get("slow_down") or {}).items()]
    if not rates:
        return None
    rate, kind, dtype = max(rates)
    if min(rates)[0] < FASTER:
        _, kind, dtype = min(rates)
        why = "a logged run was faster than the clean one, so the machine was disturbed"
        numbers = {"log_slow_down": None, "log_slow_down_reason": why}
        return finding("LOGGING_SLOWS", numbers=numbers, variant="disturbed", kind=kind, dtype=dtype)
    variant = None if rate > SLOWER else "not_measurable"
    return finding("LOGGING_SLOWS", numbers={"log_slow_down": rate}, variant=variant, kind=kind, dtype=dtype)
