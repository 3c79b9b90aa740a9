"""02: which operators run on the GPU and agree with the CPU?"""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import ceiling, evidence, operator_judges, operator_study, opinfo, plots, problems, results, words
from rocmlab.evidence import Row
from rocmlab.sections import Figure, Section, Table, Text, question, snapshot

SHOWN = 20  # rows of a table of the longest or the slowest
COLOURS = {"yes": "#0072B2", "no": "#D55E00", "unknown": "#E5B567", "na": "#E3E7EC"}  # Okabe and Ito, and two greys
STATE_NAMES = {"yes": "proved", "no": "refuted", "unknown": "unknown", "na": "does not apply"}


def section(run: Path) -> Section:
    """Return matrix, ladder, failures and findings of notebook 02, from the newest state of its records."""
    rows, before = operator_study.merged(operator_study.attempts(run))
    if not rows:
        return Section("02", question("02"), missing=words.both("reason_no_records", notebook="02"))
    found = operator_judges.judge(rows, before)
    made = Section("02", question("02"), findings=found, how=words.both("how_02"))
    own = [row for row in rows if row["set"] != opinfo.SET] or rows
    hip = bool(snapshot(run).get("torch_version_hip"))
    ceilings = _ceilings(run, rows)
    tables = {
        "matrix": matrix(rows),
        "levels": level_table(own),
        "failed": failed_table(rows, hip=hip),
        "changed": changed_table(rows, before),
        "first": first_table(rows),
        "speed": speed_table(rows),
        "slow": slow_table(rows),
        "rates": rate_table(rows, ceilings),
        "libraries": library_table(rows),
        "warnings": warning_table(rows),
        "untried": untried_table(rows),
    }
    made.tables = [
        Table(f"{name}-table", words.both(f"operators_{name}"), frame, labels=LABELS)
        for name, frame in tables.items()
        if len(frame)
    ]
    foot = footer(run, rows)
    caption = words.both("figure_levels", total=len(own))
    made.figures = [Figure("levels", lambda: draw_levels(own, foot), alt_levels(own), caption)]
    made.provenance = [f"{len(rows)} operator tries"]
    worst = next((one for one in found if one["status"] == "broken"), None)
    made.answers = {"works": worst or next((one for one in found if one["code"] == "PASS"), found[0])}
    return made


def _ceilings(run: Path, rows: list[Row]) -> dict[str, float]:
    """Return the measured bandwidth of this device as gb_s, where this run has one."""
    found: dict[str, float] = {}
    device = rows[0].get("device_asked")
    best = ceiling.bandwidth([one for one in results.rows(run, "ceiling") if one.get("device") == device])
    if best:
        found["gb_s"] = best.gb_s
    return found


# ---- tables


def matrix(rows: list[Row]) -> pd.DataFrame:
    """Return one row a family and one column a dtype: passed / tried, with the worst verdict where one did not pass."""
    dtypes = list(dict.fromkeys(row["dtype"] for row in rows))
    lines = []
    for family in dict.fromkeys(row["family"] for row in rows):
        line: dict[str, Any] = {"family": family}
        for dtype in dtypes:
            codes = [evidence.verdict(row) for row in rows if row["family"] == family and row["dtype"] == dtype]
            line[dtype] = _cell(codes)
            line[f"{dtype}_reason"] = "no operator of this family is tried in this dtype"
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


def level_table(rows: list[Row]) -> pd.DataFrame:
    counts = evidence.histogram(rows)
    return pd.DataFrame(
        [
            {"level": words.both(f"level_{level}"), **{state: counts[level][state] for state in evidence.STATES}}
            for level in evidence.LEVELS
        ]
    )


def failed_table(rows: list[Row], *, hip: bool) -> pd.DataFrame:
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
                "operator": f"{row['op']} {row['dtype']}",
                "verdict": words.both(f"op_{code}"),
                "said": operator_judges.first_line(row),
                "known": {lang: entry[lang]["what"] for lang in words.LANGUAGES} if entry else None,
                "known_reason": "none in the table fits",
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


def changed_table(rows: list[Row], before: list[Row]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "operator": f"{row['op']} {row['dtype']}",
                "before": words.both(f"op_{then}"),
                "now": words.both(f"op_{now}"),
                "said": operator_judges.first_line(row) if now not in evidence.SOUND else "",
            }
            for row, then, now in operator_judges.changes(rows, before)
        ]
    )


def first_table(rows: list[Row]) -> pd.DataFrame:
    lines: list[dict[str, Any]] = []
    for row in rows:
        first, steady = evidence.first_call(row)
        if first and steady and first > 10 * steady:
            lines.append({"operator": f"{row['op']} {row['dtype']}", "first_ms": first, "steady_ms": steady})
    lines.sort(key=lambda line: -line["first_ms"])
    return pd.DataFrame(lines[:SHOWN])


def speed_table(rows: list[Row]) -> pd.DataFrame:
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


