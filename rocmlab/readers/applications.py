"""Summary lines of chat applications: "NAME : 31.4 tok/sec, 210 tokens, 0.82s to first token, ...", one line a run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rocmlab.findings import Finding, finding
from rocmlab.readers import Evidence, Reading, decode

LINE = re.compile(
    r"^[ \t>*-]*(?P<name>[^\n:|]*?)[ \t]*[:|]?[ \t]*(?P<rate>\d+(?:\.\d+)?) ?tok(?:ens?)?/s(?:ec)?\b[^\w\n]+"
    r"(?P<tokens>\d[\d,]*) tokens\b[^\w\n]+(?P<ttft>\d+(?:\.\d+)?) ?s(?:ec)? to first token",
    re.MULTILINE,
)
APART_PCT = 5.0  # a smaller lead is no lead


@dataclass(frozen=True)
class Summary:
    """One line: its name, decode tok/s, tokens, and seconds to the first token."""

    name: str
    tok_s: float
    tokens: int
    ttft_s: float

    @property
    def key(self) -> str:
        return re.sub(r"\W+", "_", self.name.lower()).strip("_")


def recognise(evidence: Evidence) -> bool:
    return bool(evidence.head) and evidence.json is None and LINE.search(decode(evidence.head)) is not None


def read(evidence: Evidence) -> Reading:
    """Return every line's numbers as printed; two sides that each win one phase are named."""
    found = summaries(evidence.text)
    numbers: dict[str, Any] = {}
    for one in found:
        numbers |= {f"{one.key}_tok_s": one.tok_s, f"{one.key}_ttft_s": one.ttft_s}
    counts = {one.tokens for one in found}
    numbers |= {"tokens": counts.pop()} if len(counts) == 1 else {f"{one.key}_tokens": one.tokens for one in found}
    apart, judged = compare(found)
    said = "; ".join(f"{one.name} {one.tok_s:g} tok/s, {one.ttft_s:g} s to the first token" for one in found)
    headline = finding("APP_LINES_READ", said=said)
    return Reading("tool_output", numbers=numbers | apart, findings=judged, headline=headline)


def summaries(text: str) -> list[Summary]:
    """Return every summary line; lines without a name, or with a name that came before, are numbered."""
    found: list[Summary] = []
    for place, match in enumerate(LINE.finditer(text), 1):
        name = match["name"].strip() or f"line {place}"
        name = f"{name} {place}" if any(name == one.name for one in found) else name
        tokens = int(match["tokens"].replace(",", ""))
        found.append(Summary(name, float(match["rate"]), tokens, float(match["ttft"])))
    return found


def compare(found: list[Summary]) -> tuple[dict[str, Any], list[Finding]]:
    """Compare the line that is first at the first token with the line that decodes fastest."""
    if len(found) < 2:
        return {}, []
    early, fast = min(found, key=lambda one: one.ttft_s), max(found, key=lambda one: one.tok_s)
    if early is fast or not fast.ttft_s or not fast.tok_s:
        return {}, []
    shorter, slower = 100 * (1 - early.ttft_s / fast.ttft_s), 100 * (1 - early.tok_s / fast.tok_s)
    numbers = {f"{early.key}_ttft_shorter_pct": shorter, f"{early.key}_decode_slower_pct": slower}
    if shorter < APART_PCT or slower < APART_PCT:
        return numbers, []
    words: dict[str, Any] = {"early": early.name, "fast": fast.name, "shorter": shorter, "slower": slower}
    return numbers, [finding("DIFFERENT_BOTTLENECKS", numbers=numbers, **words)]
