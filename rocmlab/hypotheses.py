"""Why is it slow? Every suspect ends supported, refuted, undecided or not applicable, with its share of the step. Pure.

`judge(clues)` returns the verdicts: supported ones first, the dearest at the top. A judge that cannot understand its
records makes an undecided verdict, never an exception: one odd table must not cost the reader the others.
"""

from __future__ import annotations

from collections.abc import Callable

from rocmlab import suspects_baseline, suspects_device, suspects_host
from rocmlab.clues import Clues
from rocmlab.suspects import NOT_APPLICABLE, REFUTED, SUPPORTED, UNDECIDED, Verdict, order, table, undecided

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
    "wrong_dtype": suspects_device.wrong_dtype,
    "attention": suspects_device.attention,
    "small_operators": suspects_device.small_operators,
    "model_small": suspects_device.model_small,
    "clocks": suspects_device.clocks,
    "spilled": suspects_device.spilled,
    "strong_cpu": suspects_baseline.strong_cpu,
    "weak_cpu": suspects_baseline.weak_cpu,
    "artefact": suspects_baseline.artefact,
    "wrong_numbers": suspects_baseline.wrong_numbers,
}


def judge(clues: Clues) -> list[Verdict]:
    """Return one verdict a suspect, sorted: by verdict, then by ms, the largest first."""
    found = [_one(name, clues) for name in order()]
    return sorted(found, key=lambda one: (ORDER.index(one.verdict), -(one.span.ms if one.span else -1.0)))


def _one(name: str, clues: Clues) -> Verdict:
    try:
        return JUDGES[name](clues)
    except (ArithmeticError, AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        notebooks = table()["suspects"][name]["decided_by"]
        return undecided(name, *notebooks, wording="unreadable", error=f"{type(error).__name__}: {error}")
