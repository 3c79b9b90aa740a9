"""One decode step as a waterfall: the lane that binds, part by part from 0 to T, and the other lane under it.

`parts(account)` is pure: the ledger's account in, groups of bars out; `draw(groups, foot)` draws them. What no part
explains is a bar of its own, and what was not measured is named, never left out.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rocmlab import figures, plots, words
from rocmlab.rates import is_number

DECIDED = ("host_bound", "device_bound", "mixed")
LEAST = 0.002  # of the step: a shorter part has no bar that could be seen
ORDER = ("python_dispatch", "launch", "sampling", "readback", "tokeniser", "wait",
         "memory_floor", "excess", "gaps", "idle")  # fmt: skip
# Host in blues, device in oranges, as in every other picture; what is waiting or unexplained is grey.
COLOURS = {
    "python_dispatch": "#0072B2", "launch": "#56B4E9", "sampling": "#3A8FC7", "readback": "#8CC7EE",
    "tokeniser": "#B5D8F0", "memory_floor": "#D55E00", "excess": "#E69F00", "gaps": "#F2C879", "wait": "#D0D7DE",
    "idle": "#D0D7DE", "residual": "#8C959F", "step": "#1F2328",
}  # fmt: skip
ROW_IN, HEAD_IN = 0.33, 0.36


@dataclass(frozen=True)
class Bar:
    """One part of a lane: where it begins and ends in ms, and its interval's ends; `name` is the ledger's."""

    name: str
    begin: float
    ms: float
    low: float
    high: float


@dataclass(frozen=True)
class Group:
    """One lane: its heading, its bars in order, and the names of the parts that were not measured."""

    lane: str
    hidden: bool
    bars: list[Bar]
    step_ms: float
    absent: list[str] = field(default_factory=list)


def parts(account: dict[str, Any] | None) -> list[Group]:
    """Return the lanes to draw, the binding one first; [] without a step, or where the ledger does not decide it."""
    step: dict[str, Any] = ((account or {}).get("quantities") or {}).get("T") or {}
    if not account or not is_number(step.get("ms")) or account.get("regime") not in DECIDED:
        return []
    on_cpu = (account.get("subject") or {}).get("device") == "cpu"
    first = "device" if on_cpu or account.get("binding") == "device" else "host"
    lanes = [first] if on_cpu else [first, "host" if first == "device" else "device"]
    decided = account.get("binding") is not None
    whole = float(step["ms"])
    made = [_group(account, lane, place > 0 and decided, whole, place == 0) for place, lane in enumerate(lanes)]
    return made if any(bar.ms > 0 and bar.name != "residual" for bar in made[0].bars) else []


def _group(account: dict[str, Any], lane: str, hidden: bool, step: float, residual: bool) -> Group:
    rows = account.get(f"{lane}_lane") or []
    rows = sorted(rows, key=lambda row: ORDER.index(row["name"]) if row["name"] in ORDER else len(ORDER))
    if residual:
        rows = [*rows, {**(account.get("residual") or {}), "name": "residual"}]
    bars: list[Bar] = []
    at, absent, on_cpu = 0.0, [], (account.get("subject") or {}).get("device") == "cpu"
    for row in rows:
        if not is_number(row.get("ms")):
            absent += [row["name"]] if not on_cpu or row["name"] in ("memory_floor", "excess", "idle") else []
        elif abs(row["ms"]) >= LEAST * step:
            ends = [row[key] if is_number(row.get(key)) else row["ms"] for key in ("low", "high")]
            bars.append(Bar(row["name"], at, float(row["ms"]), *map(float, ends)))
            at += row["ms"]
    return Group(lane, hidden, bars, step, absent)


def work_ms(group: Group) -> float:
    """Return what a lane does in a step, without waiting and idling."""
    return sum(bar.ms for bar in group.bars if bar.name not in ("wait", "idle", "residual"))


def label(name: str, on_cpu: bool = False) -> str:
    """Return a part's name for the picture, which is always in English."""
    return words.word(key(name, on_cpu), "en")


def heading(group: Group, decided: bool, on_cpu: bool) -> str:
    """Return the line above a lane."""
    kind = "cpu" if on_cpu else "hidden" if group.hidden else "binds" if decided else "both"
    lane = words.word(f"lane_{group.lane}", "en")
    said = words.word(f"waterfall_{kind}", "en", lane=lane, ms=shown(work_ms(group)),
                      step=words.number(group.step_ms, "ms"))  # fmt: skip
    return said[:1].upper() + said[1:]


