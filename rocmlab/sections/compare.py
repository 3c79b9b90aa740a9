"""13: how does this machine stand beside others?"""

from __future__ import annotations

import functools
import textwrap
from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import alike, compare, compare_tables, figures, findings, reference, results, sides, words
from rocmlab.findings import Finding, finding
from rocmlab.sections import Figure, Section, Table, Text, question
from rocmlab.sides import Side

GROUP_SHARE = 1.25  # height of a group's heading, in bars


def section(run: Path) -> Section:
    """Return what differs, the machines, and a table and a figure for each question that others answered as well."""
    chosen = results.rows(run, "compared")
    if not chosen:
        return Section("13", question("13"), missing=words.both("compare_no_record"))
    every, references = gathered(run, chosen)
    made = Section("13", question("13"), findings=judge(every, references), how=words.both("how_13"))
    made.absent = {name: words.both("compare_alone") for name in ("differences", "machines")}
    if len(every) > 1:
        _add(made, every, references, str(results.birth(run).get("started") or ""))
    return made


def gathered(run: Path, chosen: list[dict[str, Any]]) -> tuple[list[Side], set[str]]:
    """Return (this run, those that were named, the references that share a question with it; labels of those)."""
    own = sides.own(run)
    asked = {one.question for one in own.items}
    beside = [one for one in reference.every(but=run.name) if asked & {item.question for item in one.items}]
    # This program's own references speak before those that others reported.
    beside = sorted(beside, key=lambda side: side.reported)
    every = sides.named_apart([own, *sides.of_rows(chosen), *beside])
    return every, {one.label for one in every[len(every) - len(beside) :]}


def judge(every: list[Side], references: set[str]) -> list[Finding]:
    """Return the findings against the runs that were named, and the ratios against references, which may be unlike."""
    named = [one for one in every if one.label not in references]
    beside = [one for one in every if one.label in references]
    found = compare.judge(named) if len(named) > 1 else []
    for other in beside:
        for a, b in alike.pairs(every[0], other):
            found += compare.compared(alike.matches(a, b))
    if beside:
        who = ", ".join(one.label for one in beside)
        variant = None if any(one["code"].startswith("RATIO") for one in found) else "no_ratio"
        found.append(finding("REFERENCES_SHOWN", numbers={"references": len(beside)}, variant=variant, who=who))
    found += compare.claims(beside)
    if len(every) == 1:
        found.append(finding("NO_OTHER_RUN"))
    return findings.worst_first(found)


def _add(made: Section, every: list[Side], references: set[str], date: str) -> None:
    labels = compare_tables.LABELS
    apart = compare_tables.differences(every, references)
    made.tables = [Table("differences", words.both("compare_differences"), apart, labels=labels)]
    frame = compare_tables.machine_table(every, references)
    made.tables.append(Table("machines", words.both("compare_machines"), frame, labels=labels))
    for name in compare_tables.questions(every):
        said = compare.name_of(name)
        caption = {
            lang: words.word("compare_table", lang, question=said[lang], label=every[0].label)
            for lang in words.LANGUAGES
        }
        table = compare_tables.question_table(every, name, references)
        made.tables.append(Table(f"compare-{name}", caption, table, labels=labels))
        bars = compare_tables.bars(every, name)
        draw = functools.partial(draw_bars, bars, f"{every[0].label} and {len(every) - 1} more · {date[:10]}")
        shown = {lang: words.word("compare_figure", lang, question=said[lang]) for lang in words.LANGUAGES}
        made.figures.append(Figure(f"bars-{name}", draw, alt(bars, said), shown))


def alt(bars: pd.DataFrame, said: Text) -> Text:
    """Say the bars in words."""
    told = [
        f"{', '.join(filter(None, (row['device'], row['setting'], row['dtype'])))}: "
        f"{words.number(float(row['value']))} {unit(row['metric'])}"
        for row in records(bars)
    ]
    values = "; ".join(told)
    return {lang: words.word("compare_alt", lang, question=said[lang], values=values) for lang in words.LANGUAGES}


def records(bars: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame."""
    return [{str(key): value for key, value in row.items()} for row in bars.to_dict("records")]


def unit(metric: str) -> str:
    """Return the unit at the end of a metric's name."""
    return words.unit_of(metric)[1]


def draw_bars(bars: pd.DataFrame, foot: str) -> Any:
    """Draw one bar a device, in groups of equal settings, each under its heading; reported numbers grey and hatched."""
    groups = [group for _, group in bars.groupby("place")]
    lines = len(bars) + GROUP_SHARE * len(groups)
    figure, ax = figures.canvas(0.75 + (0.44 if figures.is_narrow() else 0.27) * lines)
    with figures.style():
        y, top = 0.0, max(bars["value"].max(), bars["high"].astype(float).fillna(0).max())
        places, names = [], []
        for group in groups:
            said = str(group["setting"].iloc[0])
            said = "\n".join(textwrap.wrap(said, 34)) if figures.is_narrow() else said
            ax.text(0, y, said, va="center", fontsize=9, color=figures.MUTED)
            y += 1
            for row in records(group):
                _bar(ax, row, y, top)
                places.append(y)
                names.append(name(row))
                y += 1
            y += GROUP_SHARE - 1
        ax.set_yticks(places, names)
        ax.tick_params(axis="y", length=0, labelcolor=figures.INK, labelsize=8 if figures.is_narrow() else 9)
        ax.set_ylim(y - 0.4, -0.6)
        ax.set_xlim(0, top * (1.9 if figures.is_narrow() else 1.55))
        ax.set_xlabel(unit(str(bars["metric"].iloc[0])))
        ax.grid(axis="x")
    figures.footer(figure, foot)
    return figure


def name(row: dict[str, Any]) -> str:
    """Return a bar's name: device and dtype, on a phone in short lines."""
    if not figures.is_narrow():
        return ", ".join(filter(None, (row["device"], row["dtype"])))
    return "\n".join(filter(None, (*textwrap.wrap(row["device"], 16), row["dtype"])))


def _bar(ax: Any, row: dict[str, Any], y: float, top: float) -> None:
    role = (
        figures.ROLES[row["arm"]] if row["arm"] in figures.ROLES and not row["reported"] else figures.ROLES["ceiling"]
    )
    hatch = "///" if row["reported"] else None
    face = "none" if row["reported"] else role.colour
    ax.barh(y, row["value"], 0.72, color=face, edgecolor=role.colour, hatch=hatch, linewidth=0.8)
    low, high = row["low"], row["high"]
    end = float(row["value"])
    if low is not None and high is not None and low == low and high == high:
        ax.plot([low, high], [y, y], color=figures.INK, linewidth=1.1, solid_capstyle="butt")
        end = max(end, float(high))
    known = row["roof_pct"] == row["roof_pct"] and row["roof_pct"]
    share = f" ({compare.percent(row['roof_pct'])}%{'' if figures.is_narrow() else ' of its roof'})" if known else ""
    said = words.number(float(row["value"])) + share + (", reported" if row["reported"] else "")
    ax.text(end + top * 0.012, y, said, va="center", color=role.text, fontsize=9)
