"""How far below its roof is each operator, are the values right, and does one row use all cores? Judges of 06, pure.

The roof of an operator is the longer of bytes / bandwidth ceiling and FLOPs / rate of matrix products of its dtype,
both measured in this run.
"""

from __future__ import annotations

import statistics
from typing import Any

from rocmlab import clock, gemm_judges, launch_cost, one_row, shapes, timing, words
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.model_shape import DECODE
from rocmlab.roof import Roof
from rocmlab.steadiness import judge_processes
from rocmlab.words import number

Row = dict[str, Any]

NEAR_PCT = 60.0  # of the roof: what notebook 05 calls bound by bandwidth, too
OVER_PCT = 105.0  # of a measured ceiling: more is no rate
SHOWN = 3
SCALES = 1.3  # times as fast with all threads as with one


def judge(rows: list[Row], gemms: list[Row], launches: list[Row], single: list[Row], roof: Roof,
          peaks: dict[str, float], ended: list[Row] | None = None) -> list[Finding]:  # fmt: skip
    """Return the findings of notebook 06, worst first; [] when nothing is there."""
    # How the empty kernel ended is its row's reason: a driver that dislikes it spoils nothing else.
    measuring = [one for one in ended or [] if one.get("what") != launch_cost.CHILD]
    found = [*judge_processes(measuring), *judge_gemms(gemms, peaks), *launch_cost.judge(launches)]
    table = lines(rows, DECODE, roof, gemms)
    if table:
        found += [
            *judge_step(rows, table, roof),
            *judge_values(rows),
            *judge_holes(rows),
            *judge_over(rows, roof, gemms),
        ]
    return worst_first(found + judge_one_row(single, roof))


# ---- products


def judge_gemms(rows: list[Row], peaks: dict[str, float]) -> list[Finding]:
    """Say the rate of each dtype, and what is odd about it."""
    items = [gemm_judges.rated(row, peaks) for row in rows if not row.get("error")]
    if not items:
        return []
    supported = next((row["is_bf16_supported"] for row in rows if row.get("is_bf16_supported") is not None), None)
    device = "cpu" if rows[0].get("device") == "cpu" else "gpu"
    said = finding("GEMM_RATES", numbers=gemm_judges.numbers(items), said=gemm_judges.said_by_dtype(items))
    return [said, *gemm_judges.judge(items, peaks, bf16_supported=supported, device=device)]


# ---- operators


def roof_ms(row: Row, roof: Roof, gemms: list[Row]) -> tuple[float | None, str]:
    """Return (the shortest time of one call in ms, what sets it: "memory" or "arithmetic"); None without a ceiling."""
    memory = row["bytes"] / roof.gb_s / 1e6 if roof.gb_s else None
    rate = gemm_judges.rate_tflops(gemms, str(row.get("dtype")))
    arithmetic = row["flops"] / rate / 1e9 if rate else None
    if memory is None or (arithmetic is None and row["operator"] in ("linear", "sdpa")):
        return None, ""
    return max(memory, arithmetic or 0.0), "memory" if memory >= (arithmetic or 0.0) else "arithmetic"


def lines(rows: list[Row], phase: str, roof: Roof, gemms: list[Row]) -> list[Row]:
    """Return one line an operator of a phase, most time in a pass first: call_us (Interval), pass_ms, roof_ms (both
    count x), roof_pct, excess_ms, bound_by, and the row itself; null with a reason."""
    found = []
    for row in rows:
        if row.get("kind") != "operator" or row.get("phase") != phase:
            continue
        interval = timing.median_interval([1000 * ms for ms in clock.kept(row.get("samples_ms") or [])[0]])
        line: Row = {"name": row["name"], "count": row.get("count"), "call_us": interval, "row": row, "bound_by": ""}
        line |= dict.fromkeys(("pass_ms", "roof_ms", "roof_pct", "excess_ms"))
        if interval is None:
            line["call_us_reason"] = line["pass_ms_reason"] = row.get("reason") or "no sample"
        else:
            line["pass_ms"] = row["count"] * interval.median / 1000
            line |= _against_roof(row, interval, roof, gemms)
        found.append(line)
    return sorted(found, key=lambda one: -(one["pass_ms"] or 0.0))


