"""Why is it slow? Every suspect ends supported, refuted, undecided or not applicable, with its share of the step. Pure.

`judge(clues)` returns the verdicts: supported ones first, the dearest part of the step at the top, then what is paid
outside it or is a limit. A judge that cannot understand its records makes an undecided verdict, never an exception: one
odd table must not cost the reader the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from rocmlab import suspects_baseline, suspects_card, suspects_clock, suspects_device, suspects_host, words
from rocmlab.clues import Clues
from rocmlab.suspects import (
    NOT_APPLICABLE,
    REFUTED,
    SUPPORTED,
    UNDECIDED,
    Verdict,
    named,
    order,
    said,
    table,
    undecided,
)  # fmt: skip

ORDER = (SUPPORTED, UNDECIDED, REFUTED, NOT_APPLICABLE)

JUDGES: dict[str, Callable[[Clues], Verdict]] = {
    "python_dispatch": suspects_host.python_dispatch,
    "launches": suspects_host.launches,
    "submission": suspects_host.submission,
    "waiting": suspects_host.waiting,
    "cpu_fallback": suspects_host.cpu_fallback,
    "new_shapes": suspects_host.new_shapes,
    "bandwidth": suspects_device.bandwidth,
    "slow_products": suspects_device.slow_products,
    "wrong_dtype": suspects_card.wrong_dtype,
    "attention": suspects_device.attention,
    "small_operators": suspects_device.small_operators,
    "model_small": suspects_card.model_small,
    "clocks": suspects_clock.clocks,
    "spilled": suspects_card.spilled,
    "strong_cpu": suspects_baseline.strong_cpu,
    "weak_cpu": suspects_baseline.weak_cpu,
    "artefact": suspects_baseline.artefact,
    "wrong_numbers": suspects_baseline.wrong_numbers,
}


def judge(clues: Clues) -> list[Verdict]:
    """Return one verdict a suspect, sorted: by verdict, faults before limits, then by ms, the largest first.

    Where the measuring itself is at fault, no verdict that rests on a time stands.
    """
    found = [_one(name, clues) for name in order()]
    if any(one.suspect == "artefact" and one.verdict == SUPPORTED for one in found):
        found = [doubted(one) for one in found]
    return sorted(found, key=_rank)


def doubted(one: Verdict) -> Verdict:
    """Return a verdict that rests on times as undecided, with what was seen; the others stay."""
    entry = table()["suspects"][one.suspect]
    if one.verdict not in (SUPPORTED, REFUTED) or entry.get("timed") is False:
        return one
    notebooks = tuple(entry["decided_by"])
    why = said(one.suspect, "doubted", notebooks=named(notebooks))
    told = {lang: one.evidence[lang] + ("" if lang == "zh" else " ") + why[lang] for lang in words.LANGUAGES}
    return dataclasses.replace(one, verdict=UNDECIDED, evidence=told, decided_by=notebooks)


def _rank(one: Verdict) -> tuple[int, bool, bool, float]:
    return ORDER.index(one.verdict), one.is_limit, one.share_pct is None, -(one.span.ms if one.span else 0.0)


def _one(name: str, clues: Clues) -> Verdict:
    try:
        return JUDGES[name](clues)
    except (ArithmeticError, AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        notebooks = table()["suspects"][name]["decided_by"]
        return undecided(name, *notebooks, wording="unreadable", error=f"{type(error).__name__}: {error}")
