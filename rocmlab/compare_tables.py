"""Runs side by side as tables. Pure: sides in, frames out.

`differences` comes first, then `machine_table`, then one `question_table` a question. The column `row_class` marks rows
that are references; a row whose settings are not those of the first run has no ratio, and says which differ.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

import pandas as pd

from rocmlab import alike, causes, compare, machines, words
from rocmlab.alike import Match, Party
from rocmlab.quantities import QUESTIONS, Item
from rocmlab.rates import is_number
from rocmlab.sides import Side
from rocmlab.timing import Interval, median_interval

REFERENCE = "reference"  # css class of a grey row
ORDER = tuple(dict.fromkeys(QUESTIONS.values()))

MOST = 12  # settings of a question that are shown for one device


def role(side: Side, first: Side, references: Container[str]) -> dict[str, str]:
    """Return what a run is here: this one, compared, reported by others, or a reference of ours."""
    if side is first:
        return words.both("compare_this")
    if side.reported:
        return words.both("compare_reported")
    return words.both("compare_reference" if side.label in references else "compare_other")


def _class(side: Side, references: Container[str]) -> str:
    return REFERENCE if side.reported or side.label in references else ""


def differences(every: list[Side], references: Container[str] = ()) -> pd.DataFrame:
    """Return one line a pair of devices and set of differing settings: questions, settings, what else differs."""
    lines: list[dict[str, Any]] = []
    for other in every[1:]:
        others = causes.joined(map(causes.called, causes.explaining(every[0], other)[0]))
        for a, b in alike.pairs(every[0], other):
            groups: dict[tuple[str, ...], list[Match]] = {}
            for one in alike.matches(a, b):
                groups.setdefault((*one.differs, "|", *one.unstated), []).append(one)
            for mine in groups.values():
                names = dict.fromkeys(item.question for one in mine for item in (one.first, one.second))
                line: dict[str, Any] = {"compare_run": f"{a.name} / {b.name}"}
                line["compare_question"] = causes.joined(compare.name_of(name) for name in names)
                line["compare_settings"] = settings(mine[0])
                line["compare_causes"] = others if others["en"] else words.both("compare_nothing")
                lines.append(line | {"row_class": _class(other, references)})
    columns = ["compare_run", "compare_question", "compare_settings", "compare_causes", "row_class"]
    return pd.DataFrame(lines, columns=columns)


def settings(match: Match) -> Any:
    """Return the settings that differ with both values, then those that nobody states; "nothing" when alike."""
    said = compare.fields(match)
    if match.unstated:
        nobody = words.both("compare_unstated", keys=", ".join(match.unstated))
        said = {lang: "; ".join(filter(None, (said[lang], nobody[lang]))) for lang in words.LANGUAGES}
    return said if said["en"] else words.both("compare_nothing")


def machine_table(every: list[Side], references: Container[str] = ()) -> pd.DataFrame:
    """Return one line a run: device, target, memory, PCI id, system, torch, runtime, driver."""
    lines = []
    for side in every:
        device, facts = side.machine, side.factors
        line: dict[str, Any] = {"compare_run": side.label, "compare_role": role(side, every[0], references)}
        line |= {"compare_device": device.name, "compare_arch": device.arch}
        line |= {"compare_memory_gib": machines.memory_gib(device), "compare_pci_id": device.pci_id}
        line |= {"compare_system": system(facts.get("os")), "compare_torch": facts.get("torch_version")}
        line["compare_runtime"] = facts.get("hip_version") or facts.get("cuda_version")
        line["compare_driver"] = facts.get("driver")
        stated = {f"{key}_reason": words.both("compare_not_stated") for key, one in line.items() if one is None}
        lines.append(line | stated | {"row_class": _class(side, references)})
    return pd.DataFrame(lines)


def system(text: Any) -> Any:
    """Return "Linux 6.8.0" for Linux-6.8.0-41-generic-x86_64-with-glibc2.39; other texts as they are."""
    found = re.match(r"(Linux|Windows|macOS)-([\d.]+)", str(text or ""))
    return f"{found[1]} {found[2].rstrip('.')}" if found else text


def devices(every: list[Side]) -> list[Party]:
    """Return the devices of all sides that were under study, or are a processor."""
    return [one for side in every for one in alike.parties(side) if one.arm in (side.subject_arm, "cpu")]


def chosen(party: Party, question: str, most: int) -> list[Item]:
    """Return a device's quantities of one question, the main dtype's first, evenly thinned to `most`."""
    mine = [one for one in party.items if one.question == question]
    if len(mine) <= most:
        return mine
    return [mine[round(i * (len(mine) - 1) / (most - 1))] for i in range(most)]


def question_table(every: list[Side], question: str, references: Container[str] = ()) -> pd.DataFrame:
    """Return one line a device and setting: value, share of its own roof, ratio to the first run's equal one."""
    base = devices(every[:1])
    lines = []
    for party in devices(every):
        own = party.side is every[0]
        for item in chosen(party, question, MOST):
            line: dict[str, Any] = {"compare_device": party.name, "compare_setting": setting(item)}
            line["compare_dtype"] = item.settings.get("dtype")
            line |= {item.metric: median_interval(item.samples) or item.value}
            line |= {f"{item.metric}_low": item.low, f"{item.metric}_high": item.high} if item.low else {}
            line["compare_roof_pct"] = item.roof_pct
            line["compare_roof_pct_reason"] = words.both("compare_no_roof")
            if own:
                line |= {"compare_ratio": 1.0, "compare_roof_ratio": 1.0 if item.roof_pct else None}
                line["compare_roof_ratio_reason"] = words.both("compare_no_roof")
            else:
                line |= _ratios(base, party, item)
            line["compare_dtype_reason"] = words.both("compare_not_stated")
            lines.append(line | {"row_class": _class(party.side, references)})
    frame = pd.DataFrame(lines)
    if question in compare.WITH_ROOF or any(one.roof_pct for side in every for one in side.items
                                            if one.question == question):  # fmt: skip
        return frame
    return frame.drop(columns=[name for name in frame if str(name).startswith("compare_roof")])  # it has none


