"""What do the records of attention say? Pure: rows of the table `attention` in, tables and a summary out.

A call costs what a queue of such calls takes: on a GPU the longer of device time and the host's time to queue it
(`call_ms`), on a CPU its wall time. A step has one call a layer.
"""

from __future__ import annotations

import re
import statistics
from typing import Any

import pandas as pd

from rocmlab import curves, timing, words
from rocmlab.timing import Interval

Row = dict[str, Any]
FORCED = ("math", "flash", "efficient", "cudnn", "overrideable")
FUSED = FORCED[1:]
# The operator that each path ends in, as torch's dispatcher names it.
OPERATORS = {
    "_scaled_dot_product_cudnn_attention": "cudnn",
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_efficient_attention": "efficient",
    "_scaled_dot_product_fused_attention_overrideable": "overrideable",
}
CHOICES = {"MATH": "math", "FLASH_ATTENTION": "flash", "EFFICIENT_ATTENTION": "efficient", "CUDNN_ATTENTION": "cudnn",
           "OVERRIDEABLE": "overrideable"}  # fmt: skip
# Kernels by name, cuDNN first: its flash kernels say flash too. attn_fwd is AOTriton's, fmha_cutlass torch's own.
KERNELS = (("cudnn", re.compile("cudnn", re.I)), ("flash", re.compile(r"flash|attn_fwd", re.I)),
           ("efficient", re.compile(r"fmha", re.I)), ("math", re.compile("softmax", re.I)))  # fmt: skip
NEAR = 1.5  # a step measured at a context within this factor stands for this length


def own(rows: list[Row], other: bool = False) -> list[Row]:
    """Return the cases measured in the environment as it is; with `other` those with the switch turned round."""
    cases = [row for row in rows if row.get("what") == "case"]
    first = cases[0].get("switch") if cases else None
    return [row for row in cases if (row.get("switch") == first) is not other]


def usual(cases: list[Row], phase: str) -> list[Row]:
    """Return the cases of one phase as transformers calls attention for a text without padding."""
    return [row for row in cases if row["phase"] == phase and row.get("usual")]


def head_of(rows: list[Row]) -> Row:
    """Return what all rows repeat, {} where nothing was measured."""
    return next((row for row in rows if row.get("what") == "case"), {})


def call_samples(row: Row) -> list[float]:
    """Return ms a call as a queue of calls pays for it, sample by sample."""
    device, host = row.get("samples_ms") or [], row.get("host_samples_ms")
    return [max(pair) for pair in zip(device, host, strict=False)] if host else list(device)


def median(samples: list[float] | None) -> float | None:
    good = [one for one in samples or [] if one > 0]
    return statistics.median(good) if good else None


# ---- which path


def path(row: Row, rows: list[Row], cases: list[Row]) -> dict[str, Any]:
    """Return {path, by, grade, agree} of a default's row: by its kernels (A), its operators (C), torch's choice (C), or
    the forced path whose time it has (D). `agree` is False where two of these say different things."""
    said = {
        "kernels": by_kernels(row, rows),
        "operators": by_operators(row),
        "choice": CHOICES.get(row.get("choice") or ""),
    }
    told = {by: one for by, one in said.items() if one}
    if told:
        by = next(iter(told))
        return {
            "path": told[by],
            "by": by,
            "grade": "A" if by == "kernels" else "C",
            "agree": len(set(told.values())) == 1,
        }
    nearest = by_time(row, cases)
    return {"path": nearest, "by": "time" if nearest else None, "grade": "D" if nearest else None, "agree": None}


def by_operators(row: Row) -> str | None:
    """Return the path whose operator ran; products of their own are the math path."""
    names = row.get("path") or []
    fused = next((OPERATORS[name] for name in names if name in OPERATORS), None)
    return fused or ("math" if {"bmm", "baddbmm", "mm"} & set(names) else None)


def by_kernels(row: Row, rows: list[Row]) -> str | None:
    """Return the path that the profiler's kernel names tell, where it looked at this very shape."""
    same = ("backend", "phase", "length", "gqa", "mask", "switch")
    seen = [r for r in rows if r.get("what") == "kernels" and r.get("kernels")]
    for one in seen:
        if all(one.get(key) == row.get(key) for key in same):
            return next((name for name, form in KERNELS if any(form.search(k) for k in one["kernels"])), None)
    return None


def by_time(row: Row, cases: list[Row]) -> str | None:
    """Return the forced path whose time is nearest, if it is within 10% and no other is."""
    mine = median(row.get("samples_ms"))
    others = {one["backend"]: median(one.get("samples_ms")) for one in cases if same_shape(one, row)}
    off = sorted((abs(ms / mine - 1), name) for name, ms in others.items() if ms and mine and name in FORCED)
    return off[0][1] if off and off[0][0] < 0.1 and (len(off) < 2 or off[1][0] > 0.1) else None


