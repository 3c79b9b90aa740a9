"""May two runs be compared, and what comes out? Pure: sides in, matches and findings out.

No ratio between unlike runs: `differing(a, b)` names the settings that differ or that nobody states. The first side is
the reference; a ratio says how many times as fast another one is, as measured and as a share of each machine's roof.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rocmlab import machines, sides, timing, words
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.sides import Item, Side
from rocmlab.timing import Interval

# What must be equal for a ratio, in the order in which it is told.
ESSENTIAL = (
    "model", "dtype", "batch", "prompt_tokens", "new_tokens", "stop_rule", "metric", "way", "image_size", "visit",
    "synchronized", "method_version", "evidence_grade",
)  # fmt: skip
# What may explain a difference beside the device, and how it is called.
FACTORS = {
    "os": "system", "torch_version": "torch", "hip_version": "ROCm", "cuda_version": "CUDA", "driver": "driver",
    "transformers_version": "transformers", "python_version": "Python", "cpu": "CPU", "variables": "variables",
    "model_revision": "model_revision", "attention_backend": "attention",
}  # fmt: skip
FAR_BELOW_PCT = 30.0  # of the own roof: what then holds a run back is not the card's memory (methods, section 5)
ABOUT_EQUAL = 0.02  # a ratio without an interval that lies nearer to one than this decides nothing


@dataclass(frozen=True)
class Party:
    """One device of one run: a side and its GPU or CPU arm."""

    side: Side
    arm: str

    @property
    def name(self) -> str:
        return f"{self.side.label} ({self.arm.upper()})"

    @property
    def items(self) -> list[Item]:
        return [one for one in self.side.items if one.arm == self.arm]


@dataclass(frozen=True)
class Match:
    """One quantity of two parties: alike, then with a ratio; else with what differs and what is not stated."""

    one: Party
    other: Party
    first: Item
    second: Item
    differs: list[str]
    unstated: list[str]

    @property
    def like(self) -> bool:
        return not self.differs and not self.unstated

    @property
    def ratio(self) -> Interval | None:
        """Return how many times as fast `other` is; without samples the ratio of the values alone (n = 0)."""
        return ratio(self.first, self.second) if self.like else None

    @property
    def roof_ratio(self) -> float | None:
        """Return the same for the shares of each machine's own roof; None where a roof is not known."""
        shares = self.second.roof_pct, self.first.roof_pct
        return shares[0] / shares[1] if self.like and shares[0] and shares[1] else None


# ---- alike?


def differing(one: Item, other: Item) -> tuple[list[str], list[str]]:
    """Return (settings that differ, settings that neither states though they apply): no ratio if there are any."""
    keys = [key for key in ESSENTIAL if key in one.settings or key in other.settings]
    pairs = {key: (one.settings.get(key), other.settings.get(key)) for key in keys}
    return [k for k, (a, b) in pairs.items() if a != b], [k for k, (a, b) in pairs.items() if a is None and b is None]


def ratio(first: Item, second: Item) -> Interval | None:
    """Return how many times as fast the second is, with its interval; None where a value is not above zero.

    Samples of two machines are no interleaved blocks: they are taken in order of measurement, as many as both have.
    """
    above, below = (second, first) if first.rises else (first, second)
    if min(above.value, below.value) <= 0:
        return None
    n = min(len(above.samples), len(below.samples))
    if n < 2 or min(above.samples + below.samples) <= 0:
        whole = above.value / below.value
        return Interval(whole, whole, whole, 0, enough=False)
    found = timing.ratio_interval(above.samples[:n], below.samples[:n])
    assert found is not None
    whole = statistics.median(above.samples) / statistics.median(below.samples)
    return Interval(whole, min(found.low, whole), max(found.high, whole), n, found.enough)


def parties(side: Side) -> list[Party]:
    """Return the devices of a side that have a quantity, the one under study first."""
    arms = sorted({one.arm for one in side.items}, key=lambda arm: arm != side.subject_arm)
    return [Party(side, arm) for arm in arms]


