"""Which remedy that exists here makes decode fastest, by how much, and at what price? Pure: rows of `experiments` in.

A remedy counts if its whole interval is faster and its logits are as near to float32 as rounding allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from rocmlab import texts, words
from rocmlab.clues import Clues
from rocmlab.findings import Finding, finding
from rocmlab.rates import is_number
from rocmlab.suspects_card import ratio_of

FASTER = 0.95  # of the step, at the worst end of the interval: less than 5% is no remedy
OF_BASELINE = 3.0  # times the error of the step as it is


@dataclass(frozen=True)
class Remedy:
    """One remedy: how many times faster (with its interval), tokens a second after it, and what it costs."""

    name: str
    gain: float
    low: float
    high: float
    tok_s: float | None
    row: dict[str, Any]

    @property
    def label(self) -> dict[str, str]:
        key = f"experiment_{self.name}"
        return words.both(key) if key in words.table() else dict.fromkeys(words.LANGUAGES, self.name.replace("_", " "))


def tried(clues: Clues) -> list[dict[str, Any]]:
    """Return the remedies that ran to their end."""
    rows = [row for row in clues.table("experiments") if row.get("kind") == "remedy" and row.get("exists") is not False]
    return [row for row in rows if ratio_of(row)]


def ranked(clues: Clues) -> list[Remedy]:
    """Return the remedies that are faster and right, the best first."""
    found = []
    for row in tried(clues):
        ratio = ratio_of(row)
        if ratio is None or ratio[1] > FASTER or not sound(row, clues.dtype):
            continue
        tokens = _number(row, "tokens_per_step", 1.0)
        gain, low, high = (tokens / ratio[place] for place in (0, 1, 2))
        step = clues.step.ms if clues.step else None
        found.append(Remedy(str(row["name"]), gain, low, high, 1000 * gain / step if step else None, row))
    return sorted(found, key=lambda one: -one.gain)


def sound(row: dict[str, Any], dtype: str) -> bool:
    """Tell whether a remedy's logits are right: their error is of the size that rounding and the usual step have."""
    error = row.get("logits_error")
    if error is None:
        return True
    if not is_number(error) or not math.isfinite(error):
        return False
    kind = row["name"] if row.get("name") in texts.EPSILON else dtype
    largest = min(_number(row, "logits_max_abs", 0.0), texts.LARGEST_LOGIT)
    rounding = texts.GAP_EPSILONS * texts.EPSILON.get(kind, texts.EPSILON["float16"]) * largest
    usual = OF_BASELINE * _number(row, "logits_error_baseline", 0.0)
    return bool(error <= max(texts.GAP_FLOOR_LOGITS, usual, rounding))


def _number(row: dict[str, Any], key: str, otherwise: float) -> float:
    value = row.get(key)
    return float(value) if is_number(value) else otherwise


def judge(clues: Clues) -> Finding | None:
    """Return the best remedy with gain, cost and error, that none helps, or None where none was tried."""
    every, best = tried(clues), ranked(clues)
    if not every:
        return None
    if not best:
        return finding("NO_REMEDY", numbers={"remedies_tried": len(every)})
    one = best[0]
    numbers: dict[str, Any] = {"gain_ratio": one.gain, "gain_low_ratio": one.low, "gain_high_ratio": one.high}
    numbers |= {"tok_s": one.tok_s, "before_tok_s": 1000 / clues.step.ms if clues.step else None}
    costs = {key: one.row.get(key) for key in ("compile_s", "memory_gib", "logits_error")}
    numbers |= costs
    numbers |= {f"{key}_reason": "not measured" for key, value in numbers.items() if value is None}
    said = {"gain": words.number(one.gain, "×"), "after": words.number(one.tok_s, "tok/s")}
    said["before"] = words.number(numbers["before_tok_s"], "tok/s")
    costs_said = {lang: _cost(costs, lang) for lang in words.LANGUAGES}
    variant = None if one.tok_s else "ratio"
    return finding("BEST_REMEDY", numbers=numbers, variant=variant, remedy=one.label, cost=costs_said, **said)


def _cost(costs: dict[str, Any], lang: str) -> str:
    """Return what a remedy costs in words: seconds to compile, memory, error of the logits."""
    parts = []
    if is_number(costs["compile_s"]) and costs["compile_s"] >= 0.1:
        parts.append(words.word("remedy_compile", lang, seconds=words.seconds(costs["compile_s"], lang)))
    if is_number(costs["memory_gib"]) and costs["memory_gib"] >= 0.01:
        parts.append(words.word("remedy_memory", lang, memory=words.number(costs["memory_gib"], "GiB")))
    error = costs["logits_error"]
    key = "remedy_error" if is_number(error) else "remedy_no_error"
    parts.append(words.word(key, lang, error=words.number(error)))
    return words.word("list_comma", lang).join(parts)
