"""What may be said about runs side by side? Pure: sides in, findings out.

The first side is the reference; a ratio says how many times as fast another one is, as measured and as a share of each
machine's own roof. What is unlike comes first, and a run far below its roof is named before any ratio.
"""

from __future__ import annotations

from typing import Any

from rocmlab import alike, causes, machines, words
from rocmlab.alike import Match
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.sides import Side
from rocmlab.timing import Interval

FAR_BELOW_PCT = 30.0  # of the own roof: what then holds a run back is not the card's memory (methods, section 5)
WITH_ROOF = ("decode", "e2e", "bandwidth")  # questions about which the memory's speed says how much is possible
ABOUT_EQUAL = 0.02  # a ratio without an interval that lies nearer to one than this decides nothing


def name_of(question: str) -> dict[str, str]:
    """Return the name of a question in both languages; a metric of a foreign record stands for itself."""
    known = f"compare_{question}" in words.table()
    return words.both(f"compare_{question}") if known else dict.fromkeys(words.LANGUAGES, question)


def judge(every: list[Side]) -> list[Finding]:
    """Return what a comparison may say, in the order in which it must be read; the first side is the reference.

    First what is unlike, then names that mislead and runs far below their own roof, then ratios, then what else may
    explain them.
    """
    unlike, ratios, told_causes = [], [], []
    for other in every[1:]:
        found = [one for a, b in alike.pairs(every[0], other) for one in alike.matches(a, b)]
        unlike += not_comparable(found) if found else nothing(every[0], other)
        ratios += compared(found)
        if not (every[0].reported or other.reported):
            told_causes += causes.confounded(every[0], other)
    held = [one for side in every for one in [*above_roof(side), *below_roof(side)]]
    told = machines.judge([side.machine for side in every])
    return worst_first([*unlike, *told, *held, *told_causes, *ratios, *claims(every)])


def claims(every: list[Side]) -> list[Finding]:
    """Say of each reported run what its source leaves open."""
    told = [
        (side.label, one) for side in every for one in side.claims if isinstance(one, dict) and {"en", "zh"} <= set(one)
    ]
    return [finding("CLAIM_OF_SOURCE", who=label, claim=one) for label, one in told]


def nothing(one: Side, other: Side) -> list[Finding]:
    """Say that two sides share no question at all."""
    return [finding("NOTHING_IN_COMMON", one=one.label, other=other.label)]


def not_comparable(found: list[Match]) -> list[Finding]:
    """Name the questions of two devices that have no like pair, with the settings that differ, those first."""
    groups: dict[tuple[str, ...], list[Match]] = {}
    for one in found:
        if not one.like:
            groups.setdefault((*one.differs, "|", *one.unstated), []).append(one)
    pairs: dict[tuple[str, str, bool], list[list[Match]]] = {}
    for mine in groups.values():
        for who in dict.fromkeys((one.one.name, one.other.name) for one in mine):
            same = [one for one in mine if (one.one.name, one.other.name) == who]
            pairs.setdefault((*who, bool(same[0].differs)), []).append(same)
    numbers = {"ratio": None, "ratio_reason": "the settings are not equal"}
    said = []
    for (first, second, differ), several in pairs.items():
        told = [{lang: f"{asked(mine)[lang]}: {open_(mine[0])[lang]}" for lang in words.LANGUAGES} for mine in several]
        given = {"en": "; ".join(part["en"] for part in told), "zh": "；".join(part["zh"] for part in told)}
        variant = None if differ else "unstated"
        said.append(finding("NOT_COMPARABLE", numbers=numbers, variant=variant, one=first, other=second, fields=given))
    return said


def asked(mine: list[Match]) -> dict[str, str]:
    """Return the questions of some matches in words."""
    names = dict.fromkeys(item.question for one in mine for item in (one.first, one.second))
    return causes.joined(name_of(name) for name in names)


def open_(match: Match) -> dict[str, str]:
    """Return what keeps a match from a ratio: settings that differ, else those that nobody states."""
    return fields(match) if match.differs else dict.fromkeys(words.LANGUAGES, ", ".join(match.unstated))


def fields(match: Match) -> dict[str, str]:
    """Return "dtype (float16 / float32); only one states visit": what differs, and what one side leaves open."""
    values = {key: (match.first.settings.get(key), match.second.settings.get(key)) for key in match.differs}
    told = [f"{key} ({a} / {b})" for key, (a, b) in values.items() if a is not None and b is not None]
    open_ = ", ".join(key for key, pair in values.items() if None in pair)
    parts = {lang: [", ".join(told)] if told else [] for lang in words.LANGUAGES}
    for lang, said in parts.items():
        said += [words.word("compare_half_stated", lang, keys=open_)] if open_ else []
    return {"en": "; ".join(parts["en"]), "zh": "；".join(parts["zh"])}


def above_roof(side: Side) -> list[Finding]:
    """Name a rate that cannot be: it is left out of every ratio."""
    wrong = [one for one in side.items if not one.possible]
    if not wrong:
        return []
    worst = max(wrong, key=lambda one: one.roof_pct or 0)
    kind = words.both("roof_measured" if worst.roof_kind == "measured" else "roof_stated")
    numbers = {"roof_pct": worst.roof_pct, "gb_s": worst.gb_s, "left_out": len(wrong)}
    return [finding("ABOVE_ROOF", numbers=numbers, who=side.label, what=worst.what, kind=kind)]