def _against_roof(row: Row, interval: timing.Interval, roof: Roof, gemms: list[Row]) -> Row:
    least, bound = roof_ms(row, roof, gemms)
    if least is None:
        why = roof.reason or words.both("shapes_no_rate")
        return {"roof_ms_reason": why, "roof_pct_reason": why, "excess_ms_reason": why}
    pct = 1e5 * least / interval.median
    line: Row = {"roof_ms": row["count"] * least, "bound_by": bound, "roof_pct": pct}
    line["excess_ms"] = row["count"] * max(0.0, interval.median / 1000 - least)
    if pct > OVER_PCT:
        key = "none_past_cache" if bound == "memory" and not row.get("rotated_bytes") else "shapes_over_ceiling"
        line |= {"roof_pct": None, "roof_pct_reason": words.both(key)}
    return line


def judge_step(rows: list[Row], table: list[Row], roof: Roof) -> list[Finding]:
    """Say how far the operators of one token are from their roofs together, and which have the most to give back."""
    summed = shapes.step_sum(rows, DECODE)
    if summed["ms"] is None:
        return []
    given: Row = {"operators_ms": summed["ms"], "operators_low_ms": summed["low"], "operators_high_ms": summed["high"]}
    known = [line for line in table if line["roof_ms"] is not None]
    if not known:
        why = next((line["roof_pct_reason"] for line in table if line.get("roof_pct_reason")), None)
        which = said([line for line in table if line["pass_ms"]][:SHOWN])
        return [finding("SHAPES_NO_ROOF", numbers=given, reason=why or words.both("roof_unknown"), which=which)]
    given["roof_ms"] = sum(line["roof_ms"] for line in known)
    given["roof_pct"] = 100 * given["roof_ms"] / summed["ms"]
    which = said(sorted(known, key=lambda line: -line["excess_ms"])[:SHOWN])
    least, most = (100 * given["roof_ms"] / summed[end] for end in ("high", "low"))
    code = (
        "SHAPES_NEAR_ROOF" if least >= NEAR_PCT else "SHAPES_FAR_FROM_ROOF" if most < NEAR_PCT else "SHAPES_UNDECIDED"
    )
    return [finding(code, numbers=given, which=which)]


def said(some: list[Row]) -> dict[str, str]:
    """Return "lm_head 9.9 ms (roof 1.9 ms), ..." in both languages."""
    parts: dict[str, list[str]] = {lang: [] for lang in words.LANGUAGES}
    for line in some:
        key = "shapes_item" if line["roof_ms"] is not None else "shapes_item_bare"
        given = {"name": line["name"], "ms": number(line["pass_ms"], "ms"), "roof": number(line["roof_ms"], "ms")}
        for lang in words.LANGUAGES:
            parts[lang].append(words.word(key, lang, **given))
    return {lang: words.word("list_comma", lang).join(each) for lang, each in parts.items()}


def judge_values(rows: list[Row]) -> list[Finding]:
    """Name the operators whose value is outside the tolerance, not finite, or of another shape than the reference."""
    checked = [row for row in rows if row.get("kind") == "operator" and isinstance(row.get("value"), dict)]
    if not checked:
        return []
    wrong = [row for row in checked if is_wrong(row["value"])]
    if not wrong:
        worst = max(row["value"]["over_tolerance"] for row in checked)
        given = {"values_checked": len(checked), "worst_over_tolerance_pct": 100 * worst}
        return [finding("SHAPES_RIGHT_VALUE", numbers=given)]
    which = ", ".join(f"{row['name']} ({row['phase']}, {_error(row['value'])})" for row in wrong[:6])
    given = {"values_checked": len(checked), "values_wrong": len(wrong)}
    return [finding("SHAPES_WRONG_VALUE", numbers=given, which=which)]


def is_wrong(value: Row) -> bool:
    """Tell whether a comparison (tolerance.compare) failed."""
    over = value.get("over_tolerance")
    return over is None or over > 1 or bool(value.get("not_finite"))


def _error(value: Row) -> str:
    if value.get("over_tolerance") is None:
        return "shape"
    return "NaN / Inf" if value.get("not_finite") else f"{value['over_tolerance']:.3g} x tolerance"


def judge_holes(rows: list[Row]) -> list[Finding]:
    """Name operators without a time, and those whose time may be the host's."""
    found, summed = [], shapes.step_sum(rows, DECODE)
    if summed["missing"]:
        given: Row = {"missing_operators": len(summed["missing"])}
        found.append(finding("SHAPES_INCOMPLETE", numbers=given, which=", ".join(summed["missing"])))
    if summed["host_may_bind"]:
        given = {"host_may_bind_operators": len(summed["host_may_bind"])}
        found.append(finding("SHAPES_HOST_MAY_BIND", numbers=given, which=", ".join(summed["host_may_bind"])))
    return found


