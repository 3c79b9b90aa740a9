"""What do summed times say: rows of a profiler's table in, flat numbers out.

A table has no time axis, so it never says how busy the device was: it says what the device time went to, how often the
host launched, waited and copied, and how long each took.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from rocmlab import calls, kernels
from rocmlab.findings import Finding, finding

TOP = 10


@dataclass(frozen=True)
class Row:
    """One line of a table: `domain` is kernel, copy, api, runtime (HSA) or operator; `us` the sum over its calls."""

    name: str
    calls: int
    us: float
    domain: str


def numbers(rows: list[Row]) -> dict[str, Any]:
    """Return counts and sums in microseconds by what the rows are; absent where the table has no such rows."""
    found: dict[str, Any] = {"rows": len(rows)}
    by_domain = {domain: [row for row in rows if row.domain == domain] for domain in ("kernel", "copy", "api")}
    if by_domain["kernel"]:
        found |= _kernels(by_domain["kernel"])
    if by_domain["copy"]:
        found |= {"copies": sum(row.calls for row in by_domain["copy"]), "copy_us": _sum(by_domain["copy"])}
    if by_domain["api"]:
        found |= _api(by_domain["api"])
    return found


def _kernels(rows: list[Row]) -> dict[str, Any]:
    whole, largest = _sum(rows), max(rows, key=lambda row: row.us)
    other = _sum([row for row in rows if library(row.name) == kernels.OTHER])
    return {
        "kernels": sum(row.calls for row in rows),
        "kernel_us": whole,
        "largest_kernel_pct": round(100 * largest.us / whole, 3) if whole else None,
        "other_library_pct": round(100 * other / whole, 3) if whole else None,
    }


def _api(rows: list[Row]) -> dict[str, Any]:
    kinds = {kind: [row for row in rows if calls.kind(row.name) == kind] for kind in calls.ACTIVITIES}
    launches, syncs = kinds["launch_api"], kinds["sync_api"]
    number = sum(row.calls for row in launches)
    return {
        "launches": number,
        "launch_api_us": round(_sum(launches) / number, 3) if number else None,
        "sync_calls": sum(row.calls for row in syncs),
        "sync_us": _sum(syncs),
        "alloc_us": _sum(kinds["alloc_api"]),
    }


def _sum(rows: list[Row]) -> float:
    return round(sum(row.us for row in rows), 3)


def library(name: str) -> str:
    """Return the library of a kernel of any program: a bare name says nothing where torch need not have launched it."""
    found = kernels.library(name)
    return kernels.OTHER if found == kernels.BARE else found


def extra(rows: list[Row]) -> dict[str, Any]:
    """Return the ten largest kernels and the device time by library."""
    ran = sorted((row for row in rows if row.domain == "kernel"), key=lambda row: -row.us)
    times: Counter[str] = Counter()
    for row in ran:
        times[library(row.name)] += row.us  # type: ignore[assignment]
    top = [{"name": row.name, "library": library(row.name), "n": row.calls, "us": row.us} for row in ran[:TOP]]
    return {"top_kernels": top, "libraries": {name: round(us, 3) for name, us in times.most_common()}}


def headline(rows: list[Row], found: dict[str, Any]) -> Finding:
    """Return what the table says in one sentence: of its kernels, else of its host calls, else of its copies."""
    ran = [row for row in rows if row.domain == "kernel"]
    if ran:
        largest = max(ran, key=lambda row: row.us)
        return finding("TABLE_READ", variant="kernels", largest=_short(largest.name), **_known(found))
    if found.get("launches"):
        return finding("TABLE_READ", variant="launches", **_known(found))
    if found.get("copies"):
        return finding("TABLE_READ", variant="copies", **_known(found))
    largest = max(rows, key=lambda row: row.us, default=Row("-", 0, 0.0, "api"))
    return finding("TABLE_READ", rows=len(rows), largest=_short(largest.name), us=largest.us)


def _known(found: dict[str, Any]) -> dict[str, Any]:
    keys = ("kernels", "kernel_us", "largest_kernel_pct", "launches", "launch_api_us", "copies", "copy_us")
    return {key: found.get(key) for key in keys}


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:57]}..."
