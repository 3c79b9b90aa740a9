"""10: how does it do on ResNet-50 training, BERT-base and VGG16?"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import (
    curve_judges,
    figures,
    loading_judges,
    plots,
    results,
    sensor_judges,
    steadiness,
    vision_judges,
    vision_tables,
    words,
)  # fmt: skip
from rocmlab.findings import Finding, worst_first
from rocmlab.sections import Figure, Section, Table, Text, question
from rocmlab.sections.prefill_decode import footer, roof_of
from rocmlab.timing import Interval

CURVES = {"sclk_mhz": 1.0, "power_w": 1.0, "temp_c": 1.0, "use_percent": 1.0}
READ = {**CURVES, "memory_used_bytes": 2**30, "spilled_bytes": 2**30}
ENDED = ("vision_ended", "loading_ended", "opencv_ended")


def section(run: Path) -> Section:
    """Return tables of networks, claims, loader, copies, OpenCV and sensors, both figures and the findings of 10."""
    rows = {name: results.rows(run, name) for name in
            ("vision", "loader", "transfers", "opencv", "sensors", "sensor_cost", *ENDED)}  # fmt: skip
    if not any(rows.values()):
        return Section("10", question("10"), missing=words.both("reason_no_records", notebook="10"))
    gemms, gb_s = roofs(run, rows["vision"])
    made = Section("10", question("10"), how=words.both("how_10"))
    made.findings = worst_first(judge(run, rows, gemms, gb_s))
    if vision_tables.arms(rows["vision"]):
        _add_networks(made, run, rows["vision"], gemms, gb_s)
    _add_rest(made, run, rows)
    return made


def roofs(run: Path, rows: list[dict[str, Any]]) -> tuple[dict[str, float], float | None]:
    """Return FLOP/s of products by dtype and GB/s of the memory, as this run measured them on the same device."""
    device = next((row["device"] for row in rows if row.get("device")), None)
    same = [row for row in results.rows(run, "ceiling") if row.get("device") == device]
    limit = roof_of(run, []) if same else None
    return vision_tables.gemm_rates(results.rows(run, "gemm_rate"), device), limit.gb_s if limit else None


def judge(
    run: Path, rows: dict[str, list[dict[str, Any]]], gemms: dict[str, float], gb_s: float | None
) -> list[Finding]:
    """Return every finding of notebook 10."""
    found = [*steadiness.judge_processes([one for name in ENDED for one in rows[name]])]
    found += vision_judges.judge(rows["vision"], gemms, gb_s)
    found += judge_sensors(rows["vision"], rows["sensors"])
    cost = [one for one in rows["sensors"] if one.get("phase") == "cost"]
    found += sensor_judges.judge_cost(rows["sensor_cost"], cost)
    return found + loading_judges.judge(rows["loader"], rows["transfers"], rows["opencv"], fastest(rows["vision"]))


def judge_sensors(vision: list[dict[str, Any]], sensors: list[dict[str, Any]]) -> list[Finding]:
    """Judge the stretch of training that ran under the sampler."""
    mine = [row for row in sensors if row.get("phase") == "sustained"]
    stretch = [row for row in vision if row.get("kind") == "sustained"]
    calls = stretch[-1]["calls_ms"] if stretch else []
    op = f"ResNet-50 ({stretch[-1]['arm']})" if stretch else "ResNet-50"
    return sensor_judges.judge(mine, calls, op)


def fastest(rows: list[dict[str, Any]]) -> float | None:
    """Return images a second of the fastest ResNet-50 training arm."""
    rates = [vision_tables.rate(rows, model, arm) for model, arm in vision_tables.arms(rows) if model == "resnet50"]
    return max((one.median for one in rates if one), default=None)


def _add_networks(
    made: Section, run: Path, rows: list[dict[str, Any]], gemms: dict[str, float], gb_s: float | None
) -> None:
    head = next(row for row in rows if row.get("kind") in ("first", "failed"))
    length = next((r["length_tokens"] for r in rows if r.get("length_tokens")), "–")
    asked = {"batch": head.get("asked_batch"), "image": head.get("image_px"), "length": length}
    table = vision_tables.by_arm(rows, gemms, gb_s)
    made.provenance = ["ResNet-50, BERT-base, VGG16" if head.get("size") == "full" else "tiny networks"]
    made.tables = [
        Table("vision_claims", words.both("vision_claims"), vision_tables.beside_claims(rows), labels=LABELS),
        Table("vision_arms", words.both("vision_arms", **asked), table, labels=LABELS),
    ]
    drawn, foot = vision_tables.bars(rows, curve_judges.side(rows)), _foot(run, rows)
    made.figures.append(
        Figure("vision_bars", lambda: draw_bars(drawn, foot), alt_bars(drawn), words.both("vision_bars"))
    )


def _foot(run: Path, rows: list[dict[str, Any]]) -> str:
    said = footer(run, rows, model=False)
    head = next((row for row in rows if row.get("batch")), {})
    return f"{said} · batch {head.get('batch')}, {head.get('image_px')} px · claims: an article, no samples"


def _add_rest(made: Section, run: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    if rows["loader"]:
        frame = vision_tables.by_workers(rows["loader"])
        made.tables.append(Table("vision_loader", words.both("vision_loader"), frame, labels=LABELS))
    if rows["transfers"]:
        frame = vision_tables.by_transfer(rows["transfers"])
        made.tables.append(Table("vision_transfers", words.both("vision_transfers"), frame, labels=LABELS))
    elif rows["loader"]:
        made.absent["vision_transfers"] = words.both("vision_cpu_no_copy")
    if rows["opencv"] and not any(row.get("installed") is False for row in rows["opencv"]):
        frame = pd.DataFrame(loading_judges.opencv_table(rows["opencv"]))
        made.tables.append(Table("vision_opencv", words.both("vision_opencv"), frame, labels=LABELS))
    mine = [row for row in rows["sensors"] if row.get("phase") == "sustained"]
    between = [row["sensor"] for row in rows["vision"] if isinstance(row.get("sensor"), dict)]
    if mine or between:
        frame = sensor_table(mine + between)
        made.tables.append(Table("vision_sensors", words.both("vision_sensors"), frame, labels=LABELS))
    points = curve(mine)
    if len(points):
        foot = footer(run, rows["vision"] or mine, model=False)
        made.figures.append(
            Figure("vision_curve", lambda: draw_curve(points, foot), alt_curve(points), words.both("vision_curve"))
        )
    else:
        made.absent["vision_curve"] = words.both("vision_no_curve")


# ---- sensors


def sensor_table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one line a field: source, how many readings, lowest, median, highest; null with the source's reason."""
    lines = []
    for key, scale in READ.items():
        known = [value / scale for value in sensor_judges.values(rows, key)]
        name = key.replace("_bytes", "_gib")
        line: dict[str, Any] = {"sensor": words.both(f"sensor_{name}"), "readings": len(known)}
        line["sensor_source"] = next((row["source"] for row in rows if row.get("source")), None)
        why = next((row.get(f"{key}_reason") for row in rows if row.get(f"{key}_reason")), None)
        ways = {"lowest": min, "median_reading": statistics.median, "highest": max}
        for column, way in ways.items():
            line[column] = way(known) if known else None  # type: ignore[operator]
            line[f"{column}_reason"] = why
        lines.append(line)
    return pd.DataFrame(lines)


