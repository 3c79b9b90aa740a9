"""The records of attention as tables for people, by path, length and phase. Pure."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rocmlab import curves, words
from rocmlab.attention_tables import FORCED, Row, call_samples, median, own, path, usual


def times_table(rows: list[Row]) -> pd.DataFrame:
    """Return one line a phase, length and back end as transformers calls it: device, host and waited-for time."""
    lines: list[dict[str, Any]] = []
    for row in [one for phase in ("decode", "prefill") for one in usual(own(rows), phase)]:
        if row.get("status") != "OK" or not row.get("samples_ms"):
            continue
        on_cpu = row["device"] == "cpu"
        line: dict[str, Any] = {"phase": row["phase"], "length_tokens": row["length"], "backend": row["backend"]}
        line["attention_device_ms"] = curves.interval(row["samples_ms"])
        if row["method"] == "events" and hidden(row):
            line |= {"attention_device_ms": None, "attention_device_ms_reason": words.both("attention_hidden")}
        if not on_cpu:
            line["attention_host_us"] = curves.interval([1000 * ms for ms in row.get("host_samples_ms") or []])
            line["attention_wall_us"] = curves.interval([1000 * ms for ms in row.get("wall_samples_ms") or []])
        lines.append(line | {"method": row["method"], "grade": row["evidence_grade"]})
    order = {"decode": 0, "prefill": 1}
    lines.sort(key=lambda line: (order[line["phase"]], line["length_tokens"]))
    return pd.DataFrame(lines)


def hidden(row: Row) -> bool:
    """Tell whether the host queued calls hardly faster than events saw them end: then that is no device time."""
    device, host = median(row.get("samples_ms")), median(row.get("host_samples_ms"))
    return bool(device and host and host >= curves.HOST_BOUND * device)


def paths_table(rows: list[Row]) -> pd.DataFrame:
    """Return one line a phase and back end: does it run, is it right, operators a call, and if not, what it said."""
    cases, lines = own(rows), []
    for phase in ("decode", "prefill"):
        for backend in ("default", *FORCED):
            mine = [row for row in usual(cases, phase) if row["backend"] == backend]
            if mine:
                lines.append(_path_line(rows, cases, phase, backend, mine))
    return pd.DataFrame(lines, dtype=object)  # a count beside a gap stays a count


def _path_line(rows: list[Row], cases: list[Row], phase: str, backend: str, mine: list[Row]) -> dict[str, Any]:
    ran = [row for row in mine if row["status"] == "OK"]
    line: dict[str, Any] = {"phase": phase, "backend": backend}
    line["runs"] = True if len(ran) == len(mine) else False if not ran else None
    off = [row["over_tolerance"] for row in ran if row.get("over_tolerance") is not None]
    line["tolerance_pct"] = 100 * max(off) if off else None
    line["ops"] = max((row["ops"] for row in ran if row.get("ops")), default=None)
    took = {path(row, rows, cases)["path"] for row in ran} if backend == "default" else set()
    failed = next((row for row in mine if row["status"] != "OK"), None)
    said = why(failed) if failed else ", ".join(sorted(one for one in took if one))
    reason = None if ran else words.both("attention_no_room")
    return line | {"tolerance_pct_reason": reason, "ops_reason": reason, "attention_said": said or "-"}


def why(row: Row) -> str:
    """Return why a path did not run: the warnings that it gave, else the first sentence of its error."""
    heard = [one for one in row.get("warnings") or [] if "experimental" not in one or len(row["warnings"]) == 1]
    error = str(row.get("error") or "").split(": ", 1)[-1].split(". ")[0]
    return "; ".join(heard[:3]) or f"{row['status'].lower()}: {error}"[:300]


def cost_table(lines: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the costs by phase and length, for people."""
    names = ["phase", "length_tokens", "default", "math_ms", "fused", "gap_ms", "gap_ms_low", "gap_ms_high", "whole_ms",
             "share_pct", "whole_ms_reason", "share_pct_reason"]  # fmt: skip
    frame = pd.DataFrame([{name: line.get(name) for name in names} for line in lines], columns=names)
    return frame.assign(fused=frame["fused"].map(lambda one: one or "-"))


def settings_table(rows: list[Row]) -> pd.DataFrame:
    """Return the default at the ends of the lengths by how K, V and the mask are handed over."""
    cases = own(rows)
    lines: list[dict[str, Any]] = []
    several = {row["length"] for row in cases if not row.get("usual")}
    for row in cases:
        if row["backend"] == "default" and row["status"] == "OK" and row["length"] in several and row.get("samples_ms"):
            line = {
                "phase": row["phase"],
                "length_tokens": row["length"],
                "attention_kv": "grouped" if row["gqa"] else "repeated",
            }
            line |= {"mask": row["mask"], "default": path(row, rows, cases)["path"]}
            lines.append(line | {"attention_call_ms": curves.interval(call_samples(row))})
    order = {"decode": 0, "prefill": 1}
    lines.sort(key=lambda line: (order[line["phase"]], line["length_tokens"]))
    return pd.DataFrame(lines)
