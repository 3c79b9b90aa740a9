"""From a run folder to the page: `build(run, "en")` reads records and executed notebooks, and never measures."""

from __future__ import annotations

from pathlib import Path

from rocmlab import bugreport, front_page, outline, pages, redaction, results, templates
from rocmlab.outline import Facts
from rocmlab.pictures import Pictures, saved
from rocmlab.templates import file_name
from rocmlab.words import LANGUAGES


def build(run: Path, lang: str = "en") -> Path:
    """Build every page of a run folder and return the path of `index.html`.

    Writes findings.json, figures/, index.html in `lang` with the other language beside it, pages/, NN.md, summary.md
    and bug-report.md. Damaged or missing parts are said on the page. Raises FileNotFoundError when the folder is not
    there.
    """
    if not run.is_dir():
        raise FileNotFoundError(f"{run}: there is no such run folder; `rocmlab report` makes one")
    facts = outline.read(run)
    pictures = {n: [saved(run, n, figure) for figure in s.figures] for n, s in facts.made.items()}
    results.write_json(run / "findings.json", outline.as_data(facts))
    bugreport.write(run, facts.made.values())
    pages.build(facts, lang)
    for language in LANGUAGES:
        summary = redaction.escaped(results.redact(front_page.summary(facts, language)))
        results.write_text(run / file_name("summary", "md", language, lang), summary)
        results.write_text(run / file_name("index", "html", language, lang), index(facts, pictures, language, lang))
    return run / "index.html"


def index(facts: Facts, pictures: Pictures, lang: str, main: str) -> str:
    """Return index.html in one language: redacted first, pictures put in afterwards."""
    template = templates.environment().get_template("index.html.j2")
    text = redaction.escaped(results.redact(template.render(**front_page.context(facts, pictures, lang, main))))
    for drawn in (one for many in pictures.values() for one in many):
        text = text.replace(f"figure:{drawn.stem}:wide", drawn.wide).replace(f"figure:{drawn.stem}:slim", drawn.slim)
    return text
