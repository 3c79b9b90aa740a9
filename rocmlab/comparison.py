"""A comparison as one object for programs, and as text for a console. Pure: sides in, values out."""

from __future__ import annotations

from typing import Any

import pandas as pd

from rocmlab import alike, causes, compare, compare_tables, findings, machines, sides, tables, words
from rocmlab.alike import Match
from rocmlab.sides import Side


def as_data(every: list[Side], lang: str = "en") -> dict[str, Any]:
    """Return a comparison as one object: what differs, the ratio of a single pair or why there is none, every pair."""
    found = compare.judge(every)
    code, status = findings.verdict(found)
    sentence, advice = findings.paragraph(found, lang)
    pairs_of = [(a, b) for other in every[1:] for a, b in alike.pairs(every[0], other)]
    listed = [one for a, b in pairs_of for one in alike.matches(a, b)]
    also = [key for other in every[1:] for key in causes.explaining(every[0], other)[0] if key not in ("device", "os")]
    return {
        "kind": "comparison",
        "files": [side.label for side in every],
        "verdict": code,
        "status": status,
        "sentence": sentence,
        "advice": advice,
        "differs": [key for key in alike.ESSENTIAL if any(key in one.differs for one in listed)],
        "unstated": [key for key in alike.ESSENTIAL if any(key in one.unstated for one in listed)],
        "differs_also": list(dict.fromkeys(also)),
        "subject": list(sides.SUBJECT),
        **_single(listed),
        "pairs": [_match(one) for one in listed],
        "machines": [_machine(side) for side in every],
        "findings": [findings.say(one, lang) for one in found],
    }


def _single(listed: list[Match]) -> dict[str, Any]:
    """Return the ratio of a single pair, else null and why."""
    ratios = [one.ratio for one in listed]
    if len(ratios) == 1 and ratios[0]:
        return {"ratio": ratios[0].median}
    why = "there are several: see pairs"
    if not listed:
        why = "no quantity was measured on both"
    elif not any(one.like for one in listed):
        why = "the settings are not equal"
    elif not any(ratios):
        why = "a value is not above zero"
    return {"ratio": None, "ratio_reason": why}


def _match(one: Match) -> dict[str, Any]:
    span = one.ratio
    told: dict[str, Any] = {"one": one.one.name, "other": one.other.name, "question": one.first.question}
    told |= {"what": one.first.what, "values": [one.first.value, one.second.value], "metric": one.first.metric}
    told |= {"differs": one.differs, "unstated": one.unstated, "ratio": span.median if span else None}
    told |= {"ratio_low": span.low, "ratio_high": span.high, "n": span.n} if span and span.n else {}
    return told | {"roof_pct": [one.first.roof_pct, one.second.roof_pct], "roof_ratio": one.roof_ratio}


def _machine(side: Side) -> dict[str, Any]:
    device = side.machine
    facts = {"label": side.label, "name": device.name, "arch": device.arch, "pci_id": device.pci_id}
    return facts | {"memory_gib": machines.memory_gib(device), **side.factors, "reported": side.reported}


def console(every: list[Side], lang: str = "en") -> str:
    """Return a comparison for a terminal: what differs, findings, machines, then each question."""
    found = compare.judge(every)
    code, status = findings.verdict(found)
    mark = {"ok": "[ok]", "warn": "[!]", "broken": "[!!]", "unknown": "[?]"}
    parts = [f"{mark[status]} {code}", _text(compare_tables.differences(every), lang)]
    for one in found:
        said = findings.say(one, lang)
        parts.append(
            f"{mark[one['status']]} {said['sentence']}" + (f"\n    -> {said['advice']}" if said["advice"] else "")
        )
    parts.append(_text(compare_tables.machine_table(every), lang))
    for question in compare_tables.questions(every):
        name = compare.name_of(question)[lang]
        parts += [f"{name}:", _text(compare_tables.question_table(every, question), lang)]
    return "\n\n".join(part for part in parts if part)


def _text(frame: pd.DataFrame, lang: str) -> str:
    if frame.empty:
        return ""
    made = tables.grid(frame, lang, compare_tables.LABELS)
    return "\n".join([tables.as_text(made), *(f"{words.NONE} {reason}" for reason in made.reasons)])
