"""08: which library and kernel really did the work?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import backend_judges, backends, figures, plots, results, words
from rocmlab.sections import Figure, Section, Table, Text, question, snapshot

NEEDS = "model needs"


def section(run: Path) -> Section:
    """Return the table of operators, the counts of products, what each log held, and the findings of notebook 08."""
    runs, calls = results.rows(run, "library_runs"), results.rows(run, "library_calls")
    if not runs:
        return Section("08", question("08"), missing=words.both("reason_no_records", notebook="08"))
    made = Section("08", question("08"), findings=backend_judges.judge(runs, calls), how=words.both("how_08"))
    made.tables = [Table("logs", words.both("logs_taken"), log_table(runs), labels=LABELS)]
    done = backends.work(runs)
    if done is None:
        return made
    operators = pd.DataFrame(backends.grouped(backends.table(runs, calls)))
    for column, why in (("library", "untold"), ("calls_a_step", "untold"), ("kernel", "no_kernel_named")):
        operators[f"{column}_reason"] = pd.Series([words.both(why)] * len(operators))
    counts = pd.DataFrame(backends.counts(runs, calls))
    if counts["attention_gemms"].isna().all():  # attention was no product of its own anywhere
        counts = counts.drop(columns="attention_gemms")
    for frame, column in ((operators, "calls_a_step"), (counts, "attention_gemms")):
        if column in frame:
            frame[column] = frame[column].astype("Int64")  # counts stay whole beside gaps
    made.tables[:0] = [
        Table("operators", words.both("operators_served"), operators, notes(operators), LABELS),
        Table("products", words.both("products_counted"), counts, labels=LABELS),
    ]
    launched = backends.launches(runs)
    if launched:
        made.tables.append(Table("launches", words.both("launches_counted"), pd.DataFrame(launched), labels=LABELS))
    foot = footer(run, done)
    made.figures = [
        Figure("products-figure", lambda: draw(counts, foot), alt(counts), words.both("figure_products")),
    ]
    return made


def notes(operators: pd.DataFrame) -> list[Text]:
    """Explain the words that stand for a kernel in this table, and only those."""
    kernels = " ".join(operators["kernel"].dropna())
    return [words.both(f"note_{word}") for word in ("algo", "engine") if f"{word} " in kernels]


def log_table(runs: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one row a child: which log, how it ended, its lines, and how much the log slowed a decode step down."""
    rows = []
    for run in runs:
        numbers = run.get("numbers") or {}
        slow = max((run.get("slow_down") or {}).values(), default=None)
        rows.append(
            {
                "log": run["kind"],
                "ended": run["words"],
                "lines": numbers.get("lines"),
                "other_lines": numbers.get("other_lines"),
                "damaged_lines": numbers.get("damaged_lines"),
                "slow_down": slow,
                "slow_down_reason": words.both("clean_compared") if slow is None else None,
            }
        )
    return pd.DataFrame(rows)


def bars(counts: pd.DataFrame) -> pd.DataFrame:
    """Return products a decode step: what the model needs, and what each library logged (0: it logged none)."""
    decode = counts[counts["phase"] == "decode"]
    found: list[tuple[str, dict[str, int], int]] = []
    for row in decode.to_dict("records"):
        pairs = (part.rsplit(" ", 1) for part in (row["by_library"] or "").split(", ") if part)
        found.append((str(row["dtype"]), {name: int(count) for name, count in pairs}, int(row["gemms_required"])))
    names = list(dict.fromkeys(name for _, by_library, _ in found for name in by_library))
    return pd.DataFrame(
        [
            {"dtype": dtype, "source": source, "gemms": float(count)}
            for dtype, by_library, required in found
            for source, count in [(NEEDS, required), *((name, by_library.get(name, 0)) for name in names)]
        ]
    )


def draw(counts: pd.DataFrame, foot: str) -> Any:
    """Draw the products of one decode step as bars: needed by the model, and named by each log."""
    frame = bars(counts)
    figure, ax = figures.canvas(0.9 + 0.36 * len(frame))
    plots.paired_bars(ax, frame, category="dtype", arm="source", value="gemms", unit="a token", ratio_of=None)
    figures.footer(figure, foot)
    return figure


def alt(counts: pd.DataFrame) -> Text:
    """Say the bars in words."""
    told = [f"{r['dtype']}, {r['source']}: {r['gemms']:.0f}" for r in bars(counts).to_dict("records")]
    return words.both("alt_products", values="; ".join(told))


def footer(run: Path, done: dict[str, Any]) -> str:
    """Return what travels with the picture."""
    birth = results.birth(run)
    host = snapshot(run).get("host") or {}
    card = (birth.get("subject") or {}).get("name") or host.get("cpu") or "device unknown"
    return figures.footer_text(
        card=str(card), model=str(done.get("model")), dtype=" / ".join(done["dtypes"]), batch=1, n=done["steps"],
        date=str(birth.get("started") or ""), notice="counted in logs",
    )  # fmt: skip


NAMES = (
    "operators", "calls_a_step", "library", "kernel", "evidence", "phase", "gemms_required", "gemms_seen",
    "by_library", "attention_gemms", "unexplained", "log", "ended", "lines", "other_lines", "damaged_lines",
    "slow_down", "launches_a_step", "copies_a_step", "synchronisations_a_step", "grade",
)  # fmt: skip
LABELS = {name: words.both(f"column_{name}") for name in (*NAMES, "dtype")}
