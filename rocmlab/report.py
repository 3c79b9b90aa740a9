"""From a run folder to the page: `build(run, "en")` reads records and executed notebooks, and never measures."""

from __future__ import annotations

import base64
import functools
import html
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from rocmlab import (
    METHOD_VERSION,
    __version__,
    bugreport,
    findings,
    outline,
    plots,
    redaction,
    results,
    sections,
    tables,
    words,
)
from rocmlab.display import show_figure, show_table, takeaway
from rocmlab.findings import Finding
from rocmlab.outline import Facts, answers, card, notices, provenance, reason, verdict, why_not
from rocmlab.sections import HOUSE, Section
from rocmlab.words import LANGUAGES, pick, word

__all__ = ["build", "show_figure", "show_table", "takeaway"]

SIGNS = {"ok": "✓", "warn": "!", "broken": "✕", "unknown": "?", "none": "–"}

# A number with its unit, to stand out in the answers.
NUMBER = re.compile(r"\d[\d,.]*(?:–\d[\d,.]*)? ?(?:×|%|tok/s|ms\b|µs|GB/s|TFLOP/s|GiB\b|times\b|倍)")


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


def build(run: Path, lang: str = "en") -> Path:
    """Build every page of a run folder and return the path of `index.html`.

    Writes findings.json, figures/, index.html in `lang` with the other language beside it, pages/, NN.md, summary.md
    and bug-report.md. Damaged or missing parts are said on the page. Raises FileNotFoundError when the folder is not
    there.
    """
    from rocmlab import pages

    if not run.is_dir():
        raise FileNotFoundError(f"{run}: there is no such run folder; `rocmlab report` makes one")
    facts = outline.read(run)
    pictures = {n: [_drawn(run, n, figure) for figure in s.figures] for n, s in facts.made.items()}
    results.write_json(run / "findings.json", outline.as_data(facts))
    bugreport.write(run)
    pages.build(facts, lang)
    for language in LANGUAGES:
        results.write_text(
            run / name("summary", "md", language, lang), redaction.escaped(results.redact(summary(facts, language)))
        )
        results.write_text(run / name("index", "html", language, lang), index(facts, pictures, language, lang))
    return run / "index.html"


def name(stem: str, ending: str, language: str, main: str) -> str:
    """Return a file's name: plain in the main language of the build, with the language's code in the other."""
    return f"{stem}.{ending}" if language == main else f"{stem}.{language}.{ending}"


def _drawn(run: Path, notebook: str, figure: sections.Figure) -> Drawn:
    """Draw a figure wide and narrow, save both, and keep the bytes for the page."""
    made = Drawn(f"{notebook}-{figure.name}")
    try:
        picture = figure.draw()
        png, _ = plots.save(picture, run / "figures", made.stem)
        with plots.narrow():
            slim, *_ = plots.save(figure.draw(), run / "figures", f"{made.stem}-narrow", ("png",))
    except Exception as error:  # one chart that fails must not cost the reader the numbers
        made.error = f"{type(error).__name__}: {error}"
        return made
    made.wide, made.slim = _data(png.read_bytes()), _data(slim.read_bytes())
    made.width, made.height = (round(inches * 100) for inches in picture.get_size_inches())
    return made


