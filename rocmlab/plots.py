"""Charts in one style: drawn from a DataFrame into an axis, nothing computed but positions.

`fig, ax = figures.canvas()`, then one of `paired_bars`, `strip`, `series`, then `figures.footer(fig, text)`. Labels are
always English, because the font that ships with matplotlib has no Chinese; words in two languages stand around them.
"""

from __future__ import annotations

import math
import textwrap
from typing import Any, TypeGuard

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.offsetbox import AnchoredOffsetbox, HPacker, TextArea, VPacker
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from rocmlab import words
from rocmlab.figures import INK, MUTED, ROLES, Role, is_narrow, roles, styled

Rows = dict[tuple[Any, Any], dict[Any, Any]]


def _order(column: pd.Series) -> list[Any]:
    return list(dict.fromkeys(column))


def wrapped(text: Any, width: int) -> str:
    """Return a name on lines of at most `width` letters."""
    return "\n".join(textwrap.wrap(words.caption(str(text)), width, break_long_words=False)) or str(text)


@styled
def paired_bars(
    ax: Axes, frame: pd.DataFrame, *, category: str, arm: str, value: str, unit: str, ratio_of: tuple[str, str] | None
) -> None:
    """Draw categories x arms as zero-based bars: median, interval as a whisker, value at the end, ratio written out.

    `frame` has one row a category and arm; `<value>_low` and `<value>_high`, where present, are the interval.
    `ratio_of` names two arms, (numerator, denominator); None writes no ratio. A null is written as "not measured".
    """
    categories, arms = _order(frame[category]), _order(frame[arm])
    given, thick = roles(arms), 0.8 / max(1, len(arms))
    found: Rows = {(row[category], row[arm]): row for row in frame.to_dict("records")}
    top = max((_reach(row, value) for row in found.values()), default=1.0) or 1.0
    for line, name in enumerate(categories):
        for place, who in enumerate(arms):
            y = line + (place - (len(arms) - 1) / 2) * thick
            _bar(ax, found.get((name, who), {}), value, y, thick * 0.86, given[who], top)
        if ratio_of and all(_known(found.get((name, who), {}).get(value)) for who in ratio_of):
            over, under = (found[name, who][value] for who in ratio_of)
            text = words.number(over / under, "×") if under else ""
            ax.text(1.0, line, text, transform=ax.get_yaxis_transform(), va="center", ha="right", weight="bold")
    ax.set_xlim(0, top * (1.42 if ratio_of else 1.22))
    ax.set_ylim(len(categories) - 0.4, -0.78)
    ax.set_yticks(range(len(categories)), [wrapped(name, 12 if is_narrow() else 18) for name in categories])
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.xaxis.set_major_locator(MaxNLocator(5 if not is_narrow() else 4))
    ax.grid(axis="x")
    ax.set_xlabel(_axis(value, unit))
    _name_arms(ax, arms, given, ratio_of)


def _known(value: Any) -> TypeGuard[float]:
    return value is not None and value is not pd.NA and value == value


def _reach(row: dict[Any, Any], value: str) -> float:
    ends = [row.get(value), row.get(f"{value}_high")]
    return max((float(end) for end in ends if _known(end)), default=0.0)


def _bar(ax: Axes, row: dict[Any, Any], value: str, y: float, thick: float, role: Role, top: float) -> None:
    median = row.get(value)
    if not _known(median):
        ax.text(top * 0.01, y, "not measured", va="center", color=MUTED, fontsize=8.5, style="italic")
        return
    ax.barh(y, median, thick, color=role.colour)
    low, high = row.get(f"{value}_low"), row.get(f"{value}_high")
    end = float(median)
    if _known(low) and _known(high):
        ax.plot([low, high], [y, y], color=INK, linewidth=1.1, solid_capstyle="butt")
        for x in (low, high):
            ax.plot([x, x], [y - thick * 0.22, y + thick * 0.22], color=INK, linewidth=1.1)
        end = max(end, float(high))
    ax.text(end + top * 0.012, y, words.number(float(median)), va="center", color=role.text)


