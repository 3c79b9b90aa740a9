"""06: how near its ceiling is each operator at this model's shapes?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import (
    curve_judges,
    curves,
    figures,
    gemm_judges,
    gpus,
    one_row,
    plots,
    results,
    sensor_judges,
    shape_judges,
    shapes,
    timing,
    words,
)
from rocmlab.findings import worst_first
from rocmlab.model_shape import DECODE, PREFILL
from rocmlab.roof import Roof
from rocmlab.sections import Figure, Section, Table, Text, question, snapshot
from rocmlab.sections.prefill_decode import footer, roof_of

DRAWN = 10  # operators of a figure; the rest is one bar
Rows = list[dict[str, Any]]


def section(run: Path) -> Section:
    """Return rates, launch cost, the operators of a token and of a prefill, the one-row product, and the findings."""
    rows, ended = results.rows(run, "shapes"), results.rows(run, "shapes_ended")
    gemms, launches, single = (results.rows(run, name) for name in ("gemm_rate", "launch_cost", "one_row"))
    if not rows and not ended and not gemms:
        return Section("06", question("06"), missing=words.both("reason_no_records", notebook="06"))
    roof, peaks = roof_of(run, rows), peaks_of(run)
    found = shape_judges.judge(rows, gemms, launches, single, roof, peaks, ended)
    found += curve_judges.judge_conditions(rows)
    found += sensor_judges.faults([row.get("sensor") for row in rows], op="operators")
    made = Section("06", question("06"), findings=worst_first(found), how=words.both("how_06"))
    head = next((row for row in rows if row.get("model_spec")), {})
    made.provenance = [str(part) for part in (head.get("model_spec"), head.get("dtype")) if part]
    for phase in (DECODE, PREFILL):
        _add_phase(made, rows, phase, roof, gemms, footer(run, rows, batch=None))
    if single:
        frame = one_row_table(single, roof)
        made.tables.append(Table("one_row", words.both("one_row"), frame, labels=LABELS))
    elif head.get("device") not in (None, "cpu"):
        made.absent["one_row"] = words.both("one_row_absent")
    if gemms:
        made.tables.append(Table("gemm_rates", words.both("gemm_rates"), gemm_table(gemms, peaks), labels=LABELS))
    if launches:
        made.tables.append(Table("launch_costs", words.both("launch_costs"), launch_table(launches), labels=LABELS))
    return made


def peaks_of(run: Path) -> dict[str, float]:
    """Return the stated TFLOP/s by dtype of the run's subject; {} where none is known."""
    probe, subject = gpus.tidy(snapshot(run)), results.birth(run).get("subject") or {}
    mine = [one for one in probe["devices"] if one["index"] == subject.get("index")]
    arch = (gpus.real_arch(probe, mine[0]) if mine else None) or subject.get("arch")
    return gemm_judges.stated_peaks(arch, subject.get("name"), subject.get("memory_bytes"))


def _add_phase(made: Section, rows: Rows, phase: str, roof: Roof, gemms: Rows, foot: str) -> None:
    """Add a phase's table and figure; where no operator was timed, say so."""
    lines = shape_judges.lines(rows, phase, roof, gemms)
    if not lines:
        made.absent[f"shapes_{phase}"] = made.absent[f"shapes-{phase}"] = words.both("shapes_no_operator")
        return
    known = [line["row"]["shape"] for line in lines if line["name"] == "sdpa" and "shape" in line["row"]]
    size = known[0] if known else {}
    given = {"rows": size.get("rows", "?"), "context": size.get("context", "?")}
    total = shapes.step_sum(rows, phase)
    notes = [words.both("shapes_sum", ms=words.number(total["ms"], "ms"), low=words.number(total["low"]),
                        high=words.number(total["high"]), n=total["n"])]  # fmt: skip
    if roof.gb_s:
        said = "roof_measured_is" if roof.kind == "measured" else "roof_stated_is"
        notes.append(words.both(said, roof=words.number(roof.gb_s)))
    caption = words.both(f"shapes_{phase}", **given)
    made.tables.append(Table(f"shapes_{phase}", caption, phase_table(lines), notes=notes, labels=LABELS))
    drawn = bars(lines, curve_judges.side(rows))
    if len(drawn):
        figure = Figure(f"shapes-{phase}", lambda: draw(drawn, foot), alt(lines), words.both(f"figure_shapes_{phase}"))
        made.figures.append(figure)


# ---- tables


def gemm_table(rows: Rows, peaks: dict[str, float]) -> pd.DataFrame:
    """Return one line a dtype and size: rate, share of the stated peak, clock; null with the error or reason."""
    lines = []
    for row in rows:
        item = gemm_judges.rated(row, peaks)
        samples = row.get("samples_ms") or []
        line: dict[str, Any] = {"dtype": row["dtype"], "square_size": row["m"]}
        line["rate_tflop_s"] = curves.interval([row["flops"] / ms / 1e9 for ms in samples if ms > 0])
        line["rate_tflop_s_reason"] = row.get("error")
        line |= {"of_stated_pct": item["peak_pct"], "of_stated_pct_reason": words.both("no_stated_peak")}
        lines.append(line | {"clock": row.get("clock")})
    return pd.DataFrame(lines)