def same_shape(one: Row, other: Row) -> bool:
    return all(one.get(key) == other.get(key) for key in ("phase", "length", "gqa", "mask"))


def works(cases: list[Row]) -> dict[str, Row]:
    """Return the rows by back end of those that ran."""
    return {row["backend"]: row for row in cases if row.get("status") == "OK" and row.get("samples_ms")}


# ---- what it costs


def costs(
    rows: list[Row], phase: str, whole_ms: dict[int, float] | None = None, ceiling_gb_s: float | None = None
) -> list[dict[str, Any]]:
    """Return one line a length: the default, math, the fastest fused path, and what math costs more, a whole step.

    Where no fused path works, the gap is math less the time that reading its bytes takes at the ceiling: no path could
    save more (`at_most`). `whole_ms` maps a length to the decode step or prefill that the share is taken of.
    """
    cases, lines = own(rows), []
    for length in sorted({row["length"] for row in usual(cases, phase)}):
        here = [row for row in usual(cases, phase) if row["length"] == length]
        ran = works(here)
        if "math" not in ran and "default" not in ran:
            continue
        lines.append(_line(rows, here, ran, phase, length, whole_ms or {}, ceiling_gb_s))
    return lines


def _line(
    rows: list[Row], here: list[Row], ran: dict[str, Row], phase: str, length: int, whole_ms: dict[int, float],
    ceiling_gb_s: float | None,
) -> dict[str, Any]:  # fmt: skip
    times = {name: median(call_samples(row)) for name, row in ran.items()}
    forced = {name: ms for name, ms in times.items() if name in FORCED and ms}
    fused = min((name for name in forced if name in FUSED), key=lambda name: forced[name], default=None)
    line: dict[str, Any] = {"phase": phase, "length_tokens": length, "layers": here[0]["layers"]}
    took = path(ran["default"], rows, here) if "default" in ran else {"path": None, "by": None, "grade": None}
    line |= {"default": took["path"], "default_by": took["by"], "default_grade": took["grade"]}
    line |= {"default_ms": times.get("default"), "math_ms": times.get("math"), "fused": fused}
    line |= {"fused_ms": forced.get(fused or ""), "fastest": min(forced, key=lambda name: forced[name], default=None)}
    line["at_most"] = fused is None
    floor = forced.get(fused or "") if fused else _floor_ms(here[0], ceiling_gb_s)
    gap = None if line["math_ms"] is None or floor is None else line["math_ms"] - floor
    line["gap_ms"] = None if gap is None else gap * here[0]["layers"]
    near = [one for one in whole_ms if 1 / NEAR <= one / length <= NEAR]
    line["whole_ms"] = whole_ms[min(near, key=lambda one: abs(one - length))] if near else None
    known = line["whole_ms"] and line["gap_ms"] is not None
    # The part of a step that math has more of: with math in it the step would be longer by the gap.
    in_it = line["default"] == "math"
    line["share_pct"] = 100 * line["gap_ms"] / (line["whole_ms"] + (0 if in_it else line["gap_ms"])) if known else None
    if not line["whole_ms"]:
        line["whole_ms_reason"] = line["share_pct_reason"] = words.both("attention_no_step")
    line |= {"math_ops": (ran.get("math") or {}).get("ops"), "fused_ops": (ran.get(fused or "") or {}).get("ops")}
    return line


def _floor_ms(row: Row, ceiling_gb_s: float | None) -> float:
    return bytes_moved(row) / ceiling_gb_s / 1e6 if ceiling_gb_s else 0.0


def bytes_moved(row: Row) -> int:
    """Return the bytes that one call must move: K and V once, queries in, results out."""
    size = {"float32": 4, "float64": 8}.get(row["dtype"], 2)
    queries = row.get("queries") or (1 if row["phase"] == "decode" else row["length"])
    return size * row["head_dim"] * (2 * row["kv_heads"] * row["length"] + 2 * row["heads"] * queries)


# ---- first visits


def visits(rows: list[Row]) -> list[dict[str, Any]]:
    """Return one line a back end: what the first visit of a new length costs a decode step, over its second visit."""
    cases, lines = usual(own(rows), "decode"), []
    for backend in dict.fromkeys(row["backend"] for row in cases):
        mine = [row for row in cases if row["backend"] == backend and row.get("status") == "OK"]
        pairs = [p for row in mine for p in zip(row["first_pass_ms"], row["second_pass_ms"], strict=False)]
        if not pairs:
            continue
        charge = timing.median_interval([first - second for first, second in pairs])
        ratio = timing.ratio_interval([p[0] for p in pairs], [p[1] for p in pairs])
        cold = next((row["cold_ms"] for row in mine if row.get("cold_ms") is not None), None)
        line = {"backend": backend, "attention_cold_ms": cold, "first_pass_ms": curves.interval(p[0] for p in pairs)}
        line |= {"second_pass_ms": curves.interval(p[1] for p in pairs), "charge_ms": charge, "charge_ratio": ratio}
        line["first_call_ms"] = curves.interval(ms for row in mine for ms in row["first_call_ms"])
        lines.append(line | {"calls": mine[0]["calls_a_pass"], "layers": mine[0]["layers"]})
    return lines