def pairs(one: Side, other: Side) -> list[tuple[Party, Party]]:
    """Return the devices that are set against each other: those under study, and the processors where both have one."""
    found = []
    for a in parties(one):
        for b in parties(other):
            studied = a.arm == one.subject_arm and b.arm == other.subject_arm
            if studied or a.arm == b.arm == "cpu":
                found.append((a, b))
    return found


def matches(a: Party, b: Party) -> list[Match]:
    """Return every pair of like quantities; of a question without one, the pair that differs least."""
    shared = [q for q in dict.fromkeys(i.question for i in a.items) if q in {i.question for i in b.items}]
    if not shared and len(a.items) == len(b.items) == 1:  # two single records: say what keeps them apart
        return [Match(a, b, a.items[0], b.items[0], *differing(a.items[0], b.items[0]))]
    found = []
    for question in shared:
        every = [
            Match(a, b, x, y, *differing(x, y))
            for x in a.items if x.question == question for y in b.items if y.question == question
        ]  # fmt: skip
        like = [one for one in every if one.like]
        found += like or [min(every, key=lambda one: len(one.differs) + len(one.unstated))]
    return found


# ---- what may explain it


def system_of(text: Any) -> str | None:
    """Return Windows, WSL, macOS or Linux for what a system calls itself; None for anything else."""
    said = str(text or "").lower()
    names = {"microsoft-standard": "WSL", "wsl": "WSL", "windows": "Windows", "darwin": "macOS", "macos": "macOS"}
    names |= {"linux": "Linux", "ubuntu": "Linux", "debian": "Linux", "fedora": "Linux", "arch": "Linux"}
    return next((name for key, name in names.items() if key in said), None)


def factor(side: Side, key: str) -> Any:
    """Return one factor in the form that is compared: the kind of system, Python without its patch level."""
    value = side.factors.get(key)
    if key == "os":
        return system_of(value) or value
    return ".".join(str(value).split(".")[:2]) if key == "python_version" and value else value


def explaining(one: Side, other: Side) -> tuple[list[str], list[str]]:
    """Return (factors that differ, factors that one or both do not state), the device among them, by their keys."""
    apart = machines.differ(one.machine, other.machine)
    found = ["device"] if apart or one.subject_arm != other.subject_arm else []
    unknown = ["device"] if apart is None and not found else []
    for key in FACTORS:
        a, b = factor(one, key), factor(other, key)
        if a is None and b is None:
            # A build is either for ROCm or for CUDA, and a record without these two fields never had them.
            unknown += [key] if key in ("os", "torch_version", "driver") else []
        elif a is None or b is None:
            runtime = key in ("hip_version", "cuda_version") and _runtimes(one, other)
            (found if runtime else unknown).append(key)
        elif a != b:
            found.append(key)
    return found, unknown


def _runtimes(one: Side, other: Side) -> bool:
    """Tell whether both sides are known by their torch, so that a missing ROCm or CUDA is none and not unknown."""
    return all(side.factors.get("torch_version") for side in (one, other))


def confounded(one: Side, other: Side) -> list[Finding]:
    """Say what may explain a difference: more than one thing, exactly one, or what cannot be told."""
    found, unknown = explaining(one, other)
    given = {"one": one.label, "other": other.label}
    lead = _lead(found, one, other)
    if len(found) > 1:
        rest = [key for key in found if key != lead]
        return [finding("CONFOUNDED", lead=_said(lead, one, other), others=joined(map(called, rest)), **given)]
    if unknown:
        names = joined(map(called, unknown))
        return [finding("FACTORS_UNKNOWN", others=names, **given)]
    if not found:
        return [finding("SAME_CONDITIONS", **given)]
    return [finding("ONE_DIFFERENCE", lead=_said(lead, one, other), **given)]


def _lead(found: list[str], one: Side, other: Side) -> str:
    """Return what a reader would take for the cause: another card, else another system, else the first."""
    return next((key for key in ("device", "os") if key in found), found[0] if found else "")


def _said(key: str, one: Side, other: Side) -> dict[str, str]:
    if key != "os":
        return called(key)
    kinds = [str(factor(side, "os")) for side in (one, other)]
    name = next((kind for kind in kinds if kind != "Linux"), kinds[0])
    return {"en": name, "zh": name}


