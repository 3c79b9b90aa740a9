"""02: which operators run on the GPU and agree with the CPU?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rocmlab import (
    ceiling,
    evidence,
    figures,
    gemm_judges,
    operator_judges,
    operator_study,
    opinfo,
    results,
    sensor_judges,
    words,
)
from rocmlab import operator_tables as tables
from rocmlab.evidence import Row
from rocmlab.sections import Figure, Section, Table, Text, question, snapshot

COLOURS = {"yes": "#0072B2", "no": "#D55E00", "unknown": "#E5B567", "na": "#E3E7EC"}  # Okabe and Ito, and two greys
STATE_NAMES = {"yes": "proved", "no": "refuted", "unknown": "unknown", "na": "does not apply"}


def section(run: Path) -> Section:
    """Return matrix, ladder, failures and findings of notebook 02, from the newest state of its records."""
    rows, before = operator_study.merged(operator_study.attempts(run))
    if not rows:
        return Section("02", question("02"), missing=words.both("reason_no_records", notebook="02"))
    found = operator_judges.judge(rows, before)
    found += sensor_judges.faults([row.get("sensor") for row in rows], op="operators")
    made = Section("02", question("02"), findings=found, how=words.both("how_02"))
    own = [row for row in rows if row["set"] != opinfo.SET] or rows
    hip = bool(snapshot(run).get("torch_version_hip"))
    ceilings = _ceilings(run, rows)
    frames = {
        "matrix": tables.matrix(rows),
        "levels": tables.level(own),
        "failed": tables.failed(rows, hip=hip),
        "changed": tables.changed(rows, before),
        "first": tables.first(rows),
        "speed": tables.speed(rows),
        "slow": tables.slow(rows),
        "rates": tables.rate(rows, ceilings),
        "libraries": tables.library(rows),
        "warnings": tables.warning(rows),
        "untried": tables.untried(rows),
    }
    made.tables = [
        Table(f"{name}-table", words.both(f"operators_{name}"), frame, labels=LABELS)
        for name, frame in frames.items()
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
    """Return the measured bandwidth of this device as gb_s and its best products as <dtype>_tflops, where this run has
    them."""
    found: dict[str, float] = {}
    device = rows[0].get("device_asked")
    best = ceiling.bandwidth([one for one in results.rows(run, "ceiling") if one.get("device") == device])
    if best:
        found["gb_s"] = best.gb_s
    products = [row for row in results.rows(run, "gemm_rate") if row.get("device") == device]
    exact = [row for row in products if not (row.get("tf32") and row.get("dtype") == "float32")]
    rates = {str(row.get("dtype")): gemm_judges.rate_tflops(exact, str(row.get("dtype"))) for row in exact}
    return found | {f"{dtype}_tflops": rate for dtype, rate in rates.items() if rate}


# ---- figure


@figures.styled
def draw_levels(rows: list[Row], foot: str) -> Any:
    """Draw one stacked bar a step of the ladder; each part carries its count where it is wide enough."""
    counts = evidence.histogram(rows)
    figure, ax = figures.canvas(3.6)
    labels = [words.word(f"level_{level}", "en") for level in evidence.LEVELS]
    for place, level in enumerate(evidence.LEVELS):
        left = 0
        for state in evidence.STATES:
            width = counts[level][state]
            ax.barh(place, width, left=left, height=0.68, color=COLOURS[state], edgecolor="white", linewidth=0.6)
            if width > 0.06 * len(rows):
                dark = state in ("yes", "no")
                ax.text(left + width / 2, place, str(width), ha="center", va="center", fontsize=8.5,
                        color="white" if dark else figures.INK)  # fmt: skip
            left += width
    ax.set_yticks(range(len(labels)), labels)
    ax.invert_yaxis()
    ax.set_xlim(0, len(rows))
    ax.set_xlabel("operator and dtype pairs")
    ax.grid(False)
    handles = [ax.barh(0, 0, color=COLOURS[state]) for state in evidence.STATES]
    columns = 2 if figures.is_narrow() else 4
    ax.legend(handles, [STATE_NAMES[s] for s in evidence.STATES], loc="lower center", bbox_to_anchor=(0.5, 1.0),
              ncols=columns, frameon=False, fontsize=8.5, handlelength=1.0, columnspacing=1.0)  # fmt: skip
    figures.footer(figure, foot)
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
    return figures.footer_text(
        card=str(card), dtype=dtypes, n=len(rows), date=str(birth.get("started") or ""),
        notice="CPU run, no GPU measured" if on_cpu else "",
    )  # fmt: skip


NAMES = (
    "family", "operator", "verdict", "said", "known", "next", "level", "yes", "no", "unknown", "na", "first_ms",
    "steady_ms", "device_ms", "cpu_ms", "device_over_cpu_ratio", "compared", "faster", "before", "now", "warning",
    "operators", "count", "why", "library", "roof_pct", "shapes",
)  # fmt: skip
LABELS = {name: words.both(f"column_{name}") for name in NAMES}
