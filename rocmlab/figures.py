"""What do all figures share: width, style, colours with a meaning, the footer that travels with them, and their files?

`fig, ax = figures.canvas()`, a chart of plots.py, `figures.footer(fig, text)`, then `figures.save(fig, folder, name)`.
Inside `figures.narrow()` every canvas is as wide as a phone.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

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

    own, small = figure.get_dpi(), io.BytesIO()
    figure.set_dpi(matplotlib.rcParams["savefig.dpi"])  # what savefig does, but drawn once instead of twice
    try:
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    finally:
        figure.set_dpi(own)
    few = picture.quantize(colors=COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(small, "PNG", optimize=True)
    return small.getvalue()
