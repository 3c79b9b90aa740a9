"""What torch.utils.benchmark prints: one block a timing, with its median, quartiles and number of runs.

A block is what was timed in one or more lines, then `Median: 2.43 ms` and `IQR: ...` (one line `2.43 ms` where there
was one measurement), then `5 measurements, 100 runs per measurement, 1 thread`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rocmlab.findings import Finding, finding
from rocmlab.readers import Evidence, Reading, decode

MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}  # the units that it prints
VALUE = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?) (ns|us|ms|s)"
BLOCK = re.compile(
    rf"^[ \t]+(?:Median: )?{VALUE}[ \t]*\n(?:[ \t]+IQR: +{VALUE} \(([^()\n]*)\)[ \t]*\n)?"
    r"[ \t]+(\d+) measurements?, (\d+) runs ?(?:per measurement)?, (\d+) threads?[ \t]*$",
    re.MULTILINE,
)
OBJECT = re.compile(r"<torch\.utils\.benchmark\.[\w.]+ object at \w+>")
SHOWN = 6
UNSTEADY_PCT = 10.0  # quartiles this far apart, against the median: torch.utils.benchmark warns from here on, too


@dataclass(frozen=True)
class Timing:
    """One block: what was timed, the median and the distance between the quartiles in ms, and how it was counted."""

    name: str
    median_ms: float
    iqr_ms: float | None
    measurements: int
    runs: int
    threads: int


def recognise(evidence: Evidence) -> bool:
    return bool(evidence.head) and evidence.json is None and BLOCK.search(_plain(decode(evidence.head))) is not None


def read(evidence: Evidence) -> Reading:
    """Return every median as printed, and how far the slowest of one statement is from its fastest."""
    found = timings(evidence.text)
    numbers: dict[str, Any] = {"timings": len(found)}
    for place, one in enumerate(found, 1):
        numbers |= {f"timing_{place}_median_ms": one.median_ms, f"timing_{place}_iqr_ms": one.iqr_ms}
        if one.iqr_ms is None:
            numbers[f"timing_{place}_iqr_ms_reason"] = "the text gives no quartiles for it"
    said = [f"{one.name} {one.median_ms:.4g} ms" for one in found[:SHOWN]]
    said += [f"+{len(found) - SHOWN}"] if len(found) > SHOWN else []
    headline = finding("TIMERS_READ", count=len(found), said="; ".join(said))
    judged = _compared(found) + _unsteady(found)
    for each in judged:
        numbers |= each["numbers"]
    return Reading("timings", numbers=numbers, findings=judged, headline=headline)


def timings(text: str) -> list[Timing]:
    """Return the blocks of a text in their order."""
    text, found, end = _plain(text), [], 0
    for match in BLOCK.finditer(text):
        median, unit, spread, spread_unit, _, measurements, runs, threads = match.groups()
        iqr = float(spread) * MS[spread_unit] if spread else None
        name = _name(text[end : match.start()])
        end = match.end()
        found.append(Timing(name, float(median) * MS[unit], iqr, int(measurements), int(runs), int(threads)))
    return found


def _plain(text: str) -> str:
    return text.replace("\r", "")


def _name(above: str) -> str:
    """Return what was timed: the lines above a block, without the object's own name and its set-up."""
    above = OBJECT.split(above)[-1].split("setup:")[0]
    kept = [line.strip() for line in above.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    lines = [line for line in kept if line != "stmt:" and not line.startswith(("WARNING:", "This suggests"))]
    return "; ".join(lines[-4:])[:120] or "?"


def _compared(found: list[Timing]) -> list[Finding]:
    """Say by how much two timings of the same statement, with as many threads, differ."""
    same: dict[tuple[str, int], list[float]] = {}
    for one in found:
        same.setdefault((one.name, one.threads), []).append(one.median_ms)
    apart = {key: (min(ms), max(ms)) for key, ms in same.items() if len(ms) > 1 and min(ms) > 0}
    if not apart:
        return []
    name, (fast, slow) = max(apart.items(), key=lambda item: item[1][1] / item[1][0])
    given = {"fastest_ms": fast, "slowest_ms": slow, "slowest_over_fastest": slow / fast}
    return [finding("TIMERS_APART", numbers=given, name=name[0])]


def _unsteady(found: list[Timing]) -> list[Finding]:
    wide = [one for one in found if one.iqr_ms is not None and 100 * one.iqr_ms > UNSTEADY_PCT * one.median_ms]
    if not wide:
        return []
    return [finding("TIMERS_UNSTEADY", numbers={"unsteady_timings": len(wide)}, names="; ".join(o.name for o in wide))]