def rate_table(rows: list[Row], ceilings: dict[str, float]) -> pd.DataFrame:
    """Return one row an operator whose work is known: time, TFLOP/s, GB/s (each input and output once), share of the
    memory roof where one was measured and the data does not fit in a cache."""
    lines = []
    for row in rows:
        own, timed = evidence.speed(row)[0], row.get("timed") or {}
        if own is None or not own.median or not timed.get("flop"):
            continue
        shapes = ", ".join("x".join(map(str, shape)) for shape in timed["shapes"])
        line: dict[str, Any] = {"operator": f"{row['op']} {row['dtype']}", "shapes": shapes, "device_ms": own}
        line |= {"tflop_s": timed["flop"] / own.median / 1e9, "gb_s": timed["bytes"] / own.median / 1e6}
        line["roof_pct"] = evidence.roof(row, ceilings)
        line["roof_pct_reason"] = "no memory roof was measured in this run"
        if timed["bytes"] < ceiling.PAST_CACHE:
            line |= {"roof_pct": None, "roof_pct_reason": "its data may lie in a cache: memory is no roof for it"}
        lines.append(line)
    return pd.DataFrame(lines)


def slow_table(rows: list[Row]) -> pd.DataFrame:
    lines = []
    for row in rows:
        own, cpu = evidence.speed(row)
        if own and cpu and evidence.levels(row)["faster_than_cpu"] != "yes":
            line: dict[str, Any] = {"operator": f"{row['op']} {row['dtype']}", "device_ms": own, "cpu_ms": cpu}
            line["device_over_cpu_ratio"] = cpu.median / own.median
            lines.append(line)
    lines.sort(key=lambda line: line["device_over_cpu_ratio"])
    return pd.DataFrame(lines[:SHOWN])


def library_table(rows: list[Row]) -> pd.DataFrame:
    counts = Counter(library for row in rows for library in evidence.libraries(row))
    example = {library: row["op"] for row in reversed(rows) for library in evidence.libraries(row)}
    return pd.DataFrame([{"library": name, "count": n, "operator": example[name]} for name, n in counts.most_common()])


def warning_table(rows: list[Row]) -> pd.DataFrame:
    seen: dict[str, list[Row]] = {}
    for row in rows:
        for text in evidence.said(row):
            seen.setdefault(text[:200], []).append(row)
    return pd.DataFrame(
        [{"warning": text, "operators": operator_judges.names(some), "count": len(some)} for text, some in seen.items()]
    )


def untried_table(rows: list[Row]) -> pd.DataFrame:
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
        line |= {"count_reason": "no end to them", "operators_reason": "all"}
    frame = pd.DataFrame(lines)
    frame["count"] = frame["count"].astype("Int64")
    return frame


def _untried(reason: str) -> Text | str:
    return words.both(f"untried_{reason}") if f"untried_{reason}" in words.table() else reason


# ---- figure


@plots.styled
def draw_levels(rows: list[Row], foot: str) -> Any:
    """Draw one stacked bar a step of the ladder; each part carries its count where it is wide enough."""
    counts = evidence.histogram(rows)
    figure, ax = plots.canvas(3.6)
    labels = [words.word(f"level_{level}", "en") for level in evidence.LEVELS]
    for place, level in enumerate(evidence.LEVELS):
        left = 0
        for state in evidence.STATES:
            width = counts[level][state]
            ax.barh(place, width, left=left, height=0.68, color=COLOURS[state], edgecolor="white", linewidth=0.6)
            if width > 0.06 * len(rows):
                dark = state in ("yes", "no")
                ax.text(left + width / 2, place, str(width), ha="center", va="center", fontsize=8.5,
                        color="white" if dark else plots.INK)  # fmt: skip
            left += width
    ax.set_yticks(range(len(labels)), labels)
    ax.invert_yaxis()
    ax.set_xlim(0, len(rows))
    ax.set_xlabel("operator and dtype pairs")
    ax.grid(False)
    handles = [ax.barh(0, 0, color=COLOURS[state]) for state in evidence.STATES]
    ax.legend(handles, [STATE_NAMES[s] for s in evidence.STATES], loc="lower center", bbox_to_anchor=(0.5, 1.0),
              ncols=4, frameon=False, fontsize=8.5, handlelength=1.0, columnspacing=1.0)  # fmt: skip
    plots.footer(figure, foot)
    return figure


def alt_levels(rows: list[Row]) -> Text:
    counts = evidence.histogram(rows)
    told = {
        lang: "; ".join(
            words.word(f"level_{level}", lang)
            + words.word("colon", lang)
            + ", ".join(f"{words.word(f'column_{s}', lang)} {counts[level][s]}" for s in evidence.STATES)
            for level in evidence.LEVELS
        )
        for lang in words.LANGUAGES
    }
    return {lang: words.word("alt_levels", lang, values=told[lang]) for lang in words.LANGUAGES}


def footer(run: Path, rows: list[Row]) -> str:
    birth = results.birth(run)
    host = snapshot(run).get("host") or {}
    on_cpu = all(row.get("device_asked") == "cpu" for row in rows)
    card = (birth.get("subject") or {}).get("name") or host.get("cpu") or "device unknown"
    dtypes = " / ".join(d for d in ("float32", "float16", "bfloat16") if any(row["dtype"] == d for row in rows))
    return plots.footer_text(
        card=str(card), dtype=dtypes, n=len(rows), date=str(birth.get("started") or ""),
        notice="CPU run, no GPU measured" if on_cpu else "",
    )  # fmt: skip


NAMES = (
    "family", "operator", "verdict", "said", "known", "next", "level", "yes", "no", "unknown", "na", "first_ms",
    "steady_ms", "device_ms", "cpu_ms", "device_over_cpu_ratio", "compared", "faster", "before", "now", "warning",
    "operators", "count", "why", "library", "roof_pct", "shapes",
)  # fmt: skip
LABELS = {name: words.both(f"column_{name}") for name in NAMES}