def curve(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return time_s, line, of_highest_pct, highest (with its unit) of the first three fields of CURVES it holds."""
    found: list[dict[str, Any]] = []
    for key in CURVES:
        known = [(row["t_s"] - rows[0]["t_s"], row[key]) for row in rows if sensor_judges.values([row], key)]
        top = max((value for _, value in known), default=0)
        if len(known) < 2 or top <= 0 or len({one["line"] for one in found}) == 3:
            continue
        name, _, unit = words.word(f"sensor_{key}", "en").partition(", ")
        facts = {"line": name, "highest": words.number(float(top), unit)}
        found += [{"time_s": at, "of_highest_pct": 100 * value / top, **facts} for at, value in known]
    return pd.DataFrame(found)


def highest(points: pd.DataFrame) -> str:
    """Say what 100% of each line is."""
    return "100%: " + ", ".join(f"{name} {group['highest'].iloc[0]}" for name, group in points.groupby("line"))


def draw_curve(points: pd.DataFrame, foot: str) -> Any:
    """Draw each sensor as a share of its highest reading, over time."""
    figure, ax = figures.canvas(3.4)
    plots.series(ax, points, x="time_s", value="of_highest_pct", unit="", by="line")
    figures.footer(figure, f"{highest(points)} · {foot}")
    return figure


def alt_curve(points: pd.DataFrame) -> Text:
    """Say the lowest share of each sensor in words."""
    told = [
        f"{name}, lowest {words.number(float(group['of_highest_pct'].min()), '%')}"
        for name, group in points.groupby("line")
    ]
    values = f"{highest(points)}; {'; '.join(told)}"
    return words.both("alt_vision_curve", seconds=f"{points['time_s'].max():.0f}", values=values)


# ---- bars


def draw_bars(frame: pd.DataFrame, foot: str) -> Any:
    """Draw what was measured beside what is claimed, network by network."""
    figure, ax = figures.canvas(4.6)
    plots.paired_bars(ax, frame, category="network", arm="who", value="items_a_second", unit="", ratio_of=None)
    figures.footer(figure, foot)
    return figure


def alt_bars(frame: pd.DataFrame) -> Text:
    """Say the bars in words."""
    told = [
        f"{r['network']}, {r['who']}: {words.number(_plain(r['items_a_second']))}" for r in frame.to_dict("records")
    ]
    return words.both("alt_vision_bars", values="; ".join(told))


def _plain(value: Any) -> float | None:
    if isinstance(value, Interval):
        return value.median
    return None if value is None or value != value else float(value)


NAMES = (
    "network", "network_arm", "batch", "first_run_ms", "step_ms", "items_a_second", "arithmetic_pct", "memory_pct",
    "peak_gib", "error", "quantity", "here", "claimed_amd", "claimed_nvidia", "amd_ratio", "nvidia_ratio", "workers",
    "batch_ms", "images_a_second", "loader_start_ms", "size_mib", "pageable_gb_s", "pinned_gb_s", "pinned_ratio",
    "asked_for", "opencl_device", "opencl_kind", "mat_ms", "umat_ms", "umat_copied_ms", "umat_first_ms", "levels_apart",
    "sensor", "sensor_source", "readings", "lowest", "median_reading", "highest",
)  # fmt: skip
LABELS = {name: words.both(f"column_{name}") for name in NAMES}