@figures.styled
def draw(groups: list[Group], foot: str, *, decided: bool = True, on_cpu: bool = False) -> Any:
    """Draw the lanes under each other on one axis of ms a token; the last bar of the first lane is the whole step."""
    narrow = figures.is_narrow()
    count = sum(len(group.bars) for group in groups) + 1
    absent = [label(name, on_cpu) for group in groups for name in group.absent]
    figure, ax = figures.canvas(0.85 + ROW_IN * (1.25 if narrow else 1.0) * count + HEAD_IN * len(groups))
    y, ticks, names = 0.0, [], []
    for place, group in enumerate(groups):
        head = "\n".join(textwrap.wrap(heading(group, decided, on_cpu), 44 if narrow else 90))
        _head(ax, head, y + 0.25 * head.count("\n"), place == 0)
        y += 1.0 + 0.35 * head.count("\n")
        bars = [*group.bars, Bar("step", 0.0, group.step_ms, group.step_ms, group.step_ms)] if not place else group.bars
        for before, bar in zip([None, *bars], bars, strict=False):
            _bar(ax, bar, y, group, before, on_cpu)
            ticks.append(y)
            names.append(plots.wrapped(label(bar.name, on_cpu), 15 if narrow else 26))
            y += 1.0
        y += 0.35
    top = max([group.step_ms for group in groups] + [bar.begin + max(bar.ms, 0.0) for g in groups for bar in g.bars])
    ax.axvline(groups[0].step_ms, color=figures.INK, linewidth=0.9, linestyle=(0, (2, 2)), zorder=0)
    ax.set_xlim(min(0.0, *(bar.begin + bar.ms for g in groups for bar in g.bars)), top * (1.3 if narrow else 1.16))
    ax.set_ylim(y - 0.6, -0.7)
    ax.set_yticks(ticks, names)
    ax.tick_params(axis="y", length=0, labelcolor=figures.INK, labelsize=8.5 if narrow else 9.5)
    ax.spines["left"].set_visible(False)
    ax.xaxis.set_major_locator(MaxNLocator(4 if narrow else 8))
    ax.grid(axis="x")
    ax.set_xlabel("time of one token [ms]")
    figures.footer(figure, " · ".join([*(["not measured: " + ", ".join(absent)] if absent else []), foot]))
    return figure


def _head(ax: Axes, text: str, y: float, strong: bool) -> None:
    """Write a lane's heading from the left edge of the picture; it takes no room from the bars."""
    made = ax.annotate(
        text, (0.012, y), xycoords=("figure fraction", "data"), va="center", ha="left",
        color=figures.INK if strong else figures.MUTED, weight="bold" if strong else "normal",
        fontsize=9 if figures.is_narrow() else 10, bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
    )  # fmt: skip
    made.set_in_layout(False)


def shown(ms: float) -> str:
    """Return a time for a bar: two decimals below ten, so that parts can be added up by eye."""
    return f"{ms:.2f}" if abs(ms) < 10 else words.number(ms)


def _bar(ax: Axes, bar: Bar, y: float, group: Group, before: Bar | None, on_cpu: bool) -> None:
    colour = COLOURS["python_dispatch"] if on_cpu and bar.name == "idle" else COLOURS.get(bar.name, figures.MUTED)
    hatch = "////" if bar.name == "residual" else None
    fill = "white" if hatch else colour
    ax.barh(y, bar.ms, 0.72, left=bar.begin, color=fill, edgecolor=colour if hatch else "none", hatch=hatch,
            alpha=0.55 if group.hidden else 1.0, linewidth=0.8 if hatch else 0)  # fmt: skip
    if before is not None and bar.name != "step":  # a thin line down from the end of the bar above
        ax.plot([bar.begin, bar.begin], [y - 1 + 0.36, y - 0.36], color=figures.MUTED, linewidth=0.7)
    end = max(bar.begin, bar.begin + bar.ms)
    if bar.high > bar.low and bar.name not in ("residual", "idle", "wait"):
        ax.plot([bar.begin + bar.low, bar.begin + bar.high], [y, y], color=figures.INK, linewidth=1.0)
        end = max(end, bar.begin + bar.high)
    text = shown(bar.ms) + (" ms" if bar.name == "step" else "")
    ax.annotate(
        text, (end, y), xytext=(4, 0), textcoords="offset points", va="center",
        color=figures.MUTED if group.hidden else figures.INK, weight="bold" if bar.name == "step" else "normal",
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85},
    )  # fmt: skip


def told(groups: list[Group], lang: str, on_cpu: bool = False) -> str:
    """Say the bars of every lane in words, for who cannot see the picture."""
    said = []
    for group in groups:
        bars = [f"{words.word(key(bar.name, on_cpu), lang)} {words.number(bar.ms, 'ms')}" for bar in group.bars]
        said.append(words.word(f"lane_{group.lane}", lang) + words.word("colon", lang) + ", ".join(bars))
    return "; ".join(said)


def key(name: str, on_cpu: bool) -> str:
    """Return the key of a part's name in words.yaml."""
    return "waterfall_python_cpu" if on_cpu and name == "idle" else f"waterfall_{name}"
