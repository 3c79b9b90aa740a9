"""What do the records of attention say? Pure: rows of the table `attention` in, tables and a summary out.

A call costs what a queue of such calls takes: on a GPU the longer of device time and the host's time to queue it
(`call_ms`), on a CPU its wall time. A step has one call a layer.
"""

from __future__ import annotations

import re
import statistics
from typing import Any

from rocmlab import curves, timing, words
from rocmlab.timing import Interval

Row = dict[str, Any]
FORCED = ("math", "flash", "efficient", "cudnn", "overrideable")
FUSED = FORCED[1:]
# What findings call them.
SAID = {
    "flash": "flash",
    "efficient": "memory-efficient",
    "cudnn": "cuDNN",
    "overrideable": "overrideable",
    "math": "math",
}
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
NEAR = 1.5  # a decode step measured at a context within this factor stands for this length


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
    line |= {"at_most": fused is None, **_gap(ran, fused, here[0], ceiling_gb_s)}
    line["whole_ms"] = _whole(phase, length, whole_ms)
    for end in ("", "_low", "_high"):
        line[f"share_pct{end}"] = _share(line[f"gap_ms{end}"], line["whole_ms"], took["path"] == "math")
    if not line["whole_ms"]:
        line["whole_ms_reason"] = line["share_pct_reason"] = words.both("attention_no_step")
    return line | {"math_ops": (ran.get("math") or {}).get("ops"), "fused_ops": (ran.get(fused or "") or {}).get("ops")}


def _whole(phase: str, length: int, whole_ms: dict[int, float]) -> float | None:
    """Return the ms of the decode step or prefill that has this length; None where none was measured near it.

    A step hardly depends on its context, so that of the nearest within NEAR stands for it. A prefill does: one of
    another length stands for nothing, but the line between the two around it does.
    """
    if phase == "decode":
        near = [one for one in whole_ms if 1 / NEAR <= one / length <= NEAR]
        return whole_ms[min(near, key=lambda one: abs(one - length))] if near else None
    below = max((one for one in whole_ms if one <= length), default=None)
    above = min((one for one in whole_ms if one >= length), default=None)
    if below is None or above is None or below == above:
        return whole_ms.get(length)
    part = (length - below) / (above - below)
    return whole_ms[below] + part * (whole_ms[above] - whole_ms[below])


def _gap(ran: dict[str, Row], fused: str | None, row: Row, ceiling_gb_s: float | None) -> dict[str, float | None]:
    """Return what math takes more than the fused path (or than the floor), all layers, with the widest interval."""
    math = curves.interval(call_samples(ran["math"])) if "math" in ran else None
    other = curves.interval(call_samples(ran[fused])) if fused else None
    floor = _floor_ms(row, ceiling_gb_s)
    if math is None:
        return dict.fromkeys(("gap_ms", "gap_ms_low", "gap_ms_high"))
    ends = (other.median, other.high, other.low) if other else (floor, floor, floor)
    pairs = zip((math.median, math.low, math.high), ends, strict=True)
    gaps = [(one - less) * row["layers"] for one, less in pairs]
    return dict(zip(("gap_ms", "gap_ms_low", "gap_ms_high"), gaps, strict=True))


def _share(gap_ms: float | None, whole_ms: float | None, inside: bool) -> float | None:
    """Return the gap in percent of a step that has math in it: the step as measured, or longer by the gap."""
    if gap_ms is None or not whole_ms:
        return None
    return 100 * gap_ms / (whole_ms if inside else whole_ms + max(gap_ms, 0.0))


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
