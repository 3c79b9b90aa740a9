"""Which quantities of two runs are alike, and what is their ratio? Pure: sides in, matches out.

No ratio between unlike quantities: `differing(a, b)` names the settings that differ, and those that nobody states.
"""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass
from typing import Any

from rocmlab import timing
from rocmlab.quantities import Item
from rocmlab.sides import Side
from rocmlab.timing import Interval

# What must be equal for a ratio, in the order in which it is told.
ESSENTIAL = (
    "model", "dtype", "batch", "prompt_tokens", "new_tokens", "stop_rule", "metric", "way", "image_px", "length_tokens",
    "layout", "visit", "synchronized", "method_version", "evidence_grade",
)  # fmt: skip
POOLED = ("decode", "e2e")  # questions in which prompts are blocks of one measurement (methods, section 3)
ENDS = ("first", "second")


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
    unlike = [
        k for k, (a, b) in pairs.items() if a != b or (k == "synchronized" and not a)
    ]  # two clocks that stop early
    return unlike, [k for k, (a, b) in pairs.items() if a is None and b is None and k not in unlike]


def ratio(first: Item, second: Item, blocks: bool = False) -> Interval | None:
    """Return how many times as fast the second is, with its interval; None where a value is not above zero.

    Samples of two machines were not taken in turns, so each side is drawn by itself; `blocks`: the i-th samples of both
    are of the same prompt.
    """
    above, below = (second, first) if first.rises else (first, second)
    if min(above.value, below.value) <= 0:
        return None
    if min(len(above.samples), len(below.samples)) < 2 or min(above.samples + below.samples) <= 0:
        whole = above.value / below.value
        return Interval(whole, whole, whole, 0, enough=False)
    return (timing.ratio_interval if blocks else timing.apart_interval)(above.samples, below.samples)


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
            for x in a.items if x.question == question and x.possible
            for y in b.items if y.question == question and y.possible
        ]  # fmt: skip
        like = [one for one in every if one.like]
        if not every:
            continue
        found += like or [min(every, key=lambda one: len(one.differs) + len(one.unstated))]
    return found


# ---- prompts as blocks


def pooled(found: list[Match]) -> list[tuple[Match, Interval]]:
    """Return one match over all prompts of each setting: every prompt hardly changes the rate, and each is a block.

    Blocks of one prompt stay together, so that a prompt which one side lacks never weighs on the other.
    """
    groups: dict[tuple[Any, ...], list[Match]] = {}
    for one in found:
        kept = tuple(one.first.settings.get(key) for key in ESSENTIAL if key != "prompt_tokens")
        groups.setdefault(kept, []).append(one)
    made = []
    for mine in groups.values():
        if len(mine) < 2 or not all(one.first.samples and one.second.samples for one in mine):
            continue
        counts = [min(len(one.first.samples), len(one.second.samples)) for one in mine]
        sides = [[getattr(one, end).samples[:n] for one, n in zip(mine, counts, strict=True)] for end in ENDS]
        both = [[sample for block in blocks for sample in block] for blocks in sides]
        items = [_together([getattr(one, end) for one in mine], all_) for end, all_ in zip(ENDS, both, strict=True)]
        match = dataclasses.replace(mine[0], first=items[0], second=items[1])
        span = ratio(items[0], items[1], blocks=True)
        made += [(match, span)] if span else []
    return made


def _together(items: list[Item], samples: list[float]) -> Item:
    """Return prompts as one quantity: all samples, the middle of their shares of the roof."""
    shares = [one.roof_pct for one in items if one.roof_pct is not None]
    share = statistics.median(shares) if len(shares) == len(items) else None
    what, middle = f"{len(items)} prompts", statistics.median(samples)
    return dataclasses.replace(items[0], what=what, samples=samples, value=middle, roof_pct=share)
