"""Charts in one style: drawn from a DataFrame into an axis, nothing computed but positions.

`fig, ax = plots.canvas()`, then one of `paired_bars`, `strip`, `series`, then `plots.footer(fig, text)`. Labels are
always English, because the font that ships with matplotlib has no Chinese; words in two languages stand around them.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import math
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, TypeGuard

import matplotlib
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnchoredOffsetbox, HPacker, TextArea, VPacker
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from rocmlab import words

INK, MUTED, RULE = "#1F2328", "#57606A", "#D0D7DE"
WIDE_IN, NARROW_IN = 7.2, 3.8  # a narrow figure fills the 358 px that a phone leaves, with its letters at full size
FOOTER_PT = 7.5
COLOURS = 64  # of a PNG


@dataclass(frozen=True)
class Role:
    """A fixed meaning: fill, a darker shade for text (4.5:1 on white), marker, line."""

    colour: str
    text: str
    marker: str
    line: str = "-"


# Okabe and Ito's palette; no two roles are told apart by red against green, and markers differ as well.
ROLES = {
    "GPU": Role("#D55E00", "#A84A00", "o"),
    "CPU": Role("#0072B2", "#005A8C", "s"),
    "ceiling": Role("#6B7280", "#4B5563", "", "--"),
}
OTHERS = (Role("#E69F00", "#8A5F00", "^"), Role("#56B4E9", "#1F6F9F", "D"), Role("#6B7280", "#4B5563", "v"))

Rows = dict[tuple[Any, Any], dict[Any, Any]]

_narrow: ContextVar[bool] = ContextVar("narrow", default=False)


def style() -> Any:
    """Return the context in which everything is drawn and saved."""
    with resources.as_file(resources.files("rocmlab").joinpath("rocmlab.mplstyle")) as path:
        rules = matplotlib.rc_params_from_file(str(path), use_default_template=False)
    return matplotlib.rc_context(dict(rules))


def styled(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function inside `style()`."""

    @functools.wraps(draw)
    def inside(*args: Any, **keywords: Any) -> Any:
        with style():
            return draw(*args, **keywords)

    return inside


@contextlib.contextmanager
def narrow() -> Iterator[None]:
    """Make every canvas as wide as a phone."""
    token = _narrow.set(True)
    try:
        yield
    finally:
        _narrow.reset(token)


def is_narrow() -> bool:
    """Tell whether figures are being drawn for a phone."""
    return _narrow.get()


@styled
def canvas(height_in: float = 4.0) -> tuple[Figure, Axes]:
    """Return an empty figure and its axis, 7.2 inches wide, or as wide as a phone inside `narrow()`."""
    figure = Figure(figsize=(NARROW_IN if _narrow.get() else WIDE_IN, height_in))
    FigureCanvasAgg(figure)  # no pyplot: nothing global, and a notebook shows only what is displayed on purpose
    return figure, figure.subplots()


def roles(arms: Sequence[str]) -> dict[str, Role]:
    """Give each arm its role: by its first word when that is GPU or CPU, else one of the remaining colours."""
    spare = itertools.cycle(OTHERS)
    given: dict[str, Role] = {}
    for arm in arms:
        first = str(arm).replace(",", " ").split(" ")[0]
        free = first in ROLES and ROLES[first] not in given.values()
        given[arm] = ROLES[first] if free else next(spare)
    return given


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
    ax.set_yticks(range(len(categories)), [wrapped(name, 12 if _narrow.get() else 18) for name in categories])
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.xaxis.set_major_locator(MaxNLocator(5 if not _narrow.get() else 4))
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
    pack: Any = VPacker if _narrow.get() else HPacker
    row = pack(children=said, pad=0, sep=2 if _narrow.get() else 14)
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
    stagger = _narrow.get() and len(categories) > 3  # names side by side would touch on a phone
    labels = [("\n\n" if stagger and i % 2 else "") + wrapped(name, 11) for i, name in enumerate(categories)]
    ax.set_xticks(range(len(categories)), labels)
    ax.tick_params(axis="x", length=0, labelcolor=INK, labelsize=8.5 if _narrow.get() else 9.5)
    ax.set_xlim(-0.6, len(categories) - 0.4)
    _calm(ax, frame[value].dropna().astype(float))
    ax.grid(axis="y")
    ax.set_ylabel(_axis(value, unit))
    note = "each group: one process, in order of measurement; line: median" if process else "line: median"
    ax.annotate(
        "\n".join(textwrap.wrap(note, 44)) if _narrow.get() else note, (0, 1), xycoords="axes fraction",
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


def footer_text(
    *, card: str, model: str = "", dtype: str = "", batch: int | None = None, n: int | None = None, date: str = "",
    notice: str = "",
) -> str:  # fmt: skip
    """Return what must travel with a picture: card, model, dtype, batch, n, date; a notice such as "CPU run" first."""
    parts = [notice, card, model, dtype, f"batch {batch}" if batch else "", f"n = {n}" if n else "", date[:10]]
    return " · ".join(part for part in parts if part)


@styled
def footer(figure: Figure, text: str) -> None:
    """Write a grey line under the picture, wrapped to its width, and make room for it."""
    letters = int(figure.get_figwidth() * 72 / (FOOTER_PT * 0.56))
    lines = textwrap.wrap(text.replace(" ·", "\u00a0·"), letters) or [""]  # no line begins with a dot
    room = (len(lines) * FOOTER_PT * 1.35 + 6) / (figure.get_figheight() * 72)
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.set(rect=(0, room, 1, 1 - room))  # type: ignore[call-arg]
    figure.text(
        0.012, 4 / (figure.get_figheight() * 72), "\n".join(lines), fontsize=FOOTER_PT, color=MUTED, linespacing=1.25,
        va="bottom",
    )  # fmt: skip


@styled
def save(figure: Figure, folder: Path, name: str, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write `<name>.png` (200 dpi) and `<name>.svg` (letters as outlines), without dates, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for kind in formats:
        path = folder / f"{name}.{kind}"
        if kind == "png":
            path.write_bytes(png(figure))
        else:
            figure.savefig(path, format=kind, metadata={"Date": None, "Creator": None})
        paths.append(path)
    return paths


def png(figure: Figure) -> bytes:
    """Return a figure as PNG of few colours: a third of the bytes, since charts have few, and a page holds dozens."""
    from PIL import Image  # matplotlib writes its own PNG with it

    whole, small = io.BytesIO(), io.BytesIO()
    figure.savefig(whole, format="png", metadata={"Software": None})
    picture = Image.open(whole).convert("RGB")
    few = picture.quantize(colors=COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(small, "PNG", optimize=True)
    return small.getvalue()