def called(key: str) -> dict[str, str]:
    """Return the name of a factor in both languages."""
    name = FACTORS.get(key, key)
    return words.both(f"factor_{name}") if name in ("device", "system", "driver", "variables", "model_revision") else (
        {"en": name, "zh": name}
    )  # fmt: skip


def joined(names: Iterable[dict[str, str]]) -> dict[str, str]:
    """Return "a, b and c" in both languages."""
    every = list(names)
    said = {lang: list(dict.fromkeys(one[lang] for one in every)) for lang in words.LANGUAGES}
    en = said["en"]
    return {"en": " and ".join([", ".join(en[:-1]), en[-1]] if len(en) > 1 else en), "zh": "、".join(said["zh"])}


# ---- findings


def judge(every: list[Side]) -> list[Finding]:
    """Return what a comparison may say, in the order in which it must be read; the first side is the reference.

    First what is unlike, then names that mislead and runs far below their own roof, then ratios, then what else may
    explain them.
    """
    unlike, ratios, causes = [], [], []
    for other in every[1:]:
        found = [one for a, b in pairs(every[0], other) for one in matches(a, b)]
        unlike += not_comparable(found) if found else nothing(every[0], other)
        ratios += compared(found)
        if not (every[0].reported or other.reported):
            causes += confounded(every[0], other)
    held = [one for side in every for one in below_roof(side)]
    told = machines.judge([side.machine for side in every])
    claims = [finding("CLAIM_OF_SOURCE", who=s.label, claim=one) for s in every for one in s.claims if "en" in one]
    return worst_first([*unlike, *told, *held, *causes, *ratios, *claims])


def nothing(one: Side, other: Side) -> list[Finding]:
    """Say that two sides share no question at all."""
    return [finding("NOTHING_IN_COMMON", one=one.label, other=other.label)]


def not_comparable(found: list[Match]) -> list[Finding]:
    """Name the questions of two sides that have no like pair, with the settings that differ, those first."""
    said: list[Finding] = []
    groups: dict[tuple[str, ...], list[Match]] = {}
    for one in found:
        if not one.like:
            who = (one.one.name, one.other.name)
            groups.setdefault((*who, *one.differs, "|", *one.unstated), []).append(one)
    for mine in groups.values():
        first = mine[0]
        given = {"one": first.one.name, "other": first.other.name}
        given["questions"] = joined(words.both(f"compare_{one.first.question}") for one in mine)  # type: ignore[assignment]
        fields = ", ".join(shown(first, key) for key in first.differs)
        variant = None if first.differs else "unstated"
        numbers = {"ratio": None, "ratio_reason": "the settings are not equal"}
        unstated = ", ".join(first.unstated)
        said.append(
            finding("NOT_COMPARABLE", numbers=numbers, variant=variant, fields=fields, unstated=unstated, **given)
        )
    return said


def shown(match: Match, key: str) -> str:
    """Return "dtype (float16 / float32)"; what a side does not state is a question mark."""
    values = (one.settings.get(key) for one in (match.first, match.second))
    return f"{key} ({' / '.join('?' if value is None else str(value) for value in values)})"


def below_roof(side: Side) -> list[Finding]:
    """Name a run whose decode is far below what its own memory allows: a ratio then shows what holds it back."""
    mine = [one for one in side.items if one.question in ("decode", "e2e") and one.arm == side.subject_arm]
    known = [one for one in mine if one.roof_pct is not None]
    if not known:
        return []
    best = max(known, key=lambda one: one.roof_pct or 0)
    if (best.roof_pct or 0) > FAR_BELOW_PCT:
        return []
    numbers = {"roof_pct": best.roof_pct, "gb_s": best.gb_s, "value": best.value}
    kind = words.both("roof_measured" if best.roof_kind == "measured" else "roof_stated")
    return [finding("FAR_BELOW_ROOF", numbers=numbers, who=side.label, kind=kind, limit=FAR_BELOW_PCT)]


