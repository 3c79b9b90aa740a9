"""04: how long is prefill, how long is one decoded token?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import ceiling, clock, curve_judges, curves, figures, plots, results, roof, words
from rocmlab.findings import worst_first
from rocmlab.roof import Roof
from rocmlab.sections import Figure, Section, Table, Text, question, snapshot
from rocmlab.timing import Interval


def section(run: Path) -> Section:
    """Return the tables by length and by visit, the fit, the ceiling, the figures and the findings of notebook 04."""
    rows, stamps = results.rows(run, "lengths"), results.rows(run, "stamps")
    bandwidth, peak = results.rows(run, "ceiling"), peak_of(run)
    ended = results.rows(run, "lengths_ended")
    if not rows and not ended and not bandwidth:
        return Section("04", question("04"), missing=words.both("reason_no_records", notebook="04"))
    limit = roof_of(run, rows)
    busy = [{"kind": "conditions", "others_cpu_pct": row.get("others_cpu_pct")} for row in bandwidth]
    found = curve_judges.judge(rows + busy, stamps, limit, ended) + roof.judge(bandwidth, peak)
    found += [one for record in results.rows(run, "clock")[-1:] for one in clock.judge(record)]
    made = Section("04", question("04"), findings=worst_first(found), how=words.both("how_04"))
    if not curves.steady(rows).empty:
        _add_lengths(made, rows, stamps, limit, footer(run, rows))
    if bandwidth:
        frame = bandwidth_table(bandwidth)
        made.tables.append(Table("bandwidth", words.both("bandwidth"), frame, labels=LABELS))
        foot = footer(run, rows or bandwidth, model=False)
        drawn = Figure(
            "bandwidth-figure",
            lambda: draw_bandwidth(frame, peak, foot),
            alt_bandwidth(frame),
            words.both("figure_bandwidth"),
        )
        made.figures.append(drawn)
    return made


def peak_of(run: Path) -> float | None:
    """Return the stated peak bandwidth of the run's subject in GB/s, None where none is known."""
    return roof.stated(snapshot(run), results.birth(run).get("subject") or {})


def roof_of(run: Path, rows: list[dict[str, Any]]) -> Roof:
    """Return what decode is compared with: the measured ceiling, else the stated peak, else nothing and why."""
    weights = next((r["weight_bytes"] for r in rows if r.get("weight_bytes")), None)
    return roof.roof(results.rows(run, "ceiling"), peak_of(run), weights)


def _add_lengths(
    made: Section, rows: list[dict[str, Any]], stamps: list[dict[str, Any]], limit: Roof, foot: str
) -> None:
    first = next(r for r in rows if r.get("kind") == "hand")
    made.provenance = [str(first["model_spec"]), str(first["dtype"])]
    by_length = curves.by_length(rows, limit.gb_s, limit.reason)
    made.tables = [
        Table("by_length", words.both("by_length"), by_length, labels=LABELS),
        Table("by_first_visit", words.both("by_first_visit"), curves.by_visit(rows), labels=LABELS),
        Table("by_way", words.both("by_way"), curves.by_way(rows), labels=LABELS),
        Table("by_process_04", words.both("by_process_04"), curves.by_process(rows), labels=LABELS),
    ]
    if stamps:
        made.tables.insert(3, Table("stamp_costs", words.both("stamp_costs"), stamp_table(stamps), labels=LABELS))
    tokens, filled = context_lines(rows, limit), prefill_lines(rows, by_length)
    made.figures = [
        Figure("tpot", lambda: draw_tpot(tokens, foot), alt_lines(tokens), words.both("figure_tpot")),
        Figure("prefill", lambda: draw_prefill(filled, foot), alt_prefill(by_length), words.both("figure_prefill")),
        Figure("itl", lambda: draw_gaps(rows, foot), alt_gaps(by_length), words.both("figure_itl")),
    ]


def stamp_table(stamps: list[dict[str, Any]]) -> pd.DataFrame:
    """Return what a stamp costs, with the cases written out."""
    frame = curves.stamp_costs(stamps)
    return frame.assign(case=frame["case"].map(lambda case: words.both(f"case_{case}")))


