"""The tables of an account of one decode step: quantities, both lanes, checks. Pure."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rocmlab import words
from rocmlab.sections import Table

SHOWN = (
    "T", "T_block", "E1", "E_block", "H", "H_graph", "H_cpu", "sampling", "readback", "tokeniser", "D_graph", "D_queue",
    "D_busy", "D_ops", "D_batch",
)  # fmt: skip
ON_CPU = {"wait": "work", "idle": "between"}  # what these rows are where one thread does both
LABELS = {name: words.both(f"column_ledger_{name}") for name in (
    "quantity", "meaning", "time_ms", "grade", "counts", "row", "how", "share_pct", "check", "passed", "said",
)}  # fmt: skip


def tables(account: dict[str, Any]) -> list[Table]:
    """Return the four tables: ledger_quantities, ledger_host, ledger_device, ledger_checks."""
    made = {
        "ledger_quantities": quantities(account),
        "ledger_host": lane(account, "host"),
        "ledger_device": lane(account, "device"),
        "ledger_checks": checks(account),
    }
    return [Table(name, words.both(f"caption_{name}"), frame, labels=LABELS) for name, frame in made.items()]


def quantities(account: dict[str, Any]) -> pd.DataFrame:
    """Return one line a quantity: value with its ends, n, grade, whether it counts, and what to know about it."""
    lines = []
    for name in SHOWN:
        one = account["quantities"].get(name)
        if one:
            line = {"quantity": name, "meaning": words.both(f"ledger_quantity_{name}"), "time_ms": one["ms"]}
            line |= {"time_ms_low": one["low"], "time_ms_high": one["high"], "time_ms_reason": one["reason"]}
            lines.append(
                line | {"n": one["n"], "grade": one["grade"], "counts": one["valid"], "how": one["reason"] or ""}
            )
    columns = [
        "quantity",
        "meaning",
        "time_ms",
        "time_ms_low",
        "time_ms_high",
        "time_ms_reason",
        "n",
        "grade",
        "counts",
    ]
    return pd.DataFrame(lines, columns=[*columns, "how"])


def lane(account: dict[str, Any], side: str) -> pd.DataFrame:
    """Return the rows of one lane with their share of the step; the residual stands in the lane that binds."""
    step = (account["quantities"].get("T") or {}).get("ms")
    rows = list(account[f"{side}_lane"])
    binds = account["binding"] or ("device" if account["subject"]["device"] == "cpu" else "host")
    rows += [account["residual"]] if binds == side else []
    lines = []
    for one in rows:
        share = 100 * one["ms"] / step if step and one["ms"] is not None else None
        name = ON_CPU.get(one["name"], one["name"]) if account["subject"]["device"] == "cpu" else one["name"]
        line = {"row": words.both(f"ledger_row_{name}"), "time_ms": one["ms"], "time_ms_low": one["low"]}
        line |= {"time_ms_high": one["high"], "time_ms_reason": one["how"], "share_pct": share}
        line |= {"share_pct_reason": one["how"], "grade": one["grade"], "grade_reason": one["how"]}
        lines.append(line | {"how": one["how"]})
    return pd.DataFrame(lines)


def checks(account: dict[str, Any]) -> pd.DataFrame:
    """Return one line a check: passed, failed or not possible, and what it says."""
    lines = []
    for one in account["checks"]:
        state = {True: "yes", False: "no", None: "open"}[one["passed"]]
        line = {"check": words.both(f"ledger_check_{one['name']}"), "passed": words.both(f"ledger_passed_{state}")}
        lines.append(line | {"said": one["said"]})
    return pd.DataFrame(lines, columns=["check", "passed", "said"])