def _name_arms(ax: Axes, arms: list[Any], given: dict[str, Role], ratio_of: tuple[str, str] | None) -> None:
    """Write the arms' names above the first bars, in their colours, in the order of the bars."""
    said: list[Any] = [
        TextArea(str(who), textprops={"color": given[who].text, "weight": "bold", "size": 9.5}) for who in arms
    ]
    pack: Any = VPacker if is_narrow() else HPacker
    row = pack(children=said, pad=0, sep=2 if is_narrow() else 14)
    ax.add_artist(
        AnchoredOffsetbox(
            "lower left", child=row, frameon=False, pad=0, borderpad=0.2, bbox_to_anchor=(0, 1),
            bbox_transform=ax.transAxes,
        )
    )  # fmt: skip
    if ratio_of:
        ax.annotate(
            f"{ratio_of[0].split(' ')[0].rstrip(',')} / {ratio_of[1].split(' ')[0].rstrip(',')}", (1, 1),
            xycoords="axes fraction", xytext=(0, 1), textcoords="offset points", ha="right", va="bottom",
            color=MUTED, fontsize=9,
        )  # fmt: skip


@styled
def strip(
    ax: Axes, frame: pd.DataFrame, *, category: str, value: str, unit: str, process: str | None = None, arm: str = "GPU"
) -> None:
    """Draw every sample as a dot: one column a category, left to right in the order of measurement.

    `process` names the column that tells processes apart: their dots stand in groups, filled and hollow in turn, each
    with its median as a short line, so that a machine with two states shows them.
    """
    role = roles([arm])[arm]
    categories = _order(frame[category])
    for place, name in enumerate(categories):
        rows = frame[(frame[category] == name) & frame[value].notna()]
        groups = [rows[rows[process] == p] for p in _order(rows[process])] if process else [rows]
        _groups(ax, [group[value].astype(float).tolist() for group in groups if len(group)], place, role)
    stagger = is_narrow() and len(categories) > 3  # names side by side would touch on a phone
    labels = [("\n\n" if stagger and i % 2 else "") + wrapped(name, 11) for i, name in enumerate(categories)]
    ax.set_xticks(range(len(categories)), labels)
    ax.tick_params(axis="x", length=0, labelcolor=INK, labelsize=8.5 if is_narrow() else 9.5)
    ax.set_xlim(-0.6, len(categories) - 0.4)
    _calm(ax, frame[value].dropna().astype(float))
    ax.grid(axis="y")
    ax.set_ylabel(_axis(value, unit))
    note = "each group: one process, in order of measurement; line: median" if process else "line: median"
    ax.annotate(
        "\n".join(textwrap.wrap(note, 44)) if is_narrow() else note, (0, 1), xycoords="axes fraction",
        xytext=(0, 4), textcoords="offset points", color=MUTED, fontsize=8.5, va="bottom",
    )  # fmt: skip


def _calm(ax: Axes, values: pd.Series) -> None:
    """Show at least 30% of the median from bottom to top, so that a little noise looks like a little noise."""
    if not len(values):
        return
    low, high, middle = values.min(), values.max(), values.median()
    room = max((high - low) * 0.12, (0.3 * middle - (high - low)) / 2)
    ax.set_ylim(max(0.0, low - room), high + room)


def _groups(ax: Axes, groups: list[list[float]], place: int, role: Role) -> None:
    width = 0.72 / max(1, len(groups))
    for index, values in enumerate(groups):
        left = place - 0.36 + index * width + width * 0.12
        right = left + width * 0.76
        step = (right - left) / max(1, len(values) - 1)
        xs = [left + i * step for i in range(len(values))] if len(values) > 1 else [(left + right) / 2]
        hollow = index % 2 == 1
        ax.plot(
            xs, values, linestyle="", marker=role.marker, markersize=4, markeredgecolor=role.colour,
            markeredgewidth=1.1, markerfacecolor="white" if hollow else role.colour,
        )  # fmt: skip
        middle = float(pd.Series(values).median())
        ax.plot([left - width * 0.1, right + width * 0.1], [middle, middle], color=INK, linewidth=1.4)