def bandwidth_table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return copy and read rate by size, with the clock that timed them; a size that did not fit has its reason."""
    lines = []
    for size in dict.fromkeys(r["bytes"] for r in rows if r.get("way") in ("copy", "read")):
        mine = {r["way"]: r for r in rows if r.get("bytes") == size and r.get("way") in ("copy", "read")}
        line: dict[str, Any] = {"size_mib": size // ceiling.MIB}
        for way, row in mine.items():
            good, _, _ = clock.kept(row.get("samples_ms") or [])
            line[f"{way}_gb_s"] = curves.interval([size / ms / 1e6 for ms in good])
            line[f"{way}_gb_s_reason"] = row.get("error")
        lines.append(line | {"clock": next(iter(mine.values())).get("clock")})
    return pd.DataFrame(lines)


# ---- figures


def _who(rows: list[dict[str, Any]]) -> str:
    return curve_judges.side(rows)


def _point(x_name: str, x: float, name: str, y_name: str, value: Interval | float | None) -> dict[str, Any]:
    """One point of a line: an interval brings its band along."""
    if isinstance(value, Interval):
        return {x_name: x, "line": name, y_name: value.median, f"{y_name}_low": value.low, f"{y_name}_high": value.high}
    return {x_name: x, "line": name, y_name: value}


def context_lines(rows: list[dict[str, Any]], limit: Roof) -> pd.DataFrame:
    """Return TPOT over the context as measured, by the fit, and the floor that memory bandwidth sets."""
    frame, found = curves.steady(rows), []
    fit, who = curves.line(frame), _who(rows)
    head = next(r for r in rows if r.get("kind") == "hand")
    for context, group in frame.groupby("context"):
        x = float(context)  # type: ignore[arg-type]
        found.append(_point("context", x, f"{who}, measured", "tpot_ms", curves.interval(group["tpot_ms"])))
        if fit and fit.residual_pct <= curve_judges.CURVED_PCT:
            found.append(_point("context", x, "fit a + b x context", "tpot_ms", fit.a_ms + fit.b_us * x / 1000))
        moved = curves.bytes_a_token(head, x)
        if limit.gb_s and moved:
            found.append(_point("context", x, "memory floor", "tpot_ms", moved / limit.gb_s / 1e6))
    return pd.DataFrame(found)


def draw_tpot(frame: pd.DataFrame, foot: str) -> Any:
    """Draw TPOT over the context."""
    figure, ax = figures.canvas(3.4)
    plots.series(ax, frame, x="context", value="tpot_ms", unit="", x_unit="tokens", by="line")
    figures.footer(figure, foot)
    return figure


def prefill_lines(rows: list[dict[str, Any]], table: pd.DataFrame) -> pd.DataFrame:
    """Return steady prefill and the time to the first token at the first visit, by prompt length."""
    found = []
    for line in table.to_dict("records"):
        if isinstance(line["prefill_ms"], Interval):
            found.append(
                _point("prompt", line["length_tokens"], f"{_who(rows)}, prefill", "time_ms", line["prefill_ms"])
            )
    for line in curves.by_visit(rows).to_dict("records"):
        found.append(_point("prompt", line["length_tokens"], "TTFT, first visit", "time_ms", line["ttft_first_ms"]))
    return pd.DataFrame(found)


def draw_prefill(frame: pd.DataFrame, foot: str) -> Any:
    """Draw prefill and the first visit's TTFT over the prompt's length."""
    figure, ax = figures.canvas(3.4)
    plots.series(ax, frame, x="prompt", value="time_ms", unit="", x_unit="tokens", by="line", log_x=True)
    figures.footer(figure, foot)
    return figure


def draw_gaps(rows: list[dict[str, Any]], foot: str) -> Any:
    """Draw every gap between tokens, by prompt length, in the order of measurement."""
    lengths = sorted({r["length"] for r in rows if r.get("kind") == "hand" and r.get("visit") == "steady"})
    every = [
        {"prompt": f"{length} tokens", "itl_ms": gap} for length in lengths for gap in curves.gaps_ms(rows, length)
    ]
    figure, ax = figures.canvas(3.2)
    plots.strip(ax, pd.DataFrame(every), category="prompt", value="itl_ms", unit="", arm=_who(rows))
    figures.footer(figure, f"every gap between tokens, steady · {foot}")
    return figure


def draw_bandwidth(table: pd.DataFrame, peak: float | None, foot: str) -> Any:
    """Draw copy and read rate over the size, and the stated peak where one is known."""
    found = []
    for line in table.to_dict("records"):
        for way in ("copy", "read"):
            if isinstance(line.get(f"{way}_gb_s"), Interval):
                found.append(_point("size_mib", line["size_mib"], way, "rate_gb_s", line[f"{way}_gb_s"]))
    figure, ax = figures.canvas(3.4)
    plots.series(ax, pd.DataFrame(found), x="size_mib", value="rate_gb_s", unit="", by="line", log_x=True)
    if peak:
        plots.ceiling(ax, peak, "stated peak")
    figures.footer(figure, foot)
    return figure


# ---- words around them


def _told(frame: pd.DataFrame, value: str, unit: str, name: str) -> str:
    parts = [(line[name], line[value]) for line in frame.to_dict("records")]
    return "; ".join(f"{key}: {words.number(v.median if isinstance(v, Interval) else v, unit)}" for key, v in parts)


def alt_lines(frame: pd.DataFrame) -> Text:
    """Say the measured line in words."""
    mine = frame[frame["line"].str.contains("measured")]
    return words.both("alt_tpot", values=_told(mine, "tpot_ms", "ms", "context"))


def alt_prefill(table: pd.DataFrame) -> Text:
    """Say prefill by length in words."""
    return words.both("alt_prefill", values=_told(table, "prefill_ms", "ms", "length_tokens"))


def alt_gaps(table: pd.DataFrame) -> Text:
    """Say median and 99th percentile of the gaps in words."""
    told = [_told(table, f"itl_p{p}_ms", "ms", "length_tokens") for p in (50, 99)]
    return words.both("alt_itl", median=told[0], p99=told[1])


def alt_bandwidth(table: pd.DataFrame) -> Text:
    """Say the read rate by size in words."""
    return words.both("alt_bandwidth", values=_told(table, "read_gb_s", "GB/s", "size_mib"))


def footer(run: Path, rows: list[dict[str, Any]], model: bool = True, batch: int | None = 1) -> str:
    """Return what travels with every picture: card, model, dtype, batch, n, date; a notice on a CPU run."""
    birth, host = results.birth(run), snapshot(run).get("host") or {}
    subject, asked = birth.get("subject") or {}, birth.get("asked")
    head: dict[str, Any] = next((r for r in rows if r.get("device")), {})
    on_cpu = head.get("device") == "cpu"
    notice = "CPU run, no GPU measured" if on_cpu else ""
    if on_cpu and asked not in (None, "auto", "cpu"):
        notice = f"CPU run, {asked} was asked for and is not here"
    card = str(subject.get("name") or host.get("cpu") or "device unknown")
    if not model:
        return figures.footer_text(card=card, date=str(birth.get("started") or ""), notice=notice)
    n = max((len(g) for _, g in curves.steady(rows).groupby("length")), default=0) if batch else 0
    return figures.footer_text(
        card=card, model=str(head.get("model_spec") or ""), dtype=str(head.get("dtype") or ""), batch=batch, n=n,
        date=str(birth.get("started") or ""), notice=notice,
    )  # fmt: skip


NAMES = (
    "length_tokens", "way", "case", "bound_by", "stamped_ms", "unstamped_ms", "injected_ms", "cost_pct", "process",
    "ttft_first_ms", "ttft_second_ms", "ttft_steady_ms", "itl_first_ms", "itl_second_ms", "itl_steady_ms",
    "itl_first_most_ms",
    "size_mib", "copy_gb_s", "read_gb_s", "clock", "gb_s", "itl_p50_ms", "itl_p90_ms", "itl_p99_ms",
)  # fmt: skip
LABELS = {name: words.both(f"column_{name}") for name in NAMES}
