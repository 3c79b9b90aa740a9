"""A DataFrame as a table that people can read: HTML, plain text and Markdown from one set of cells.

Column names carry their unit ("decode_tok_s"). `x_low` and `x_high` beside `x` are its interval and share its cell;
`x_reason` says why `x` is missing and never becomes a column; a `timing.Interval` brings its ends itself, and says when
they are only the range of too few samples. A missing number is an en dash, never 0.
"""

from __future__ import annotations

import html
import numbers
import unicodedata
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from rocmlab import words
from rocmlab.timing import Interval

COMPANIONS = ("_low", "_high", "_reason")
LONG = 60  # letters: a sentence gets a column that it can be read in
ROW_CLASS = "row_class"  # a column of this name holds the css class of each row, and is not shown


@dataclass(frozen=True)
class Cell:
    """What stands in one cell: its text, the interval beside it, and why it is empty."""

    text: str
    interval: str = ""
    reason: str = ""
    is_number: bool = False

    @property
    def plain(self) -> str:
        return f"{self.text} ({self.interval})" if self.interval else self.text


@dataclass(frozen=True)
class Grid:
    """A table ready to be written: (name, unit) of each column, which are numeric, and rows of cells."""

    heads: list[tuple[str, str]]
    numeric: list[bool]
    rows: list[list[Cell]]
    classes: list[str] = field(default_factory=list)

    @property
    def reasons(self) -> list[str]:
        """Each reason for an empty cell, once."""
        return list(dict.fromkeys(cell.reason for row in self.rows for cell in row if cell.reason))


def grid(frame: pd.DataFrame, lang: str = "en", labels: dict[str, Any] | None = None) -> Grid:
    """Format a frame. `labels` renames columns: `{column: text or {"en", "zh"}}`; their unit stays."""
    columns = [name for name in frame.columns if name != ROW_CLASS and not _is_companion(str(name), frame)]
    heads = []
    for column in columns:
        name, unit = words.unit_of(str(column))
        heads.append((words.pick((labels or {}).get(column, name), lang), unit))
    numeric = [_numeric(frame[column]) for column in columns]
    rows = [
        [_cell(row, column, is_number, lang) for column, is_number in zip(columns, numeric, strict=True)]
        for row in frame.to_dict("records")
    ]
    classes = [str(one) for one in frame[ROW_CLASS].fillna("")] if ROW_CLASS in frame else []
    return Grid(heads, numeric, rows, classes)


def _is_companion(name: str, frame: pd.DataFrame) -> bool:
    return any(name.endswith(end) and name[: -len(end)] in frame.columns for end in COMPANIONS)


def _numeric(column: pd.Series) -> bool:
    present = [value for value in column if not _missing(value)]
    return bool(present) and all(isinstance(v, (numbers.Real, Interval)) and not isinstance(v, bool) for v in present)


def _ends(value: Interval, lang: str) -> str:
    """Return what stands small beside a median: its interval, the range of too few samples, or that there is one."""
    if value.n == 1:
        return "n = 1"
    ends = f"{_shown(value.low)}–{_shown(value.high)}"
    return ends if value.enough else f"{words.word('range', lang)} {ends}"


def _missing(value: Any) -> bool:
    return value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)


def _cell(row: dict[Any, Any], column: Any, is_number: bool, lang: str) -> Cell:
    value = row[column]
    if _missing(value):
        reason = row.get(f"{column}_reason")
        said = (
            words.word("none_plain", lang)
            if _missing(reason)
            else words.word("none_reason", lang, reason=words.pick(reason, lang))
        )
        return Cell(words.NONE, reason=said, is_number=is_number)
    if isinstance(value, bool):
        return Cell(words.word("is_true" if value else "is_false", lang))
    if isinstance(value, Interval):
        return Cell(_shown(value.median), _ends(value, lang), is_number=is_number)
    if not isinstance(value, numbers.Real):
        return Cell(words.pick(value, lang))
    low, high = row.get(f"{column}_low"), row.get(f"{column}_high")
    interval = "" if _missing(low) or _missing(high) else f"{_shown(low)}–{_shown(high)}"
    return Cell(_shown(value), interval, is_number=is_number)


def _shown(value: Any) -> str:
    return words.number(int(value) if isinstance(value, numbers.Integral) else float(value))


def as_html(made: Grid, caption: str = "", css_class: str = "data") -> str:
    """Write a table with scoped headers. The first column of words heads its row."""
    head = "".join(
        f'<th scope="col"{_side(is_number)}>{html.escape(name)}{_unit(unit)}</th>'
        for (name, unit), is_number in zip(made.heads, made.numeric, strict=True)
    )
    classes = made.classes or [""] * len(made.rows)
    body = "".join(
        f"<tr{_class(name)}>{''.join(_html_cell(cell, i) for i, cell in enumerate(row))}</tr>"
        for row, name in zip(made.rows, classes, strict=True)
    )
    title = f"<caption>{caption}</caption>" if caption else ""
    return f'<table class="{css_class}">{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _class(name: str) -> str:
    return f' class="{html.escape(name)}"' if name else ""


def _side(is_number: bool) -> str:
    return ' class="num" style="text-align:right"' if is_number else ' style="text-align:left"'


def _unit(unit: str) -> str:
    return f' <span class="unit">{html.escape(unit)}</span>' if unit else ""


def _html_cell(cell: Cell, index: int) -> str:
    text = html.escape(cell.text)
    if cell.interval:
        text += f' <span class="interval">{html.escape(cell.interval)}</span>'
    why = html.escape(cell.reason)
    reason = f' title="{why}" aria-label="{why}"' if cell.reason else ""
    if index == 0 and not cell.is_number:
        return f'<th scope="row" style="text-align:left"{reason}>{text}</th>'
    long = _width(cell.text) > LONG and not cell.is_number
    side = _side(cell.is_number) if not long else _side(False).replace(" style", ' class="long" style', 1)
    return f"<td{side}{reason}>{text}</td>"


def as_markdown(made: Grid) -> str:
    """Write a pipe table, which GitHub, Zhihu and CSDN all take."""
    heads = [f"{name} ({unit})" if unit else name for name, unit in made.heads]
    lines = [heads, ["---:" if is_number else ":---" for is_number in made.numeric]]
    lines += [[cell.plain for cell in row] for row in made.rows]
    return "\n".join("| " + " | ".join(_piped(text) for text in line) + " |" for line in lines)


def _piped(text: str) -> str:
    """Return a cell that breaks no table, and in which no site takes <user> for a tag and drops it."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").strip() or " "


def as_text(made: Grid) -> str:
    """Write aligned columns for a terminal; Chinese characters count as two columns."""
    heads = [f"{name} [{unit}]" if unit else name for name, unit in made.heads]
    lines = [heads] + [[cell.plain for cell in row] for row in made.rows]
    widths = [max(_width(line[i]) for line in lines) for i in range(len(heads))]
    return "\n".join(
        "  ".join(
            _padded(text, width, right) for text, width, right in zip(line, widths, made.numeric, strict=True)
        ).rstrip()
        for line in lines
    )


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def _padded(text: str, width: int, right: bool) -> str:
    space = " " * (width - _width(text))
    return space + text if right else text + space
