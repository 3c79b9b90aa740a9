"""09: what does the missing fast attention path cost, by length?"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import (
    attention_frames,
    attention_judges,
    attention_known,
    attention_tables,
    curves,
    figures,
    gpus,
    plots,
    results,
    roof,
    sensor_judges,
    words,
)  # fmt: skip
from rocmlab.attention_tables import FORCED, Row
from rocmlab.sections import Figure, Section, Table, Text, question, snapshot
from rocmlab.sections.prefill_decode import footer, peak_of

PHASES = ("decode", "prefill")


def section(run: Path) -> Section:
    """Return what each path costs and says, what charges first visits, two figures and the findings of notebook 09."""
    rows, ended = results.rows(run, "attention"), results.rows(run, "attention_ended")
    if not rows and not ended:
        return Section("09", question("09"), missing=words.both("reason_no_records", notebook="09"))
    head, arch = attention_tables.head_of(rows), target(run)
    wholes, limit = wholes_of(run, head), roof.roof(results.rows(run, "ceiling"), peak_of(run))
    asked: dict[str, Any] = {"step_ms": wholes["decode"], "prefill_ms": wholes["prefill"], "ceiling_gb_s": limit.gb_s}
    found = attention_judges.judge(rows, ended=ended, arch=arch, **asked)
    found += sensor_judges.faults([row.get("sensor") for row in rows], op="attention")
    made = Section("09", question("09"), findings=found, how=words.both("how_09"))
    if not head:
        return made
    made.discarded = [one for one in found if one["code"] == "FUSED_WORTH_LITTLE"]
    made.provenance = [str(head["model_spec"]), str(head["dtype"])]
    _add_tables(made, rows, head, arch, wholes, limit.gb_s)
    foot = footer(run, attention_tables.own(rows))
    for phase in PHASES:
        drawn = lines(rows, phase)
        if len(drawn):
            made.figures.append(_figure(phase, drawn, f"n = {_count(rows)} · {foot}"))
    return made


def target(run: Path) -> str | None:
    """Return the subject's own target (gfx1032, sm_90), whatever an override makes it report; "the CPU" for a CPU."""
    probe, subject = gpus.tidy(snapshot(run)), results.birth(run).get("subject") or {}
    if subject.get("device") == "cpu":
        return "the CPU"
    mine = [one for one in probe["devices"] if one["index"] == subject.get("index")]
    return (gpus.real_arch(probe, mine[0]) if mine else None) or subject.get("arch")


def wholes_of(run: Path, head: Row) -> dict[str, dict[int, float]]:
    """Return {decode: {length: ms of a step}, prefill: {length: ms}} that this run measured with the same model."""
    same = ("device", "dtype", "model_spec")
    rows = [row for row in results.rows(run, "lengths") if all(row.get(key) == head.get(key) for key in same)]
    found: dict[str, dict[int, float]] = {phase: {} for phase in PHASES}
    for line in curves.by_length(rows, None).to_dict("records"):
        for phase, name in (("decode", "tpot_ms"), ("prefill", "prefill_ms")):
            if line[name] is not None:
                found[phase][line["length_tokens"]] = line[name].median
    for row in results.rows(run, "step"):
        told = row.get("quantity") == "T" and row.get("samples_ms") and all(row.get(k) == head.get(k) for k in same)
        if told and row.get("context") and row.get("batch") in (None, 1):
            found["decode"].setdefault(int(row["context"]), statistics.median(row["samples_ms"]))
    return found


def _add_tables(
    made: Section, rows: list[Row], head: Row, arch: str | None, wholes: dict[str, dict[int, float]],
    ceiling_gb_s: float | None,
) -> None:  # fmt: skip
    costs = [one for phase in PHASES for one in attention_tables.costs(rows, phase, wholes[phase], ceiling_gb_s)]
    bound = all(one["at_most"] for one in costs)
    caption = words.both("attention_cost_bound" if bound else "attention_cost")
    every = {
        "attention_cost": (attention_frames.cost_table(costs), caption),
        "attention_visits": (visits_table(rows), words.both("attention_visits")),
        "attention_paths": (attention_frames.paths_table(rows), words.both("attention_paths")),
        "attention_times": (attention_frames.times_table(rows), words.both("attention_times")),
        "attention_settings": (attention_frames.settings_table(rows), words.both("attention_settings")),
        "attention_possible": (possible_table(rows, head, arch), words.both("attention_possible")),
    }
    made.tables = [Table(name, said, frame, labels=LABELS) for name, (frame, said) in every.items() if len(frame)]