def below_roof(side: Side) -> list[Finding]:
    """Name a run whose decode is far below what its own memory allows: a ratio then shows what holds it back."""
    mine = [one for one in side.items if one.question in ("decode", "e2e") and one.arm == side.subject_arm]
    known = [one for one in mine if one.roof_pct is not None and one.possible]
    if not known:
        return []
    best = max(known, key=lambda one: one.roof_pct or 0)
    if (best.roof_pct or 0) > FAR_BELOW_PCT:
        return []
    numbers = {"roof_pct": best.roof_pct, "gb_s": best.gb_s, "value": best.value}
    kind = words.both("roof_measured" if best.roof_kind == "measured" else "roof_stated")
    return [finding("FAR_BELOW_ROOF", numbers=numbers, who=side.label, kind=kind, limit=FAR_BELOW_PCT)]


def compared(found: list[Match]) -> list[Finding]:
    """Say the ratio of each question with like pairs: the pair with most samples speaks, of several the middle one; the
    others give a range."""
    said = []
    groups: dict[tuple[str, ...], list[tuple[Match, Interval]]] = {}
    for one in found:
        if value := one.ratio:
            groups.setdefault((one.one.name, one.other.name, one.first.question), []).append((one, value))
    for (_, _, question), mine in groups.items():
        several = alike.pooled([one for one, _ in mine]) if question in alike.POOLED else []
        most = max(value.n for _, value in [*mine, *several])
        ranked = sorted((pair for pair in [*mine, *several] if pair[1].n == most), key=lambda pair: pair[1].median)
        best, span = ranked[(len(ranked) - 1) // 2]  # of equals the one in the middle, not whichever came first
        numbers: dict[str, Any] = {"ratio": span.median, "ratio_low": span.low, "ratio_high": span.high, "n": span.n}
        numbers["roof_ratio"] = best.roof_ratio
        if best.roof_ratio is None:
            numbers["roof_ratio_reason"] = "the roof of one of them is not known"
        medians = [value.median for _, value in mine]
        given: dict[str, Any] = {"one": best.one.name, "other": best.other.name, "what": best.first.what}
        given |= {"question": name_of(question), "count": len(mine)}
        given |= {"least": min(medians), "most": max(medians), "span": span_of(span), "shares": shares(best)}
        code = code_of(span)
        variant = "single" if code == "RATIO_FOUND" and len(mine) == 1 else None
        said.append(finding(code, numbers=numbers, variant=variant, **given))
    return _few_together(said)


def _few_together(said: list[Finding]) -> list[Finding]:
    """Return the same, with the ratios of two devices that have too few samples in one sentence."""
    kept = [one for one in said if one["code"] != "RATIO_TOO_FEW"]
    groups: dict[tuple[str, str], list[Finding]] = {}
    for one in said:
        if one["code"] == "RATIO_TOO_FEW":
            groups.setdefault((one["words"]["one"], one["words"]["other"]), []).append(one)
    for (first, other), mine in groups.items():
        names = [
            {lang: f"{one['words']['question'][lang]} {one['words']['span'][lang]}" for lang in words.LANGUAGES}
            for one in mine
        ]
        values = {"en": ", ".join(one["en"] for one in names), "zh": "，".join(one["zh"] for one in names)}
        numbers = mine[0]["numbers"] if len(mine) == 1 else {}
        kept.append(finding("RATIO_TOO_FEW", numbers=numbers, one=first, other=other, values=values))
    return kept


def code_of(span: Interval) -> str:
    """Return whether a ratio shows a difference, none, or cannot tell (an interval needs six samples of each side)."""
    if span.n and not span.enough:
        return "RATIO_TOO_FEW"
    if span.low <= 1 <= span.high or (not span.n and abs(span.median - 1) < ABOUT_EQUAL):
        return "RATIO_UNDECIDED"
    return "RATIO_FOUND"


def span_of(span: Interval) -> dict[str, str]:
    """Return "1.84 (1.80 to 1.90)" in words: a range below six samples, the bare value without any."""
    ratio, low, high = (words.number(float(one)) for one in (span.median, span.low, span.high))
    if not span.n:
        return words.both("compare_no_interval", ratio=ratio)
    return words.both("compare_interval" if span.enough else "compare_range", ratio=ratio, low=low, high=high)


def shares(match: Match) -> dict[str, str]:
    """Say each side's share of its own roof, or that one is not known; nothing of a quantity that has no such roof."""
    if match.first.question not in WITH_ROOF:
        return dict.fromkeys(words.LANGUAGES, "")
    if match.roof_ratio is None:
        return words.both("compare_no_shares")
    other, one = (percent(share) for share in (match.second.roof_pct, match.first.roof_pct))
    return words.both("compare_shares", other=other, one=one, ratio=words.number(match.roof_ratio))


def percent(share: float | None) -> str:
    """Return a share without needless digits: 13, 0.42; "?" for none."""
    return "?" if share is None else f"{share:.0f}" if share >= 1 else f"{share:.2g}"