def _data(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode("ascii")


@functools.cache
def templates() -> jinja2.Environment:
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
    source, _, _ = templates().loader.get_source(templates(), "report.css")  # type: ignore[union-attr]
    return source


def index(facts: Facts, pictures: Pictures, lang: str, main: str) -> str:
    """Return index.html in one language: redacted first, pictures put in afterwards."""
    text = templates().get_template("index.html.j2").render(**context(facts, pictures, lang, main))
    text = redaction.escaped(results.redact(text))
    for drawn in (one for many in pictures.values() for one in many):
        text = text.replace(f"figure:{drawn.stem}:wide", drawn.wide).replace(f"figure:{drawn.stem}:slim", drawn.slim)
    return text


def context(facts: Facts, pictures: Pictures, lang: str, main: str) -> dict[str, Any]:
    """Return what the template shows, all of it as text."""
    code, status, wording = verdict(facts)
    other = next(one for one in LANGUAGES if one != lang)
    shown = [_shown(facts, pictures.get(n, []), n, lang, main) for n in HOUSE if _has_section(facts, n)]
    lead = _lead(facts, shown)
    _count(shown, lead)
    discarded = [_line(one, lang) for section in facts.made.values() for one in section.discarded]
    missing = [
        (n, word(f"question_{n}", lang), why_not(facts, n, lang, short=True)) for n in HOUSE if why_not(facts, n, lang)
    ]
    return {
        "lang": lang,
        "w": functools.partial(word, lang=lang),
        "css": css(),
        "card": card(facts, lang),
        "verdict": word(wording, lang),
        "code": code,
        "status": status,
        "signs": SIGNS,
        "provenance": provenance(facts, lang),
        "notices": notices(facts, lang),
        "answers": [(q, word(q, lang), _answer(facts, q, lang)) for q in outline.QUESTIONS],
        "sections": shown,
        "lead": lead,
        "discarded": discarded,
        "missing": missing,
        "facts": run_facts(facts, lang),
        "summary": summary(facts, lang),
        "summary_file": name("summary", "md", lang, main),
        "other": other,
        "other_file": name("index", "html", other, main),
        "version": __version__,
        "method": facts.birth.get("method_version", METHOD_VERSION),
    }


def _has_section(facts: Facts, notebook: str) -> bool:
    section = facts.made.get(notebook)
    return bool(section and not section.missing) or notebook in facts.notebooks


def _line(found: Finding, lang: str) -> dict[str, str]:
    said = findings.say(found, lang)
    return {part: said[part] for part in ("status", "sentence", "advice")}


def _answer(facts: Facts, question: str, lang: str) -> dict[str, str]:
    found = answers(facts).get(question)
    if found:
        return _line(found, lang)
    return {"status": "none", "sentence": reason(facts, question, lang), "advice": ""}


def _spoken(facts: Facts, question: str, lang: str) -> dict[str, str]:
    """Return an answer that says "not measured" itself, for a text without tags."""
    answer = _answer(facts, question, lang)
    said = word("answer_missing", lang, reason=answer["sentence"]) if answer["status"] == "none" else answer["sentence"]
    return {**answer, "sentence": said}


def _shown(facts: Facts, drawn: list[Drawn], notebook: str, lang: str, main: str) -> dict[str, Any]:
    """Return one section as text: question, notice, figures, tables, findings, how, links."""
    section = facts.made.get(notebook) or Section(notebook, sections.question(notebook))
    known, died = notebook in facts.made and not section.missing, why_not(facts, notebook, lang)
    notice = word("partial", lang, reason=died + ("" if lang == "zh" else " ")) if died and known else died
    if not known and not died:
        notice = word("only_notebook", lang)
    return {
        "notebook": notebook,
        "question": pick(section.question, lang),
        "status": _status(facts, section),
        "notice": notice,
        "figures": [_figure(f, d, lang) for f, d in zip(section.figures, drawn, strict=True)],
        "tables": [_table(one, lang) for one in section.tables],
        "findings": [_line(one, lang) for one in sorted(findings.worst_first(section.findings), key=_weight)],
        "empty": word("no_findings", lang) if known and not section.findings else "",
        "how": pick(section.how, lang),
        "page": f"pages/{name(notebook, 'html', lang, main)}" if notebook in facts.notebooks else "",
        "ipynb": f"notebooks/{facts.notebooks[notebook].name}" if notebook in facts.notebooks else "",
        "records": [f"records/{file}" for file in facts.tables_of.get(notebook, [])],
    }


def _weight(found: Finding) -> int:
    """Order findings for a reader: what is broken, then answers to the section's question, known ones first."""
    if found["status"] == "broken":
        return 0
    if found["sort"] == "answer":
        return 2 if found["status"] == "unknown" else 1
    return 3


def _status(facts: Facts, section: Section) -> str:
    if facts.status(section.notebook).get("status") in outline.DIED:
        return "broken"
    return findings.verdict(section.findings)[1] if section.findings else "none"


def _figure(figure: sections.Figure, drawn: Drawn, lang: str) -> dict[str, Any]:
    failed = word("figure_failed", lang, name=figure.name, error=drawn.error) if drawn.error else ""
    return {
        "id": drawn.stem,
        "alt": pick(figure.alt, lang),
        "caption": pick(figure.caption, lang),
        "failed": failed,
        "drawn": drawn,
    }


def _table(table: sections.Table, lang: str) -> dict[str, Any]:
    made = tables.grid(table.frame, lang, table.labels)
    notes = [pick(note, lang) for note in table.notes] + [f"{words.NONE} {reason}" for reason in made.reasons]
    return {"caption": pick(table.caption, lang), "html": tables.as_html(made), "notes": notes, "id": table.name}


def _lead(facts: Facts, shown: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Take the page's main figure out of its section, to stand under the answers; None where no section leads."""
    for section in shown:
        name = facts.made[section["notebook"]].lead if section["notebook"] in facts.made else ""
        for figure in section["figures"]:
            if name and figure["id"] == f"{section['notebook']}-{name}" and not figure["failed"]:
                section["figures"] = [one for one in section["figures"] if one is not figure]
                return {**figure, "notebook": section["notebook"], "number": 1}
    return None


def _count(shown: list[dict[str, Any]], lead: dict[str, Any] | None = None) -> None:
    """Number figures and tables through the page, so that a post can refer to them; the main figure is the first."""
    for kind in ("figures", "tables"):
        begin = 2 if kind == "figures" and lead else 1
        for number, one in enumerate((one for section in shown for one in section[kind]), start=begin):
            one["number"] = number


def run_facts(facts: Facts, lang: str) -> list[tuple[str, str]]:
    """Return the facts of run.json as (name, text), for the fold at the end."""
    birth = facts.birth
    git, subject = birth.get("git") or {}, facts.subject
    rows = [
        ("fact_run", birth.get("name") or facts.run.name),
        ("fact_subject", "; ".join(f"{k}: {v}" for k, v in subject.items() if v is not None)),
        ("fact_started", birth.get("started")),
        ("fact_ended", birth.get("ended")),
        ("fact_git", _git(git, lang)),
        ("fact_versions", _listed(birth.get("versions"))),
        ("fact_variables", _listed(birth.get("variables")) or word("no_variables", lang)),
        ("fact_parameters", _listed(birth.get("parameters"))),
        ("fact_load", _listed(birth.get("load"))),
    ]
    told = [(word(key, lang), str(value)) for key, value in rows if value]
    for notebook in HOUSE:
        row = facts.status(notebook)
        if row:
            said = " · ".join([str(row.get("status")), words.seconds(row.get("seconds"), lang)])
            told.append((word("fact_notebook", lang, notebook=notebook), said))
    return told


def _git(git: Any, lang: str) -> str:
    if not isinstance(git, dict) or not git.get("commit"):
        return ""
    return str(git["commit"])[:12] + (f" ({word('fact_uncommitted', lang)})" if git.get("dirty") else "")


def _listed(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{k}: {v}" for k, v in value.items() if v is not None)
    return "" if value is None else str(value)


def summary(facts: Facts, lang: str) -> str:
    """Return the Markdown summary for a forum: verdict, answers, the first table of each section, what is missing."""
    _, _, wording = verdict(facts)
    grids = [
        (pick(table.caption, lang), tables.as_markdown(tables.grid(table.frame, lang, table.labels)))
        for n, section in facts.made.items()
        if not section.missing
        for table in section.tables[:1]
    ]
    text = (
        templates()
        .get_template("summary.md.j2")
        .render(
            card=marked(card(facts, lang)),
            verdict=word(wording, lang),
            provenance=[marked(one) for one in provenance(facts, lang)],
            notices=[marked(one) for one in notices(facts, lang)],
            answers=[
                (word(q, lang), {k: marked(one) for k, one in _spoken(facts, q, lang).items()})
                for q in outline.QUESTIONS
            ],
            tables=grids,
            missing={marked(why): every for why, every in outline.missing(facts, lang).items()},
            joint="" if lang == "zh" else " ",
            w=functools.partial(word, lang=lang),
            version=__version__,
        )
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def marked(text: Any) -> str:
    """Return a sentence for Markdown: what is no code holds no tag; sites drop those that they do not know."""
    parts = html.unescape(str(text)).split("`")
    return "`".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(parts))