def compared(found: list[Match]) -> list[Finding]:
    """Say the ratio of each question that has a like pair: the pair with most samples speaks, the others give a range."""
    said = []
    groups: dict[tuple[str, ...], list[tuple[Match, Interval]]] = {}
    for one in found:
        if value := one.ratio:
            groups.setdefault((one.one.name, one.other.name, one.first.question), []).append((one, value))
    for (_, _, question), mine in groups.items():
        best, span = max(mine, key=lambda pair: pair[1].n)
        numbers: dict[str, Any] = {"ratio": span.median, "ratio_low": span.low, "ratio_high": span.high, "n": span.n}
        numbers["roof_ratio"] = best.roof_ratio
        if best.roof_ratio is None:
            numbers["roof_ratio_reason"] = "the roof of one of them is not known"
        medians = [value.median for _, value in mine]
        given: dict[str, Any] = {"one": best.one.name, "other": best.other.name, "what": best.first.what}
        given |= {"question": words.both(f"compare_{question}"), "count": len(mine)}
        given |= {"least": min(medians), "most": max(medians), "span": span_of(span)}
        given |= {"shares": shares(best)}
        said.append(finding(code_of(span), numbers=numbers, **given))
    return said


def code_of(span: Interval) -> str:
    """Return whether a ratio shows a difference, none, or cannot tell (an interval needs six samples of each side)."""
    if span.n and not span.enough:
        return "RATIO_TOO_FEW"
    if span.low <= 1 <= span.high or (not span.n and abs(span.median - 1) < ABOUT_EQUAL):
        return "RATIO_UNDECIDED"
    return "RATIO_FOUND"


def span_of(span: Interval) -> dict[str, str]:
    """Return "1.84 (1.80-1.90)" in words: a range below six samples, the bare value without any."""
    ends = f"{span.low:.3g}-{span.high:.3g}"
    if not span.n:
        return words.both("compare_no_interval", ratio=f"{span.median:.3g}")
    return words.both("compare_interval" if span.enough else "compare_range", ratio=f"{span.median:.3g}", ends=ends)


def shares(match: Match) -> dict[str, str]:
    """Say each side's share of its own roof, or that one is not known."""
    if match.roof_ratio is None:
        return words.both("compare_no_shares")
    other, one = (f"{share:.0f}" for share in (match.second.roof_pct, match.first.roof_pct))
    return words.both("compare_shares", other=other, one=one, ratio=f"{match.roof_ratio:.2f}")


# ---- for programs


def as_data(every: list[Side], lang: str = "en") -> dict[str, Any]:
    """Return a comparison as one object: what differs, the ratio of a single pair or why there is none, every pair."""
    from rocmlab import findings

    found = judge(every)
    code, status = findings.verdict(found)
    sentence, advice = findings.paragraph(found, lang)
    pairs_of = [(a, b) for other in every[1:] for a, b in pairs(every[0], other)]
    listed = [one for a, b in pairs_of for one in matches(a, b)]
    also = [key for other in every[1:] for key in explaining(every[0], other)[0] if key not in ("device", "os")]
    ratios = [one.ratio for one in listed]
    return {
        "kind": "comparison",
        "files": [side.label for side in every],
        "verdict": code,
        "status": status,
        "sentence": sentence,
        "advice": advice,
        "differs": [key for key in ESSENTIAL if any(key in one.differs for one in listed)],
        "unstated": [key for key in ESSENTIAL if any(key in one.unstated for one in listed)],
        "differs_also": list(dict.fromkeys(also)),
        "subject": list(sides.SUBJECT),
        **_single(ratios),
        "pairs": [_match(one) for one in listed],
        "machines": [_machine(side) for side in every],
        "findings": [findings.say(one, lang) for one in found],
    }


def _single(ratios: list[Interval | None]) -> dict[str, Any]:
    if len(ratios) == 1 and ratios[0]:
        return {"ratio": ratios[0].median}
    why = "the settings are not equal" if not any(ratios) else "there are several: see pairs"
    return {"ratio": None, "ratio_reason": why if ratios else "no quantity was measured on both"}


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
