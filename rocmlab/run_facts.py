"""What run.json says of a run, as names and texts for the fold at the end of the page."""

from __future__ import annotations

from typing import Any

from rocmlab import words
from rocmlab.outline import Facts
from rocmlab.sections import HOUSE
from rocmlab.words import word


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
