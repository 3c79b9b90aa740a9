"""What a notebook shows at the end of a cell: a takeaway, a table or a figure, each fit for page, blog and terminal."""

from __future__ import annotations

import base64
import html
from typing import Any

import pandas as pd

from rocmlab import figures, findings, tables
from rocmlab.findings import Finding
from rocmlab.words import LANGUAGES, pick, word


def takeaway(found: list[Finding] | Finding) -> None:
    """Display what was found, worst first: one Markdown output a language, marked so that a page keeps only its own."""
    from IPython.display import display

    every = findings.worst_first([found] if isinstance(found, dict) else list(found))
    for lang in LANGUAGES:
        said = [findings.say(one, lang) for one in every]
        lines = [f"**{s['sentence']}** {s['advice']}".strip() for s in said] or [word("nothing_to_say", lang)]
        plain = [f"[{s['status']}] {s['sentence']} {s['advice']}".strip() for s in said] or lines
        bundle = {"text/markdown": "\n\n".join(lines), "text/plain": "\n".join(plain)}
        display(bundle, raw=True, metadata={"rocmlab": {"lang": lang, "kind": "takeaway"}})


def show_table(frame: pd.DataFrame, caption: str | dict[str, str] = "", labels: dict[str, Any] | None = None) -> None:
    """Display a table as HTML with Markdown and plain-text twins, once a language, as a takeaway is."""
    from IPython.display import display

    for lang in LANGUAGES:
        made, said = tables.grid(frame, lang, labels), pick(caption, lang)
        bundle = {
            "text/html": tables.as_html(made, html.escape(said)),
            "text/markdown": tables.as_markdown(made),
            "text/plain": f"{said}\n{tables.as_text(made)}".lstrip("\n"),
        }
        display(bundle, raw=True, metadata={"rocmlab": {"lang": lang, "kind": "table", "caption": said}})


def show_figure(figure: Any, alt: str | dict[str, str]) -> None:
    """Display a figure as PNG with its alt text, in both languages where given."""
    from IPython.display import display

    with figures.style():
        drawn = figures.png(figure)
    said = pick(alt, "en")
    bundle = {"image/png": base64.b64encode(drawn).decode("ascii"), "text/plain": said}
    size = [round(inches * 100) for inches in figure.get_size_inches()]
    shape = {"alt": said, "width": size[0], "height": size[1]}
    display(bundle, raw=True, metadata={"image/png": shape, "rocmlab": {"kind": "figure", "alt": alt}})


def show_part(part: Any, name: str) -> None:
    """Display one table or figure of a Section by name; of one that this run does not have, say why in a line."""
    from IPython.display import display

    for table in part.tables:
        if table.name == name:
            return show_table(table.frame, table.caption, table.labels)
    for figure in part.figures:
        if figure.name == name:
            return show_figure(figure.draw(), figure.alt)
    reason = part.absent.get(name) or part.missing
    for lang in LANGUAGES:
        why = word("part_absent_why", lang, reason=pick(reason, lang).rstrip(".。")) if reason else ""
        said = word("part_absent", lang, name=name, why=why)
        display({"text/markdown": said, "text/plain": said}, raw=True, metadata={"rocmlab": {"lang": lang}})
    return None
