"""The tables of notebook 07: records and metrics of a trace in, frames with units in their column names out."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rocmlab import timing, words

ARMS = ("clean", "events", "profiled")
NAME_CHARACTERS = 70

LABELS = {
    name: words.both(f"column_{name}")
    for name in (
        *("asked", "answer", "measured", "tpot_ms", "times_clean_ratio", "step", "wall_ms", "operators", "kernels"),
        *("launches", "busy_pct", "no_work_pct", "waiting_calls", "verdict", "part", "time_ms", "share_pct"),
        *("library", "n", "kernel", "mean_us", "call", "behind", "name", "self_cpu_us"),
    )
}


def steps_ms(rows: list[dict[str, Any]], arm: str) -> list[float]:
    """Return every step time of one arm, in order of measurement."""
    return [ms for row in rows if row["what"] == "steps" and row["arm"] == arm for ms in row["itl_ms"]]


def probe_table(probe: dict[str, Any]) -> pd.DataFrame:
    """Return what the build says that it can record, and what it recorded of one small product."""
    asked = ("status", "torch", "kineto", "activities", "form", "operators", "runtime_calls", "device_events", "linked")
    lines = []
    for key in asked:
        value = probe.get(key)
        shown = ", ".join(value) if isinstance(value, list) else value
        shown = shown if shown is None or isinstance(shown, bool) else str(shown)
        lines.append({"asked": words.both(f"probe_{key}"), "answer": shown, "answer_reason": probe["words"]})
    return pd.DataFrame(lines)


def arms_table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row an arm: median step with its interval, n, and the ratio to the clean one."""
    clean = timing.median_interval(steps_ms(rows, "clean"))
    lines = []
    for arm in ARMS:
        found = timing.median_interval(steps_ms(rows, arm))
        if found:
            line: dict[str, Any] = {"measured": words.both(f"arm_{arm}"), "tpot_ms": found.median, "n": found.n}
            line |= {"tpot_ms_low": found.low, "tpot_ms_high": found.high}
            lines.append(line | {"times_clean_ratio": found.median / clean.median if clean else None})
    return pd.DataFrame(lines)


def steps_table(metrics: dict[str, Any]) -> pd.DataFrame:
    """Return one row an annotated step."""
    reason = words.both("reason_no_device_events")
    columns = {
        "kernels": "kernels", "launches": "launch_calls", "busy_pct": "busy_in_span_pct",
        "no_work_pct": "starved_pct_of_window", "waiting_calls": "sync_calls",
    }  # fmt: skip
    lines = []
    for step in metrics.get("steps", []):
        line = {"step": step["name"], "wall_ms": step["wall_us"] / 1000, "operators": step["aten_ops"]}
        for name, key in columns.items():
            line |= {name: step.get(key), f"{name}_reason": reason}
        lines.append(line | {"verdict": step.get("verdict"), "verdict_reason": reason})
    return pd.DataFrame(lines)


def idle_table(metrics: dict[str, Any]) -> pd.DataFrame:
    """Return the window split into busy time and idle time by cause; the shares add up to 100 %."""
    whole = metrics["window"]["dur_us"]
    parts = {"busy": metrics["busy_us"], **metrics["idle_why_us"]}
    lines = [
        {"part": part_name(part), "time_ms": us / 1000, "share_pct": 100 * us / whole if whole else None}
        for part, us in parts.items()
    ]
    return pd.DataFrame(lines)


def part_name(part: str) -> dict[str, str]:
    return words.both(f"part_{part.replace(':', '_')}")


def libraries_table(metrics: dict[str, Any]) -> pd.DataFrame:
    lines = [
        {"library": name, "n": row["n"], "time_ms": row["us"] / 1000, "share_pct": row["pct"]}
        for name, row in metrics["libraries"].items()
    ]
    return pd.DataFrame(lines)


def kernels_table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    lines = []
    for row in rows:
        mean = row["us"] / row["n"] if row["n"] else None
        line = {"kernel": _short(row["name"]), "library": row["library"], "n": row["n"]}
        lines.append(line | {"time_ms": row["us"] / 1000, "mean_us": mean})
    return pd.DataFrame(lines)


def waits_table(metrics: dict[str, Any]) -> pd.DataFrame:
    """Return the calls that waited for the device, with what is behind them; one line of dashes when there was none."""
    none = words.both("reason_no_waits")
    lines = [
        {"call": row["call"], "behind": row["frame"] or row["operator"], "n": row["n"], "time_ms": row["us"] / 1000}
        for row in metrics["waits"][:10]
    ]
    return pd.DataFrame(lines or [{"call": None, "call_reason": none, "n": 0}])


def _short(name: str) -> str:
    return name if len(name) <= NAME_CHARACTERS else f"{name[: NAME_CHARACTERS - 3]}..."