def visits_table(rows: list[Row]) -> pd.DataFrame:
    """Return first and second visits of new lengths by path, ms a decode step."""
    kept = {"backend": "backend", "attention_cold_ms": "attention_cold_ms", "first_pass_ms": "attention_first_ms"}
    kept |= {"second_pass_ms": "attention_second_ms", "charge_ms": "attention_charge_ms"}
    found = attention_tables.visits(rows)
    return pd.DataFrame([{new: line[old] for old, new in kept.items()} for line in found], columns=list(kept.values()))


def possible_table(rows: list[Row], head: Row, arch: str | None) -> pd.DataFrame:
    """Return which paths can exist on this device, and which ran."""
    ran = {row["backend"] for row in attention_tables.own(rows) if row["status"] == "OK"}
    found = []
    for name, (can, why) in attention_known.possible(head["device"], arch).items():
        here = None if name not in FORCED else name in ran
        line: dict[str, Any] = {"backend": name, "attention_can": can, "attention_here": here}
        found.append(line | {"attention_here_reason": None if here is not None else why, "attention_why": why})
    return pd.DataFrame(found)


# ---- figures


def lines(rows: list[Row], phase: str) -> pd.DataFrame:
    """Return attention of a whole step or prefill, all layers, by length and path; the default's path is marked."""
    cases = attention_tables.usual(attention_tables.own(rows), phase)
    default = {attention_tables.path(row, rows, cases)["path"] for row in cases if row["backend"] == "default"}
    always = default.pop() if len(default) == 1 else None
    who = "CPU" if cases and cases[0]["device"] == "cpu" else "GPU"
    found: list[dict[str, Any]] = []
    for row in cases:
        mine = row["backend"] == always or (always is None and row["backend"] == "default")
        if row["status"] != "OK" or (row["backend"] not in FORCED and not mine):
            continue
        value = curves.interval(ms * row["layers"] for ms in attention_tables.call_samples(row))
        name = f"{who}, {row['backend']}{' (default)' if row['backend'] == always else ''}" if mine else row["backend"]
        if value:
            point = {"length": row["length"], "line": name, "attention_ms": value.median}
            found.append(point | {"attention_ms_low": value.low, "attention_ms_high": value.high})
    found.sort(key=lambda one: (one["line"], one["length"]))
    return pd.DataFrame(found)


def _count(rows: list[Row]) -> int:
    return max((len(row.get("samples_ms") or []) for row in attention_tables.own(rows)), default=0)


def _figure(phase: str, drawn: pd.DataFrame, foot: str) -> Figure:
    def draw() -> Any:
        figure, ax = figures.canvas(3.4)
        plots.series(ax, drawn, x="length", value="attention_ms", unit="", x_unit="tokens", by="line", log_x=True)
        figures.footer(figure, foot)
        return figure

    return Figure(f"attention_{phase}", draw, alt(drawn), words.both(f"attention_figure_{phase}"))


def alt(drawn: pd.DataFrame) -> Text:
    """Say the points in words."""
    told = [f"{r['line']} at {r['length']}: {words.number(r['attention_ms'], 'ms')}" for r in drawn.to_dict("records")]
    return words.both("attention_alt", values="; ".join(told))


OWN = ("device_ms", "host_us", "wall_us", "cold_ms", "first_ms", "second_ms", "charge_ms", "kv", "call_ms", "said",
       "can", "here", "why")  # fmt: skip
PLAIN = ("default", "math_ms", "fused", "gap_ms", "whole_ms", "share_pct", "runs",
         "tolerance_pct", "ops", "mask")  # fmt: skip
LABELS = (
    {name: words.both(f"column_{name}") for name in ("phase", "backend", "grade", "method")}
    | {f"attention_{name}": words.both(f"column_attention_{name}") for name in OWN}
    | {name: words.both(f"column_attention_{name}") for name in PLAIN}
    | {"length_tokens": words.both("column_attention_length")}
)
