"""What a verdict on one suspect is, and the one rule for a suspect that owns a part of the step.

The suspects' names and wordings live in `suspects.yaml`; the modules suspects_host, suspects_device,
suspects_card, suspects_clock and suspects_baseline judge them, and `hypotheses` puts the verdicts in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rocmlab import packaged, words
from rocmlab.clues import Clues, Span
from rocmlab.words import LANGUAGES

SUPPORTED, REFUTED, UNDECIDED, NOT_APPLICABLE = "supported", "refuted", "undecided", "not_applicable"
SHARE = 0.10  # of the step: what takes less is not why it is slow
OTHER = {"host": "device", "device": "host"}

Text = dict[str, str]


@dataclass(frozen=True)
class Verdict:
    """The verdict on one suspect.

    `span` is its share of T in ms (None: it has none, and `no_ms` says why); `grade` the evidence grade of that time;
    `records` the tables that were used; `decided_by` the notebooks that would decide an undecided one.
    """

    suspect: str
    verdict: str
    evidence: Text
    span: Span | None = None
    no_ms: Text = field(default_factory=dict)
    grade: str | None = None
    records: tuple[str, ...] = ()
    decided_by: tuple[str, ...] = ()
    step_ms: float | None = None

    @property
    def share_pct(self) -> float | None:
        return 100 * self.span.ms / self.step_ms if self.span and self.step_ms else None

    @property
    def name(self) -> Text:
        return table()["suspects"][self.suspect]["name"]

    @property
    def reversal(self) -> Text:
        """The result that would have turned the verdict round, or that would support an open one."""
        return table()["suspects"][self.suspect]["would_refute" if self.verdict == SUPPORTED else "would_support"]

    @property
    def is_limit(self) -> bool:
        """Tell whether the suspect is a limit of the hardware rather than a fault that can be mended."""
        return bool(table()["suspects"][self.suspect].get("limit"))


def table() -> dict[str, Any]:
    """Return suspects.yaml: `suspects` by name, and `general` wordings."""
    return packaged.read("suspects.yaml")


def order() -> list[str]:
    """Return the names of all suspects in the order of the file."""
    return list(table()["suspects"])


def said(suspect: str, wording: str, **values: Any) -> Text:
    """Return one wording of a suspect, or a general one, in both languages; values in both languages are picked."""
    entry = table()["suspects"][suspect]
    found = entry.get(wording) or table()["general"][wording]
    what = entry["name"]
    return {lang: found[lang].format(what=what[lang], **_picked(values, lang)) for lang in LANGUAGES}


def _picked(values: dict[str, Any], lang: str) -> dict[str, Any]:
    return {key: words.pick(one, lang) if isinstance(one, dict) else one for key, one in values.items()}


def ms(value: float | Span | None) -> str:
    """Write a time for a sentence."""
    return words.number(value.ms if isinstance(value, Span) else value, "ms")


def pct(share: float | None) -> str:
    return words.NONE if share is None else f"{100 * share:.0f}%"


def named(notebooks: tuple[str, ...]) -> Text:
    """Write "notebook 04", or "notebooks 04 and 05"."""
    key = "verdict_notebook" if len(notebooks) == 1 else "verdict_notebooks"
    return {lang: words.word(key, lang, names=words.word("list_and", lang).join(notebooks)) for lang in LANGUAGES}


def supported(suspect: str, wording: str = "supported", **given: Any) -> Verdict:
    return _verdict(suspect, SUPPORTED, wording, given)


def refuted(suspect: str, wording: str = "refuted", **given: Any) -> Verdict:
    return _verdict(suspect, REFUTED, wording, given)


def not_applicable(suspect: str, wording: str, **values: Any) -> Verdict:
    return Verdict(suspect, NOT_APPLICABLE, said(suspect, wording, **values), no_ms=words.both("verdict_not_here"))


def undecided(suspect: str, *notebooks: str, wording: str = "not_measured", **given: Any) -> Verdict:
    """Return an undecided verdict that names the notebooks which would decide it."""
    given = {"notebooks": named(notebooks), "decided_by": notebooks, **given}
    return _verdict(suspect, UNDECIDED, wording, given)


def within(found: Span, step: Span) -> Span:
    """Return a part cut to what a part of a step can be: what is measured apart may come out longer, or below 0."""
    return Span(*(min(max(end, 0.0), step.ms) for end in (found.ms, found.low, found.high)))


FIELDS = ("span", "no_ms", "grade", "records", "decided_by", "step_ms")


def _verdict(suspect: str, verdict: str, wording: str, given: dict[str, Any]) -> Verdict:
    kept = {key: given[key] for key in FIELDS if key in given}
    values = {key: value for key, value in given.items() if key not in FIELDS}
    return Verdict(suspect, verdict, said(suspect, wording, **values), **kept)


def by_share(
    clues: Clues, suspect: str, lane: str, found: Span | None, *, grade: str | None, records: tuple[str, ...],
    notebooks: tuple[str, ...], wording: str = "supported", **values: Any,
) -> Verdict:  # fmt: skip
    """Judge a suspect that owns a part of one lane: does it take a tenth of the step or more, in the lane that binds?

    Refuted: it takes less, or it is hidden behind the other lane. Undecided: not measured, an interval that reaches
    over the bound, or a step that neither lane explains.
    """
    step = clues.step
    if step is None or found is None:
        return undecided(suspect, *notebooks, records=records)
    found = within(found, step)
    share, binds = found.ms / step.ms, clues.binds(lane)
    told = {"ms": ms(found), "step": ms(step), "share": pct(share), **values}
    kept: dict[str, Any] = {"grade": grade, "records": records, "step_ms": step.ms}
    low, high = found.low / step.high, found.high / step.low
    if high < SHARE:
        hidden = binds is False
        return refuted(suspect, "small", span=Span(0.0, 0.0, 0.0) if hidden else found, **told, **kept)
    if binds is False:
        lanes = {"lane": words.both(f"lane_{OTHER[lane]}"), "hidden": ms(found)}
        return refuted(suspect, "hidden", span=Span(0.0, 0.0, 0.0), **lanes, **told, **kept)
    if low < SHARE:
        return undecided(suspect, *notebooks, wording="wide", span=found, low=ms(found.low), high=ms(found.high),
                         **told, **kept)  # fmt: skip
    if binds is None:
        wording = "mixed_cpu" if clues.on_cpu else "mixed"
        return undecided(suspect, "11", wording=wording, span=found, **told, **kept)
    return supported(suspect, wording, span=found, **told, **kept)
