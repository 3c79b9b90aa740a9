"""What each notebook contributes to the page: question, findings, tables, figures, and how it was measured.

One module a notebook, each with `section(run) -> Section`: pure, from a run folder's records; nothing here measures.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import results, words
from rocmlab.findings import Finding

Text = dict[str, str]  # {"en": ..., "zh": ...}

HOUSE = tuple(f"{n:02d}" for n in range(1, 14))  # every notebook of the house, in order


@dataclass
class Table:
    """A summary table. Column names carry units (see tables.py); `labels` renames columns for readers."""

    name: str
    caption: Text
    frame: pd.DataFrame
    notes: list[Text] = field(default_factory=list)
    labels: dict[str, Any] = field(default_factory=dict)


@dataclass
class Figure:
    """A chart. `draw` takes nothing, draws on `figures.canvas()` and returns the matplotlib figure.

    It is called more than once (wide, and narrow for phones), so it must not keep state. `alt` says in words what the
    chart shows, with its main numbers.
    """

    name: str
    draw: Callable[[], Any]
    alt: Text
    caption: Text


@dataclass
class Section:
    """One notebook's part of the page.

    `answers` feeds the answer box ("works", "slow", "faster"); `missing` says in words why there is nothing here,
    `absent` why one table or figure is not, by its name;
    `discarded` are hypotheses that the measurements refuted; `provenance` are short facts for the grey line under the
    title (model, dtype); `lead` names the figure that stands right under the answers instead of in its section.
    """

    notebook: str
    question: Text
    findings: list[Finding] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    how: Text = field(default_factory=dict)
    answers: dict[str, Finding] = field(default_factory=dict)
    missing: Text | str | None = None
    absent: dict[str, Text] = field(default_factory=dict)
    discarded: list[Finding] = field(default_factory=list)
    provenance: list[str] = field(default_factory=list)
    lead: str = ""


def question(notebook: str) -> Text:
    """Return a notebook's question in both languages."""
    return words.both(f"question_{notebook}")


# Which module speaks for which notebook; a notebook without one is still listed as not measured, with the reason.
MODULES = {
    "01": "environment",
    "02": "operators",
    "03": "generation",
    "04": "prefill_decode",
    "05": "batch_sweep",
    "06": "llm_shapes",
    "07": "profiler",
    "08": "backends",
    "09": "attention",
    "11": "experiments",
    "12": "verdict",
    "13": "compare",
    "10": "vision_bert",
}


def snapshot(run: Path) -> dict[str, Any]:
    """Return the run's newest device snapshot: the record of notebook 01, else that of run.json, else {}."""
    found = results.rows(run, "snapshot")
    newest = found[-1] if found else results.birth(run).get("snapshot")
    return newest if isinstance(newest, dict) else {}


def collect(run: Path) -> list[Section]:
    """Return the section of every provider. One that cannot understand its records becomes a section that says so."""
    made = []
    for notebook, name in sorted(MODULES.items()):
        try:
            made.append(importlib.import_module(f"rocmlab.sections.{name}").section(run))
        except Exception as error:  # damaged or foreign records must never cost the reader the rest of the page
            said = f"{type(error).__name__}: {error}"
            why = words.both("reason_unreadable", notebook=notebook, error=said)
            made.append(Section(notebook, question(notebook), missing=why))
    return made
