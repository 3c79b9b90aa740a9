"""What stands on the front page of a run, as text: answers, sections, what is missing; and the summary to paste."""

from __future__ import annotations

import functools
import html
import re
from typing import Any

from rocmlab import METHOD_VERSION, __version__, findings, outline, sections, tables, templates, words
from rocmlab.findings import Finding
from rocmlab.outline import Facts, answers, card, notices, provenance, reason, verdict, why_not
from rocmlab.pictures import Drawn, Pictures
from rocmlab.run_facts import run_facts
from rocmlab.sections import HOUSE, Section
from rocmlab.words import LANGUAGES, pick, word

SIGNS = {"ok": "✓", "warn": "!", "broken": "✕", "unknown": "?", "none": "–"}


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
        "css": templates.css(),
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
        "summary_file": templates.file_name("summary", "md", lang, main),
        "other": other,
        "other_file": templates.file_name("index", "html", other, main),
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
        "page": f"pages/{templates.file_name(notebook, 'html', lang, main)}" if notebook in facts.notebooks else "",
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
        templates.environment()
        .get_template("summary.md.j2")
        .render(
            card=card(facts, lang),
            verdict=word(wording, lang),
            provenance=provenance(facts, lang),
            notices=notices(facts, lang),
            answers=[(word(q, lang), _spoken(facts, q, lang)) for q in outline.QUESTIONS],
            tables=grids,
            missing=outline.missing(facts, lang),
            joint="" if lang == "zh" else " ",
            w=functools.partial(word, lang=lang),
            version=__version__,
        )
    )
    return html.unescape(re.sub(r"\n{3,}", "\n\n", text)).strip() + "\n"