def launch_table(rows: Rows) -> pd.DataFrame:
    """Return one line a kind of launch: until queued, until done, the library, or why there is nothing."""
    lines = []
    for row in rows:
        less = row.get("call_us") or 0.0
        line: dict[str, Any] = {"launched": words.both(f"launch_{row['what']}"), "library": row.get("library")}
        line["queued_us"] = timing.median_interval([max(0.0, us - less) for us in row.get("samples_us") or []])
        line["done_us"] = timing.median_interval(row.get("drained_us") or [])
        line |= {f"{name}_reason": row.get("reason") for name in ("queued_us", "done_us", "library")}
        lines.append(line)
    return pd.DataFrame(lines)


def phase_table(lines: Rows) -> pd.DataFrame:
    """Return one line an operator, most time first: count, shape, time of a call, ms of a pass, roof, share, value."""
    found = []
    for line in lines:
        row = line["row"]
        shown: dict[str, Any] = {"shape_name": line["name"], "times": line["count"], "shape_sizes": sizes(row)}
        shown |= {key: line.get(key) for key in ("call_us", "pass_ms", "roof_ms", "roof_pct", "excess_ms")}
        shown |= {key: value for key, value in line.items() if key.endswith("_reason")}
        shown["set_by"] = words.both(f"bound_{line['bound_by']}") if line["bound_by"] else None
        shown["value_right"] = _value(row)
        shown["method"] = f"{row.get('method')}, {row.get('evidence_grade')}" if row.get("method") else None
        found.append(shown)
    return pd.DataFrame(found)


def sizes(row: dict[str, Any]) -> str:
    """Return "rows 1, in 576, out 49152"."""
    return ", ".join(f"{key} {value}" for key, value in (row.get("shape") or {}).items())


def _value(row: dict[str, Any]) -> Text | None:
    if not isinstance(row.get("value"), dict):
        return None
    return words.both("value_wrong" if shape_judges.is_wrong(row["value"]) else "value_right")


def one_row_table(rows: Rows, roof: Roof) -> pd.DataFrame:
    """Return one line a way and number of threads: time, GB/s, share of the ceiling."""
    lines = []
    for row in rows:
        interval = timing.median_interval(row.get("samples_ms") or [])
        line: dict[str, Any] = {"one_row_way": words.both(f"way_{row['way']}"), "threads": row.get("threads")}
        line |= {"once_ms": interval, "read_gb_s": None, "ceiling_pct": None}
        line["once_ms_reason"] = row.get("reason")
        if interval and row.get("bytes") and row["way"] != one_row.CONTROL:
            line["read_gb_s"] = row["bytes"] / interval.median / 1e6
            line["ceiling_pct"] = 100 * line["read_gb_s"] / roof.gb_s if roof.gb_s else None
        line["read_gb_s_reason"] = row.get("reason") or words.both("one_row_control")
        line["ceiling_pct_reason"] = row.get("reason") or (
            words.both("one_row_control") if row["way"] == one_row.CONTROL else roof.reason
        )
        lines.append(line)
    frame = pd.DataFrame(lines)
    frame["threads"] = frame["threads"].astype("Int64")
    return frame


# ---- figures


def bars(lines: Rows, side: str) -> pd.DataFrame:
    """Return measured time and roof of the operators with the most time in a pass, and of all others together."""
    timed = [line for line in lines if line["pass_ms"]]
    groups = [(line["name"], [line]) for line in timed[:DRAWN]]
    if len(timed) > DRAWN:
        groups.append((f"{len(timed) - DRAWN} others", timed[DRAWN:]))
    found = []
    for name, some in groups:
        roofs = [line["roof_ms"] for line in some]
        known = sum(roofs) if all(one is not None for one in roofs) else None
        found.append({"operator": name, "arm": f"{side}, measured", "time_ms": sum(line["pass_ms"] for line in some)})
        found.append({"operator": name, "arm": "roof", "time_ms": known})
    return pd.DataFrame(found)


def draw(frame: pd.DataFrame, foot: str) -> Any:
    """Draw measured time and roof by operator as horizontal bars."""
    figure, ax = figures.canvas(0.9 + 0.42 * frame["operator"].nunique())
    plots.paired_bars(ax, frame, category="operator", arm="arm", value="time_ms", unit="ms", ratio_of=None)
    figures.footer(figure, f"each operator timed apart x its count · {foot}")
    return figure


def alt(lines: Rows) -> Text:
    """Say the longest operators in words."""
    return words.both("alt_shapes", values=shape_judges.said([line for line in lines if line["pass_ms"]][:5])["en"])


NAMES = (
    "square_size", "rate_tflop_s", "of_stated_pct", "launched", "library", "queued_us", "done_us", "shape_name",
    "times", "shape_sizes", "call_us", "pass_ms", "roof_ms", "roof_pct", "excess_ms", "set_by", "value_right", "method",
    "threads", "one_row_way", "once_ms", "read_gb_s", "ceiling_pct", "clock",
)  # fmt: skip
OTHER = {"roof_pct": "column_roof_pct", "clock": "column_clock", "read_gb_s": "column_read_gb_s"}
LABELS = {name: words.both(OTHER.get(name, f"column_06_{name}")) for name in NAMES}