@styled
def series(
    ax: Axes, frame: pd.DataFrame, *, x: str, value: str, unit: str, x_unit: str = "", by: str | None = None,
    log_x: bool = False,
) -> None:  # fmt: skip
    """Draw a line over x for each value of `by`, its name at its end; `<value>_low/_high` make a band.

    Rows without a value leave a gap. Fewer than 30 points are shown as markers too.
    """
    names = _order(frame[by]) if by else [""]
    given = roles(names) if by else {"": ROLES["GPU"]}
    ends = []
    for name in names:
        rows = (frame[frame[by] == name] if by else frame).sort_values(x)
        role = given[name]
        marker = role.marker if len(rows) < 30 else ""
        ax.plot(rows[x], rows[value], color=role.colour, linestyle=role.line, marker=marker)
        if f"{value}_low" in rows and f"{value}_high" in rows:
            low, high = (rows[f"{value}_{end}"].astype(float) for end in ("low", "high"))
            ax.fill_between(rows[x], low, high, color=role.colour, alpha=0.18, linewidth=0)
        last = rows[rows[value].notna()].tail(1)
        if name and len(last):
            ends.append((float(last[x].iloc[0]), float(last[value].iloc[0]), str(name), role))
    if log_x:
        _plain_log(ax, sorted(set(frame[x])))
    ax.set_ylim(bottom=0)
    ax.grid(axis="y")
    ax.set_xlabel(_axis(x, x_unit))
    ax.set_ylabel(_axis(value, unit))
    _end_names(ax, ends)


def _axis(name: str, unit: str) -> str:
    said, own = words.unit_of(name)
    return f"{said} [{unit or own}]" if unit or own else said


def _plain_log(ax: Axes, values: list[float]) -> None:
    ax.set_xscale("log", base=2)
    ax.set_xticks(values)
    ax.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.0f}" if v >= 1 else f"{v:g}"))
    ax.xaxis.set_minor_locator(NullLocator())


def _end_names(ax: Axes, ends: list[tuple[float, float, str, Role]]) -> None:
    """Write the lines' names at their ends, pushed apart where they would touch."""
    height = ax.get_ylim()[1] or 1.0
    floor = -math.inf
    for x, y, name, role in sorted(ends, key=lambda end: end[1]):
        place = max(y, floor + height * 0.07)
        floor = place
        ax.annotate(
            name, (x, place), xytext=(8, 0), textcoords="offset points", va="center", color=role.text,
            annotation_clip=False,
        )  # fmt: skip


@styled
def ceiling(ax: Axes, value: float, label: str, *, horizontal: bool = True) -> None:
    """Draw a ceiling as a dashed line with its name: across at a y value, or upright at an x value (for bars)."""
    role = ROLES["ceiling"]
    if horizontal:
        ax.axhline(value, color=role.colour, linestyle=role.line, linewidth=1.5)
        ax.annotate(
            label, (0, value), xycoords=("axes fraction", "data"), xytext=(4, 3), textcoords="offset points",
            color=role.text, fontsize=9,
        )  # fmt: skip
        ax.set_ylim(top=max(ax.get_ylim()[1], value * 1.12))
    else:
        ax.axvline(value, color=role.colour, linestyle=role.line, linewidth=1.5)
        ax.annotate(
            label, (value, 0), xycoords=("data", "axes fraction"), xytext=(-4, 4), textcoords="offset points",
            color=role.text, fontsize=9, ha="right",
        )  # fmt: skip
        ax.set_xlim(right=max(ax.get_xlim()[1], value * 1.05))
