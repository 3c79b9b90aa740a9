"""One decode step as lanes over time: what the host thread did, when it launched, when the device ran.

`draw(lanes)` takes the lanes of `tracing.lanes` and returns a figure: the whole step above, a magnified part below.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from rocmlab import figures

# Four colours of the host, two of the device; fixed meanings, none told apart by red against green.
COLOURS = {
    "operator": "#0072B2",
    "launch": "#E69F00",
    "wait": "#6B7280",
    "other": "#C9D6E2",
    "kernel": "#D55E00",
    "copy": "#56B4E9",
}
NAMES = {
    "operator": "operator",
    "launch": "launch call",
    "wait": "waiting call",
    "other": "other host time",
    "kernel": "kernel",
    "copy": "copy",
}
LANES = ("host", "launches", "device")
# What each lane holds; for the host in the order of the shares in lanes["host"].
KINDS = {"host": ("operator", "launch", "wait", "other"), "launches": ("launch",), "device": ("kernel", "copy")}


@figures.styled
def draw(lanes: dict[str, Any]) -> Any:
    """Draw one step; a step without launches and device events has the host lane alone."""
    shown = [lane for lane in LANES if lanes[lane]]
    figure, _ = figures.canvas(1.5 + 0.75 * len(shown))
    figure.clear()
    above, below = figure.subplots(2, 1)
    begin, end = lanes["part"]
    _whole(above, lanes, shown)
    above.axvspan(begin / 1000, end / 1000, facecolor="none", edgecolor=figures.INK, linewidth=0.8)
    _exact(below, {**lanes, "host": lanes["host_part"]}, shown, begin, end)
    present = {item[2] for lane in ("host_part", "launches", "device") for item in lanes[lane]}
    present |= {
        kind for kind, shares in zip(KINDS["host"], zip(*lanes["host"], strict=True), strict=True) if any(shares)
    }
    handles = [Patch(color=COLOURS[kind], label=NAMES[kind]) for kind in COLOURS if kind in present]
    figure.legend(handles=handles, loc="outside upper left", ncols=3, fontsize=8.5)
    return figure


def _whole(ax: Axes, lanes: dict[str, Any], shown: list[str]) -> None:
    """Draw shares of equal parts of the step, since its kernels are narrower than a pixel: full height is 100 %."""
    shares = {"host": np.array(lanes["host"]).T} if lanes["host"] else {}
    parts = len(lanes["host"])
    edges = np.linspace(0, lanes["wall_us"], parts + 1)
    for lane in ("launches", "device"):
        shares[lane] = np.array([coverage(lanes[lane], kind, edges) for kind in KINDS[lane]])
    for row, lane in enumerate(reversed(shown)):
        base = np.full(parts, row + 0.12)
        for kind, share in zip(KINDS[lane], shares[lane], strict=True):
            low, base = base, base + 0.76 * share
            ax.fill_between(edges / 1000, np.append(low, low[-1]), np.append(base, base[-1]), step="post",
                            color=COLOURS[kind], linewidth=0, rasterized=True)  # fmt: skip
    _axis(ax, shown, 0.0, lanes["wall_us"] / 1000, "time in the step [ms], share of each part")


def coverage(lane: list[list[Any]], kind: str, edges: np.ndarray) -> np.ndarray:
    """Return which share of each interval between edges the spans of one kind cover, at most 1."""
    spans = [(begin, end) for begin, end, what in lane if what == kind]
    if not spans:
        return np.zeros(len(edges) - 1)
    begin, end = np.array(spans).T
    covered = [np.clip(end, low, high) - np.clip(begin, low, high) for low, high in itertools.pairwise(edges)]
    return np.minimum(np.array([part.sum() for part in covered]) / np.diff(edges), 1.0)


def _exact(ax: Axes, lanes: dict[str, Any], shown: list[str], begin: float, end: float) -> None:
    for row, lane in enumerate(reversed(shown)):
        for kind, colour in COLOURS.items():
            spans = [(b, e - b) for b, e, k in lanes[lane] if k == kind and e >= begin and b <= end]
            if spans:
                ax.broken_barh(spans, (row + 0.12, 0.76), facecolors=colour, linewidth=0, rasterized=True)
    _axis(ax, shown, begin, end, "time in the step [µs], exact")


def _axis(ax: Axes, shown: list[str], begin: float, end: float, label: str) -> None:
    ax.set_yticks([row + 0.5 for row in range(len(shown))], list(reversed(shown)))
    ax.tick_params(axis="y", length=0, labelcolor=figures.INK)
    ax.set_ylim(0, len(shown))
    ax.set_xlim(begin, end)
    ax.xaxis.set_major_locator(MaxNLocator(6))
    ax.set_xlabel(label)