def judge_over(rows: list[Row], roof: Roof, gemms: list[Row]) -> list[Finding]:
    """Name operators faster than the ceilings allow though no cache explains it; the lower end of the spread counts."""
    over = []
    for phase in dict.fromkeys(row["phase"] for row in rows if row.get("kind") == "operator"):
        for line in lines(rows, phase, roof, gemms):
            explained = line.get("roof_pct_reason") != words.both("shapes_over_ceiling")
            if line["call_us"] is None or line["roof_ms"] is None or explained:
                continue
            slowest = line["count"] * line["call_us"].high / 1000
            if line["count"] and 100 * line["roof_ms"] / slowest > OVER_PCT:
                over.append(f"{line['name']} ({phase})")
    return [finding("SHAPES_OVER_CEILING", which=", ".join(over))] if over else []


# ---- one row


def judge_one_row(rows: list[Row], roof: Roof) -> list[Finding]:
    """Say whether the one-row product gains from more threads, and if not, what would.

    Only a control that does gain shows that a second core was to be had; at the roof there is nothing to gain.
    """
    one, every = (_arm(rows, one_row.AS_IT_IS, most) for most in (False, True))
    if not one or not every or every["threads"] == one["threads"]:
        return []
    gain, control = _gain(one, every), _gain(_arm(rows, one_row.CONTROL, False), _arm(rows, one_row.CONTROL, True))
    all_ms = statistics.median(every["samples_ms"])
    read_pct = 100 * every["bytes"] / all_ms / 1e6 / roof.gb_s if roof.gb_s else None
    given: Row = {"one_thread_ms": statistics.median(one["samples_ms"]), "all_threads_ms": all_ms}
    given |= {"threads": every["threads"], "thread_speedup": gain.median if gain else None, "read_pct": read_pct}
    given["control_speedup"] = control.median if control else None
    shape = f"{every['shape']['out']} x {every['shape']['in']}"
    told: Row = {"name": every["name"], "shape": shape, "dtype": every["dtype"], "tried": tried(rows, all_ms)}
    code, why = _one_row(gain, control, read_pct)
    if why:
        told["reason"] = words.both(why)
    return [finding(code, numbers=given, **told)]


def _one_row(gain: timing.Interval | None, control: timing.Interval | None, read_pct: float | None) -> tuple[str, str]:
    if gain is None or not gain.enough:
        return "ONE_ROW_PRODUCT_UNDECIDED", "one_row_few"
    if gain.low >= SCALES:
        return "ONE_ROW_PRODUCT_ALL_CORES", ""
    if gain.high >= SCALES:
        return "ONE_ROW_PRODUCT_UNDECIDED", "one_row_spread"
    if read_pct is None:
        return "ONE_ROW_PRODUCT_UNDECIDED", "one_row_no_ceiling"
    if read_pct >= NEAR_PCT:
        return "ONE_ROW_PRODUCT_AT_ROOF", ""
    if control is None or control.low < SCALES:
        return "ONE_ROW_PRODUCT_UNDECIDED", "one_row_no_core"
    return "ONE_ROW_PRODUCT_ONE_CORE", ""


def _arm(rows: list[Row], way: str, most: bool) -> Row | None:
    """Return a way's row with all threads, or that with one."""
    mine = [row for row in rows if row.get("way") == way and row.get("samples_ms")]
    return (max if most else min)(mine, key=lambda row: row["threads"]) if mine else None


def _gain(one: Row | None, every: Row | None) -> timing.Interval | None:
    """Return how many times as fast all threads are as one; the arms took turns, so rounds are blocks."""
    if not one or not every:
        return None
    count = min(len(one["samples_ms"]), len(every["samples_ms"]))
    return timing.ratio_interval(one["samples_ms"][:count], every["samples_ms"][:count])


def tried(rows: list[Row], usual_ms: float) -> dict[str, str]:
    """Return what the other ways take, fastest first, each beside how many times as fast that is."""
    found = []
    for way in one_row.OTHER_WAYS:
        row = _arm(rows, way, True)
        if row:
            found.append((statistics.median(row["samples_ms"]), way))
    parts: dict[str, list[str]] = {lang: [] for lang in words.LANGUAGES}
    for ms, way in sorted(found):
        for lang in words.LANGUAGES:
            given = {"way": words.word(f"way_{way}", lang), "ms": number(ms, "ms"), "ratio": number(usual_ms / ms, "×")}
            parts[lang].append(words.word("one_row_tried", lang, **given))
    return {lang: words.word("list_comma", lang).join(each) or "–" for lang, each in parts.items()}