# ---- the contract with other notebooks


def summary(
    rows: list[Row], *, step_ms: dict[int, float] | None = None, prefill_ms: dict[int, float] | None = None,
    ceiling_gb_s: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return {device, dtype, layers, decode: [...], prefill: [...], first_visit: [...]}, JSON-able; {} without cases.

    Each line of decode and prefill is one length (see `costs`); `gap_ms` and `share_pct` are of a whole step.
    """
    head = head_of(rows)
    if not head:
        return {}
    found: dict[str, Any] = {
        key: head.get(key) for key in ("device", "dtype", "model_spec", "layers", "heads", "kv_heads")
    }
    found["decode"] = costs(rows, "decode", step_ms, ceiling_gb_s)
    found["prefill"] = costs(rows, "prefill", prefill_ms, ceiling_gb_s)
    plain = {"first_pass_ms", "second_pass_ms", "charge_ms", "charge_ratio", "first_call_ms"}
    found["first_visit"] = [
        {key: value.median if key in plain and isinstance(value, Interval) else value for key, value in line.items()}
        for line in visits(rows)
    ]
    return found


# ---- tables


def times_table(rows: list[Row]) -> pd.DataFrame:
    """Return one line a phase, length and back end as transformers calls it: device, host and waited-for time."""
    lines = []
    for row in [one for phase in ("decode", "prefill") for one in usual(own(rows), phase)]:
        if row.get("status") != "OK" or not row.get("samples_ms"):
            continue
        on_cpu = row["device"] == "cpu"
        line: dict[str, Any] = {"phase": row["phase"], "length_tokens": row["length"], "backend": row["backend"]}
        line["attention_device_ms"] = curves.interval(row["samples_ms"])
        if not on_cpu:
            line["attention_host_us"] = curves.interval([1000 * ms for ms in row.get("host_samples_ms") or []])
            line["attention_wall_us"] = curves.interval([1000 * ms for ms in row.get("wall_samples_ms") or []])
        lines.append(line | {"method": row["method"], "grade": row["evidence_grade"]})
    order = {"decode": 0, "prefill": 1}
    return pd.DataFrame(sorted(lines, key=lambda line: (order[line["phase"]], line["length_tokens"])))


def paths_table(rows: list[Row]) -> pd.DataFrame:
    """Return one line a phase and back end: does it run, is it right, of how many operators is a call, and if not why."""
    cases, lines = own(rows), []
    for phase in ("decode", "prefill"):
        for backend in ("default", *FORCED):
            mine = [row for row in usual(cases, phase) if row["backend"] == backend]
            if mine:
                lines.append(_path_line(rows, cases, phase, backend, mine))
    return pd.DataFrame(lines)


def _path_line(rows: list[Row], cases: list[Row], phase: str, backend: str, mine: list[Row]) -> dict[str, Any]:
    ran = [row for row in mine if row["status"] == "OK"]
    line: dict[str, Any] = {"phase": phase, "backend": backend}
    line["runs"] = True if len(ran) == len(mine) else False if not ran else None
    off = [row["over_tolerance"] for row in ran if row.get("over_tolerance") is not None]
    line["tolerance_pct"] = 100 * max(off) if off else None
    line["ops"] = max((row["ops"] for row in ran if row.get("ops")), default=None)
    took = {path(row, rows, cases)["path"] for row in ran} if backend == "default" else set()
    said = ", ".join(sorted(one for one in took if one))
    failed = next((row for row in mine if row["status"] != "OK"), None)
    if failed:
        heard = failed.get("warnings") or []
        said = "; ".join(heard[:3]) or f"{failed['status']}: {failed.get('error')}"
    return line | {"attention_said": said or "-"}


def cost_table(lines: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the costs by phase and length, for people."""
    names = ("phase", "length_tokens", "default", "default_ms", "math_ms", "fused", "fused_ms", "gap_ms", "whole_ms")
    kept = [
        {name: line.get(name) for name in (*names, "share_pct", "whole_ms_reason", "share_pct_reason")}
        for line in lines
    ]
    frame = pd.DataFrame(kept, columns=[*names, "share_pct", "whole_ms_reason", "share_pct_reason"])
    frame["fused"] = frame["fused"].map(lambda one: one or "-")
    return frame


def settings_table(rows: list[Row]) -> pd.DataFrame:
    """Return the default at the ends of the lengths by how K, V and the mask are handed over."""
    cases, lines = own(rows), []
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
    return pd.DataFrame(sorted(lines, key=lambda line: (order[line["phase"]], line["length_tokens"])))
