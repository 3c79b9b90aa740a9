"""The templates and the style sheet that all pages share, and how their files are called in each language."""

from __future__ import annotations

import functools
import html
import re
from typing import Any

import jinja2
from markupsafe import Markup

# A number with its unit, to stand out in the answers.
NUMBER = re.compile(r"\d[\d,.]*(?:–\d[\d,.]*)? ?(?:×|%|tok/s|ms\b|µs|GB/s|TFLOP/s|GiB\b|times\b|倍)")


def file_name(stem: str, ending: str, language: str, main: str) -> str:
    """Return a file's name: plain in the main language of the build, with the language's code in the other."""
    return f"{stem}.{ending}" if language == main else f"{stem}.{language}.{ending}"


@functools.cache
def environment() -> jinja2.Environment:
    """Return the environment of the package's templates; everything is escaped unless marked safe."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("rocmlab", "."), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["inline"] = inline
    made.filters["numbers"] = lambda text: Markup(NUMBER.sub(r"<b>\g<0></b>", str(inline(text))))
    made.filters["begin"] = lambda text: text[:1].upper() + text[1:]
    return made


def inline(text: Any) -> Any:
    """Escape a text and show what stands in `backticks` as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(str(text), quote=False)))


def css() -> str:
    """Return the one style sheet, which every page carries inside."""
    source, _, _ = environment().loader.get_source(environment(), "report.css")  # type: ignore[union-attr]
    return source
