"""A section's figures as files of the run folder and as data inside the page, wide and narrow."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

from rocmlab import figures, sections


@dataclass
class Drawn:
    """One figure as files and as data for the page; `error` where it could not be drawn."""

    stem: str
    wide: str = ""
    slim: str = ""
    width: int = 0
    height: int = 0
    error: str = ""


Pictures = dict[str, list[Drawn]]  # of each notebook


def saved(run: Path, notebook: str, figure: sections.Figure) -> Drawn:
    """Draw a figure wide and narrow, save both, and keep the bytes for the page."""
    made = Drawn(f"{notebook}-{figure.name}")
    try:
        picture = figure.draw()
        png, _ = figures.save(picture, run / "figures", made.stem)
        with figures.narrow():
            slim, *_ = figures.save(figure.draw(), run / "figures", f"{made.stem}-narrow", ("png",))
    except Exception as error:  # one chart that fails must not cost the reader the numbers
        made.error = f"{type(error).__name__}: {error}"
        return made
    made.wide, made.slim = _data(png.read_bytes()), _data(slim.read_bytes())
    made.width, made.height = (round(inches * 100) for inches in picture.get_size_inches())
    return made


def _data(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")
