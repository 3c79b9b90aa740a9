"""Tables of notebook 02, from the rows of the table "operators". Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

import pandas as pd

from rocmlab import ceiling, evidence, operator_judges, problems, words
from rocmlab.evidence import Row
from rocmlab.sections import Text

SHOWN = 20  # rows of a table of the longest or the slowest


def named(row: Row) -> str:
    """Return operator and dtype; float32 that was multiplied in TF32, as cuDNN does by default, says so."""
    return f"{row['op']} {row['dtype']}" + (" (TF32)" if row.get("precision") == "tf32" else "")


def matrix(rows: list[Row]) -> pd.DataFrame:
    """Return one row a family and one column a dtype: passed / tried, with the worst verdict where one did not pass."""
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    lines = []
    for family in dict.fromkeys(row["family"] for row in rows):
        line: dict[str, Any] = {"family": family}
        for dtype in dtypes:
            codes = [evidence.verdict(row) for row in rows if row["family"] == family and row["dtype"] == dtype]
            line[dtype] = _cell(codes)
            line[f"{dtype}_reason"] = words.both("none_in_dtype")
        lines.append(line)
    return pd.DataFrame(lines)


def _cell(codes: list[str]) -> Text | None:
    if not codes:
        return None
    passed = sum(code in evidence.SOUND for code in codes)
    rest = Counter(code for code in codes if code not in evidence.SOUND)
    ordered = sorted(rest.items(), key=lambda one: evidence.ORDER.index(one[0]))
    said = {}
    for lang in words.LANGUAGES:
        rests = words.word("list_comma", lang).join(f"{n} {words.word(f'op_{code}', lang)}" for code, n in ordered)
        said[lang] = f"{passed}/{len(codes)}" + (f" ({rests})" if ordered else "")
    return said


def level(rows: list[Row]) -> pd.DataFrame:
    counts = evidence.histogram(rows)
    return pd.DataFrame(
        [
            {"level": words.both(f"level_{level}"), **{state: counts[level][state] for state in evidence.STATES}}
            for level in evidence.LEVELS
        ]
    )


def failed(rows: list[Row], *, hip: bool) -> pd.DataFrame:
    """Return one row a try that did not pass: what it said, a known problem that fits, and the next step."""
    lines = []
    for row in sorted(rows, key=lambda one: evidence.ORDER.index(evidence.verdict(one))):
        code = evidence.verdict(row)
        if code not in evidence.BROKEN:
            continue
        known = operator_judges.known(row, hip=hip)
        entry = problems.table().get(known or "")
        lines.append(
            {
                "operator": named(row),
                "verdict": words.both(f"op_{code}"),
                "said": operator_judges.first_line(row),
                "known": {lang: entry[lang]["what"] for lang in words.LANGUAGES} if entry else None,
                "known_reason": words.both("none_known"),
                "next": next_step(row, entry),
            }
        )
    return pd.DataFrame(lines)


def next_step(row: Row, entry: dict[str, Any] | None) -> Text:
    """Say what to do: the retry with the library off comes first, then a known remedy, then trying alone."""
    retry = row.get("retry") or {}
    if retry.get("switch") and retry["verdict"] in evidence.SOUND:
        return words.both("next_library", switch=retry["switch"])
    if entry:
        given = {"seen": entry["seen"], "issue": entry["issue"]}
        return {
            lang: words.word("next_known", lang, remedy=entry[lang]["remedy"],
                             evidence=words.word(f"evidence_{entry['evidence']}", lang), **given)
            for lang in words.LANGUAGES
        }  # fmt: skip
    if retry.get("switch"):
        return words.both("next_not_library", switch=retry["switch"], verdict=retry["verdict"])
    return words.both("next_alone")


def changed(rows: list[Row], before: list[Row]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "operator": named(row),
                "before": words.both(f"op_{then}"),
                "now": words.both(f"op_{now}"),
                "said": operator_judges.first_line(row) if now not in evidence.SOUND else "",
            }
            for row, then, now in operator_judges.changes(rows, before)
        ]
    )


def first(rows: list[Row]) -> pd.DataFrame:
    lines: list[dict[str, Any]] = []
    for row in rows:
        first, steady = evidence.first_call(row)
        if first and steady and first > 10 * steady:
            lines.append({"operator": named(row), "first_ms": first, "steady_ms": steady})
    lines.sort(key=lambda line: -line["first_ms"])
    return pd.DataFrame(lines[:SHOWN])


def speed(rows: list[Row]) -> pd.DataFrame:
    """Return one row a family: how many were compared, how many are faster, the median ratio."""
    lines = []
    for family in dict.fromkeys(row["family"] for row in rows):
        ratios = [ratio for row in rows if row["family"] == family for ratio in _ratio(row)]
        faster = [row for row in rows if row["family"] == family and evidence.levels(row)["faster_than_cpu"] == "yes"]
        if ratios:
            line = {"family": family, "compared": len(ratios), "faster": len(faster)}
            lines.append({**line, "device_over_cpu_ratio": statistics.median(ratios)})
    return pd.DataFrame(lines)


def _ratio(row: Row) -> list[float]:
    own, cpu = evidence.speed(row)
    return [cpu.median / own.median] if own and cpu and own.median else []


def rate(rows: list[Row], ceilings: dict[str, float]) -> pd.DataFrame:
    """Return one row an operator whose work is known: time, TFLOP/s, GB/s (each input and output once), share of the
    roof that binds it, where that was measured."""
    lines = []
    for row in rows:
        own, timed = evidence.speed(row)[0], row.get("timed") or {}
        if own is None or not own.median or not timed.get("flop"):
            continue
        shapes = ", ".join("x".join(map(str, shape)) for shape in timed["shapes"])
        line: dict[str, Any] = {"operator": named(row), "shapes": shapes, "device_ms": own}
        line |= {"tflop_s": timed["flop"] / own.median / 1e9, "gb_s": timed["bytes"] / own.median / 1e6}
        lines.append(line | _of_roof(row, ceilings))
    return pd.DataFrame(lines)


def _of_roof(row: Row, ceilings: dict[str, float]) -> dict[str, Any]:
    """Return the share of the roof that binds, or why there is none.

    Memory is no roof for data that a cache may hold, and the products of 06 ran in no TF32. Nor are they a roof for an
    operator that is faster, by fewer operations than are counted or by another library.
    """
    floors, share, why = evidence.floors_ms(row, ceilings), evidence.roof(row, ceilings), None
    cached = row["timed"]["bytes"] < ceiling.PAST_CACHE
    if row.get("precision") == "tf32":
        why = "none_tf32"
    elif "memory" not in floors:
        why = "none_roof"
    elif cached and "products" not in floors:
        why = "none_product_rate"
    elif cached and floors["memory"] >= floors["products"]:
        why = "none_past_cache"
    elif share is not None and share > 100:
        why = "none_above"
    return {"roof_pct": None, "roof_pct_reason": words.both(why)} if why else {"roof_pct": share}


def slow(rows: list[Row]) -> pd.DataFrame:
    lines = []
    for row in rows:
        own, cpu = evidence.speed(row)
        if own and cpu and evidence.levels(row)["faster_than_cpu"] != "yes":
            line: dict[str, Any] = {"operator": named(row), "device_ms": own, "cpu_ms": cpu}
            line["device_over_cpu_ratio"] = cpu.median / own.median
            lines.append(line)
    lines.sort(key=lambda line: line["device_over_cpu_ratio"])
    return pd.DataFrame(lines[:SHOWN])


def library(rows: list[Row]) -> pd.DataFrame:
    counts = Counter(library for row in rows for library in evidence.libraries(row))
    example = {library: row["op"] for row in reversed(rows) for library in evidence.libraries(row)}
    return pd.DataFrame([{"library": name, "count": n, "operator": example[name]} for name, n in counts.most_common()])


def warning(rows: list[Row]) -> pd.DataFrame:
    seen: dict[str, list[Row]] = {}
    for row in rows:
        for text in evidence.said(row):
            seen.setdefault(text[:200], []).append(row)
    return pd.DataFrame(
        [{"warning": text, "operators": operator_judges.names(some), "count": len(some)} for text, some in seen.items()]
    )


def untried(rows: list[Row]) -> pd.DataFrame:
    """Return what has no verdict, by reason: not tried, not in this build, nothing to compare with."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        code = evidence.verdict(row)
        if code in ("NOT_TRIED", "NO_REFERENCE", "NOT_SUPPORTED"):
            reason = row.get("not_tried") or row.get("no_reference") or operator_judges.first_line(row)
            groups.setdefault(reason, []).append(row)
    lines: list[dict[str, Any]] = [
        {"why": _untried(reason), "count": len(some), "operators": operator_judges.names(some)}
        for reason, some in groups.items()
    ]
    lines.append({"why": words.both("untried_size"), "count": None, "operators": None})
    for line in lines:
        line |= {"count_reason": words.both("none_endless"), "operators_reason": words.both("none_endless")}
    frame = pd.DataFrame(lines)
    frame["count"] = frame["count"].astype("Int64")
    return frame


def _untried(reason: str) -> Text | str:
    return words.both(f"untried_{reason}") if f"untried_{reason}" in words.table() else reason