def _ratios(base: list[Party], party: Party, item: Item) -> dict[str, Any]:
    """Return the ratio to the like quantity of the first run, or which settings keep it from being one."""
    against = [one for one in base if one.arm == party.arm or one.arm == one.side.subject_arm]
    every = [
        Match(a, party, x, item, *alike.differing(x, item))
        for a in against for x in a.items if x.question == item.question
    ]  # fmt: skip
    if not every:
        why: Any = words.both("compare_nothing")
        return {"compare_ratio": None, "compare_ratio_reason": why, "compare_roof_ratio": None}
    best = min(
        every, key=lambda m: (len(m.differs) + len(m.unstated), m.one.arm != party.arm, m.first.what != item.what)
    )
    span = best.ratio
    if span is None and best.one.side.reported != party.side.reported:
        why = words.both("compare_reported_why")
        return {"compare_ratio": None, "compare_ratio_reason": why, "compare_roof_ratio": None,
                "compare_roof_ratio_reason": why}  # fmt: skip
    if span is None:
        why = words.both("compare_unlike", fields=", ".join(unlike(best)))
        return {"compare_ratio": None, "compare_ratio_reason": why, "compare_roof_ratio": None,
                "compare_roof_ratio_reason": why}  # fmt: skip
    found: dict[str, Any] = {"compare_ratio": span if span.n else span.median, "compare_roof_ratio": best.roof_ratio}
    return found | {"compare_roof_ratio_reason": words.both("compare_no_roof")}


def unlike(match: Match) -> list[str]:
    """Return what differs, as "dtype (float16 / float32)"; lengths by name alone: there are too many."""
    told = []
    for key in match.differs:
        pair = match.first.settings.get(key), match.second.settings.get(key)
        told.append(key if None in pair or all(is_number(one) for one in pair) else f"{key} ({pair[0]} / {pair[1]})")
    return [*told, *match.unstated]


def setting(item: Item) -> str:
    """Return "summarization, 81 + 64 tokens": which of its kind, with prompt and new tokens where they are known."""
    counts = [item.settings[key] for key in ("prompt_tokens", "new_tokens") if key in item.settings]
    told = " + ".join("?" if one is None else str(one) for one in counts)
    if counts and not any(counts):
        return f"{item.what}, lengths not stated"
    if not counts or f"{told} tokens" in item.what:
        return item.what
    return ", ".join(filter(None, (item.what.replace(f"{counts[0]} tokens", "").strip(", "), f"{told} tokens")))


def heading(item: Item) -> str:
    """Return the name of a group of bars: the model, where there is one, and the setting."""
    if "model" not in item.settings:
        return setting(item)
    return f"{item.settings['model'] or 'model not stated'}: {setting(item)}"


def bars(every: list[Side], question: str) -> pd.DataFrame:
    """Return what the figure of one question draws: groups of equal settings, those of most devices first."""
    rows: list[dict[str, Any]] = []
    groups: list[Item] = []
    for party in devices(every):
        for item in chosen(party, question, MOST):
            like = (n for n, one in enumerate(groups) if alike.differing(one, item) == ([], []))
            place = next(like, len(groups))
            if place == len(groups):
                groups.append(item)
            span = median_interval(item.samples)
            ends = (span.low, span.high) if isinstance(span, Interval) else (item.low, item.high)
            dtype = item.settings.get("dtype", "")  # a bandwidth has none, an article may not state it
            rows.append({"group": place, "setting": heading(groups[place]),
                         "dtype": "dtype ?" if dtype is None else dtype,
                         "device": party.name, "arm": party.arm.upper(), "reported": party.side.reported,
                         "metric": item.metric, "value": item.value, "low": ends[0], "high": ends[1],
                         "roof_pct": item.roof_pct})  # fmt: skip
    frame = pd.DataFrame(rows)
    if frame.empty:
        return frame
    counts = frame.groupby("group")["device"].nunique()
    order = sorted(counts.index, key=lambda group: (-counts[group], group))[:6]
    kept = frame[frame["group"].isin(order)]
    return kept.assign(place=kept["group"].map(order.index)).sort_values("place", kind="stable")


def questions(every: list[Side]) -> list[str]:
    """Return the questions that more than one side answers, in the order of the house."""
    counts = {q: sum(any(i.question == q for i in side.items) for side in every) for q in ORDER}
    other = {i.question for side in every for i in side.items} - set(ORDER)
    return [q for q in ORDER if counts[q] > 1 and any(i.question == q for i in every[0].items)] + sorted(
        q for q in other if all(any(i.question == q for i in side.items) for side in every)
    )


LABELS: dict[str, Any] = {
    f"compare_{name}": words.both(f"column_compare_{name}")
    for name in (
        "run", "role", "settings", "causes", "setting", "dtype", "question", "arch", "memory_gib", "pci_id", "system",
        "torch", "runtime", "driver", "device", "roof_pct", "ratio", "roof_ratio",
    )
}  # fmt: skip
