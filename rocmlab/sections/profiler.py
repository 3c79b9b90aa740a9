"""07: where does one decode step go, and when is the GPU idle?"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import figures, lane_plot, plots, profile_tables, results, sensor_judges, trace_judge, words
from rocmlab.findings import Finding, finding
from rocmlab.sections import Figure, Section, Table, Text, question, snapshot

HOST_BOUND_BUSY_PCT = 70.0  # of the clean step; methods: host-bound only if the device works at most this share
# The page shows the first table and folds the others.
ORDER = ("idle", "tpot", "libraries", "kernels", "waits", "steps", "operators", "probe", "rocprofv3")


def section(run: Path) -> Section:
    """Return the tables, the figures and the findings of notebook 07."""
    rows = results.rows(run, "profiler")
    made = Section("07", question("07"), how=words.both("how_07"))
    if not any(row["what"] == "steps" for row in rows):
        made.findings = ended(rows)
        none = words.both("reason_no_records", notebook="07")
        made.missing = None if made.findings else none
        made.absent = dict.fromkeys((*ORDER, "step"), none)
        return made
    made.findings = judge(rows) + judge_sensors(rows)
    first = next(row for row in rows if row["what"] == "steps")
    made.provenance = [str(first["model_spec"]), str(first["dtype"])]
    _add_arms(made, rows)
    trace = newest(rows, "trace")
    if trace:
        _add_trace(made, trace, newest(rows, "operators") or {}, footer(run, first))
    made.absent = _absent(first["device"], trace)
    made.tables.sort(key=lambda table: ORDER.index(table.name))
    for table in made.tables:
        table.labels = profile_tables.LABELS
    if trace and trace["metrics"]["verdict"] in ("HOST_BOUND", "DEVICE_BOUND", "DEVICE_GAPS", "MIXED"):
        clean = [one for one in made.findings if one["code"] == "HOST_BOUND_CLEAN"]
        made.answers = {"slow": (clean or trace_judge.judge(trace["metrics"])[1])[0]}
    return made


def newest(rows: list[dict[str, Any]], what: str) -> dict[str, Any] | None:
    return next((row for row in reversed(rows) if row["what"] == what), None)


# ---- judge


def judge(rows: list[dict[str, Any]]) -> list[Finding]:
    """Return what the trace says, what the profiler cost, and what follows for the step without it."""
    trace = newest(rows, "trace")
    found = ended(rows)
    if trace is None:
        return found
    on_cpu = trace["device"] == "cpu"
    found += _cpu_step(rows, trace) if on_cpu else trace_judge.judge(trace["metrics"])[1]
    return found + _cost(rows) + ([] if on_cpu else _at_clean_speed(rows, trace))


def judge_sensors(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say when the clean steps slowed down, or heat or memory stood in their way."""
    clean = [row for row in rows if row["what"] == "steps" and row.get("arm") == "clean"]
    gaps = [one for row in clean for one in row.get("itl_ms") or []]
    return sensor_judges.faults([row.get("sensor") for row in clean], gaps, "decode step")


