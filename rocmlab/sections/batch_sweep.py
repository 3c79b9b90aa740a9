"""05: does throughput grow with the batch, and until where?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import batch_judges, curve_judges, figures, plots, results, speedup, sweep, words
from rocmlab.findings import Finding, worst_first
from rocmlab.roof import Roof
from rocmlab.sections import Figure, Section, Table, Text, question
from rocmlab.sections.prefill_decode import footer, roof_of
from rocmlab.timing import Interval


def section(run: Path) -> Section:
    """Return the table of batches, throughput and step time as figures, the verdict and the findings of notebook 05."""
    rows, ended = results.rows(run, "batches"), results.rows(run, "batches_ended")
    if not rows and not ended:
        return Section("05", question("05"), missing=words.both("reason_no_records", notebook="05"))
    roof = roof_of(run, rows)
    found, verdict = judge(rows, roof, ended)
    made = Section("05", question("05"), findings=worst_first(found), how=words.both("how_05"))
    table = sweep.by_batch(rows, roof.gb_s)
    if table.empty:
        return made
    head = next((r for r in rows if r.get("model_spec")), {})
    made.provenance = [str(part) for part in (head.get("model_spec"), head.get("dtype")) if part]
    made.answers = {"slow": verdict} if verdict else {}
    shortest = min(one["context"] for one in sweep.items(rows))
    made.discarded = batch_judges.discarded(sweep.sweep(rows, shortest, roof.gb_s, roof.kind))
    said = "roof_measured_is" if roof.kind == "measured" else "roof_stated_is"
    notes = [words.both(said, roof=words.number(roof.gb_s)) if roof.gb_s else roof.reason]
    made.tables = [Table("by_batch", words.both("by_batch"), table, notes=notes, labels=LABELS)]
    foot = footer(run, rows, batch=None)
    drawn = lines(table, rows)
    if len(drawn):
        made.figures = [_figure("throughput", drawn, "decode_tok_s", foot), _figure("step", drawn, "step_ms", foot)]
    return made


def judge(rows: list[dict[str, Any]], roof: Roof, ended: list[dict[str, Any]]) -> tuple[list[Finding], Finding | None]:
    """Return (findings, the verdict): the sweep at the shortest context, what a second request costs, padding."""
    found = [*speedup.judge_processes(ended), *curve_judges.judge_conditions(rows)]
    contexts = sorted({one["context"] for one in sweep.items(rows)})
    if not contexts:
        return found, None
    records = [sweep.sweep(rows, context, roof.gb_s, roof.kind) for context in contexts]
    judged = batch_judges.judge(records[0])[1]
    later = [
        one
        for record in records[1:]
        for one in batch_judges.judge(record)[1]
        if one["code"] in ("BATCH_LIMIT", "BATCH_FAILED", "BATCH_NO_TIME")
    ]
    found += [*judged, *later]
    second = batch_judges.second_request(records[0])
    found += [second] if second else []
    found += (
        batch_judges.judge_scatter(rows, curve_judges.side(rows))
        + batch_judges.judge_padding(rows)
        + batch_judges.judge_first_pass(rows, curve_judges.side(rows))
        + batch_judges.judge_sensors(rows, curve_judges.side(rows))
    )
    return found, judged[0]


def lines(table: pd.DataFrame, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return step and throughput by batch with their bands, one line a context; padded batches are left out."""
    who, found = curve_judges.side(rows), []
    for line in table[~table["padded"].astype(bool)].to_dict("records"):
        point: dict[str, Any] = {"batch": line["batch"], "line": f"{who}, context {line['context_tokens']}"}
        for name in ("step_ms", "decode_tok_s"):
            value = line[name]
            if isinstance(value, Interval):
                point |= {name: value.median, f"{name}_low": value.low, f"{name}_high": value.high}
        if "step_ms" in point:
            found.append(point)
    return pd.DataFrame(found)


def _figure(name: str, drawn: pd.DataFrame, value: str, foot: str) -> Figure:
    def draw() -> Any:
        figure, ax = figures.canvas(3.4)
        plots.series(ax, drawn, x="batch", value=value, unit="", by="line", log_x=True)
        figures.footer(figure, foot)
        return figure

    return Figure(name, draw, alt(name, drawn, value), words.both(f"figure_batch_{name}"))


def alt(name: str, drawn: pd.DataFrame, value: str) -> Text:
    """Say the points in words."""
    unit = "ms" if value == "step_ms" else "tok/s"
    told = [f"{r['line']}, batch {r['batch']}: {words.number(r[value], unit)}" for r in drawn.to_dict("records")]
    return words.both(f"alt_batch_{name}", values="; ".join(told))


NAMES = (
    "context_tokens", "batch", "padded", "step_ms", "first_visit_ms", "times_batch_1", "first_prefill_ms",
    "decode_tok_s", "gb_s", "roof_pct", "peak_gib",
)  # fmt: skip
LABELS = {name: words.both(f"column_{name}") for name in NAMES}