def ended(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say of each child process that did not end well how it ended."""
    processes = [row for row in rows if row["what"] in ("probe", "process")]
    lost = [row for row in processes if row["status"] != "OK"]
    if not lost:
        return []
    numbers = {"ended": len(lost), "count": len(processes)}
    return [finding("PROCESS_ENDED", numbers=numbers, words=f"{lost[0]['status']}, {lost[0]['words']}")]


def _cost(rows: list[dict[str, Any]]) -> list[Finding]:
    clean, profiled = (profile_tables.steps_ms(rows, arm) for arm in ("clean", "profiled"))
    if not clean or not profiled:
        return []
    before, after = statistics.median(clean), statistics.median(profiled)
    numbers = {
        "clean_tpot_ms": round(before, 3),
        "profiled_tpot_ms": round(after, 3),
        "ratio": round(after / before, 3),
    }
    return [finding("PROFILER_COST", numbers=numbers)]


def _at_clean_speed(rows: list[dict[str, Any]], trace: dict[str, Any]) -> list[Finding]:
    """Relate the device time of a token, which the profiler hardly changes, to the step without the profiler."""
    busy = trace_judge.evidence(trace["metrics"])["device_busy_ms_a_token"]
    clean = profile_tables.steps_ms(rows, "clean")
    if busy is None or not clean:
        return []
    tpot = statistics.median(clean)
    numbers = {"device_busy_ms": busy, "clean_tpot_ms": round(tpot, 3), "busy_clean_pct": round(100 * busy / tpot, 1)}
    if trace["metrics"]["verdict"] != "HOST_BOUND" or numbers["busy_clean_pct"] >= HOST_BOUND_BUSY_PCT:
        return [finding("BUSY_AT_CLEAN_SPEED", numbers=numbers)]
    cause = trace["metrics"].get("cause")
    words_of = {"kernels": trace_judge.median_of_tokens(trace["metrics"], "kernels")}
    variant = cause if cause in ("DISPATCH", "LAUNCH") else None
    return [finding("HOST_BOUND_CLEAN", numbers=numbers, variant=variant, **words_of)]


def _cpu_step(rows: list[dict[str, Any]], trace: dict[str, Any]) -> list[Finding]:
    host = trace["metrics"].get("host_exclusive_pct", {})
    numbers = {"profiled_tpot_ms": round(statistics.median(profile_tables.steps_ms(rows, "profiled")), 3)}
    numbers |= {
        "operator_pct": host.get("aten"),
        "aten_ops_a_token": trace_judge.median_of_tokens(trace["metrics"], "aten_ops"),
    }
    return [finding("CPU_STEP", numbers=numbers)]


# ---- tables


def _add_arms(made: Section, rows: list[dict[str, Any]]) -> None:
    probe = newest(rows, "probe")
    if probe:
        made.tables.append(Table("probe", words.both("profiler_probe"), profile_tables.probe_table(probe)))
    made.tables.append(Table("tpot", words.both("profiler_tpot"), profile_tables.arms_table(rows)))
    outside = newest(rows, "rocprofv3")
    if outside and outside.get("top_kernels"):
        frame = profile_tables.kernels_table(outside["top_kernels"])
        made.tables.append(Table("rocprofv3", words.both("profiler_rocprofv3"), frame))


def _add_trace(made: Section, trace: dict[str, Any], operators: dict[str, Any], foot: str) -> None:
    metrics = trace["metrics"]
    made.tables.append(Table("steps", words.both("profiler_steps"), profile_tables.steps_table(metrics)))
    if metrics.get("idle_why_us") is not None:
        made.tables += [
            Table("idle", words.both("profiler_idle"), profile_tables.idle_table(metrics)),
            Table("libraries", words.both("profiler_libraries"), profile_tables.libraries_table(metrics)),
            Table("kernels", words.both("profiler_kernels"), profile_tables.kernels_table(metrics["top_kernels"])),
            Table("waits", words.both("profiler_waits"), profile_tables.waits_table(metrics)),
        ]
        made.figures.append(
            Figure("idle", lambda: draw_idle(metrics, foot), alt_idle(metrics), words.both("figure_idle"))
        )
    if operators.get("rows"):
        made.tables.append(Table("operators", words.both("profiler_operators"), pd.DataFrame(operators["rows"])))
    lanes = trace.get("lanes")
    if lanes:
        caption = words.both("figure_step", step=lanes["name"])
        made.figures.insert(0, Figure("step", lambda: draw_step(lanes, foot), alt_step(lanes), caption))


def _absent(device: str, trace: dict[str, Any] | None) -> dict[str, Text]:
    """Say why the parts that need device events, or a trace at all, may be absent."""
    key = "reason_no_trace" if trace is None else "reason_cpu_subject" if device == "cpu" else "reason_no_device_events"
    why = {name: words.both(key) for name in ("idle", "libraries", "kernels", "waits")}
    if trace is None:
        return why | {name: words.both("reason_no_trace") for name in ("steps", "operators", "step")}
    return why | {"step": words.both("reason_no_step")}


# ---- figures


def draw_step(lanes: dict[str, Any], foot: str) -> Any:
    figure = lane_plot.draw(lanes)
    figures.footer(figure, f"profiler on · {foot}")
    return figure


def alt_step(lanes: dict[str, Any]) -> Text:
    busy = sum(end - begin for begin, end, _ in lanes["device"])
    values = {"step": lanes["name"], "wall": words.number(lanes["wall_us"] / 1000, "ms")}
    values |= {"launches": len(lanes["launches"]), "kernels": len(lanes["device"])}
    return words.both("alt_step", busy=words.number(busy / 1000, "ms"), **values)


def draw_idle(metrics: dict[str, Any], foot: str) -> Any:
    """Draw busy time and idle time by cause as bars; causes under half a percent together."""
    rows = profile_tables.idle_table(metrics).to_dict("records")
    large = [
        {"part": words.pick(row["part"], "en"), "share_pct": row["share_pct"]}
        for row in rows
        if row["share_pct"] >= 0.5
    ]
    rest = sum(row["share_pct"] for row in rows) - sum(row["share_pct"] for row in large)
    frame = pd.DataFrame([*large, {"part": "idle: everything else", "share_pct": rest}]).assign(arm="GPU")
    figure, ax = figures.canvas(0.9 + 0.36 * len(frame))
    plots.paired_bars(ax, frame, category="part", arm="arm", value="share_pct", unit="%", ratio_of=None)
    figures.footer(figure, f"profiler on · {foot}")
    return figure


def alt_idle(metrics: dict[str, Any]) -> Text:
    rows = profile_tables.idle_table(metrics).to_dict("records")
    return {
        lang: words.word(
            "alt_idle",
            lang,
            values="; ".join(f"{words.pick(r['part'], lang)}: {words.number(r['share_pct'], '%')}" for r in rows),
        )
        for lang in words.LANGUAGES
    }


def footer(run: Path, row: dict[str, Any]) -> str:
    birth = results.birth(run)
    host = snapshot(run).get("host") or {}
    card = (birth.get("subject") or {}).get("name") or host.get("cpu") or "device unknown"
    notice = "CPU run, no GPU measured" if row["device"] == "cpu" else ""
    started = str(birth.get("started") or row.get("at") or "")
    return figures.footer_text(
        card=str(card),
        model=str(row["model_spec"]),
        dtype=row["dtype"],
        batch=1,
        n=row["steps"],
        date=started,
        notice=notice,
    )
