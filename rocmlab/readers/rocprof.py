"""What do the tables of rocprof and rocprofv3 say? CSV files, by column name, and the summary that -S prints.

Times are in nanoseconds there, plain, with decimals or as 2.920e-03 in one column; kernel names hold commas in quotes.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from rocmlab import kernel_table
from rocmlab.findings import finding
from rocmlab.kernel_table import Row
from rocmlab.readers import Evidence, Reading, decode

SUMMARY = re.compile(r"^ROCPROFV3 .*SUMMARY:\s*$", re.MULTILINE)
# results.csv of rocprof, here without its header line: Index, KernelName, gpu-id ... DispatchNs, BeginNs, EndNs,
# CompleteNs, DurationNs.
OLD_ROW = re.compile(r'^\d+,"[^"]*",(?:-?\d+,|"0x[0-9a-f]+",){12,}(?:\d+,){3,4}\d+\s*$', re.MULTILINE)
LARGEST = 2**62
DOMAINS = {"KERNEL_DISPATCH": "kernel", "MEMORY_COPY": "copy", "HIP_API": "api", "HSA_API": "runtime"}


def recognise(evidence: Evidence) -> bool:
    """Tell whether this is a table of rocprof or rocprofv3, by its header or the form of its rows."""
    text = decode(evidence.head)
    if "," not in text and "|" not in text:
        return False
    return bool(SUMMARY.search(text)) or _form(_lines(text)[:1]) is not None


def _lines(text: str) -> list[str]:
    return [
        line
        for line in text.replace("\r", "").replace("\0", "").split("\n")
        if line.strip() and not line.startswith("#")
    ]


def _form(lines: list[str]) -> str | None:
    """Return the kind of a CSV file by its first line."""
    first = lines[0] if lines else ""
    columns = set(_cells(first))
    for kind, wanted in COLUMNS:
        if wanted <= columns:
            return kind
    return "rocprof-kernel-csv" if OLD_ROW.match(first) else None


COLUMNS = (
    ("rocprofv3-stats-csv", {"Name", "Calls", "TotalDurationNs", "MinNs"}),
    ("rocprof-stats-csv", {"Name", "Calls", "TotalDurationNs"}),
    ("rocprofv3-counter-csv", {"Kernel_Name", "Counter_Name", "Counter_Value", "Start_Timestamp"}),
    ("rocprofv3-kernel-trace-csv", {"Kernel_Name", "Start_Timestamp", "End_Timestamp"}),
    ("rocprofv3-hip-api-trace-csv", {"Domain", "Function", "Start_Timestamp", "End_Timestamp"}),
    ("rocprofv3-memory-copy-csv", {"Direction", "Start_Timestamp", "End_Timestamp"}),
    ("rocprof-kernel-csv", {"KernelName", "BeginNs", "EndNs"}),
)


def read(evidence: Evidence) -> Reading:
    """Sum what the table holds; rows that cannot be read are counted."""
    if SUMMARY.search(evidence.text):
        return _reading("rocprofv3-summary-text", *_summary(evidence.text))
    lines = _lines(evidence.text)
    kind = _form(lines) or ""
    if kind == "rocprof-kernel-csv" and OLD_ROW.match(lines[0]):
        return _traced(kind, *_parsed([",".join(f"c{i}" for i in range(len(_cells(lines[0])))), *lines], _old_row))
    if kind.endswith("stats-csv"):
        rows, damaged = _parsed(lines, _stats_row)
        first = rows[0].domain if rows else "kernel"
        named = {"kernel": "kernel-stats", "api": "hip-api-stats", "runtime": "hsa-stats"}[first]
        return _reading(kind.replace("stats", named), rows, damaged)
    return _traced(kind, *_parsed(lines, TRACE_ROWS[kind]))


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a field longer than csv allows
        return []


def _parsed(lines: list[str], make: Callable[[dict[str, str]], Any]) -> tuple[list[Any], int]:
    """Return (rows, damaged lines) of a CSV file."""
    header = _cells(lines[0])
    rows, damaged = [], 0
    for cells in map(_cells, lines[1:]):  # each line by itself: a quote that is never closed costs one
        try:
            if len(cells) != len(header):
                raise ValueError("another number of columns than the header")
            rows.append(make(dict(zip(header, cells, strict=True))))
        except (ValueError, KeyError, OverflowError):
            damaged += 1
    return rows, damaged


def _stats_row(cells: dict[str, str]) -> Row:
    name = cells["Name"]
    domain = "api" if re.match(r"_*hip[A-Z]", name) else "runtime" if name.startswith("hsa_") else "kernel"
    return Row(name, int(_real(cells["Calls"])), _real(cells["TotalDurationNs"]) / 1000, domain)


Span = tuple[str, str, str, int, int]  # name, domain, device, begin and end in ns


def _kernel_row(cells: dict[str, str]) -> Span:
    return (cells["Kernel_Name"], "kernel", cells.get("Agent_Id", ""), *_times(cells))


def _api_row(cells: dict[str, str]) -> Span:
    return (cells["Function"], "api", "", *_times(cells))


def _copy_row(cells: dict[str, str]) -> Span:
    return (cells["Direction"], "copy", "", *_times(cells))


def _named_old_row(cells: dict[str, str]) -> Span:
    return (cells["KernelName"], "kernel", cells.get("gpu-id", ""), _whole(cells["BeginNs"]), _whole(cells["EndNs"]))


def _old_row(cells: dict[str, str]) -> Span:
    values = list(cells.values())
    return (values[1], "kernel", values[2], _whole(values[-4]), _whole(values[-3]))


TRACE_ROWS: dict[str, Callable[[dict[str, str]], Span]] = {
    "rocprofv3-counter-csv": _kernel_row,
    "rocprofv3-kernel-trace-csv": _kernel_row,
    "rocprofv3-hip-api-trace-csv": _api_row,
    "rocprofv3-memory-copy-csv": _copy_row,
    "rocprof-kernel-csv": _named_old_row,
}


def _times(cells: dict[str, str]) -> tuple[int, int]:
    return _whole(cells["Start_Timestamp"]), _whole(cells["End_Timestamp"])


def _whole(text: str) -> int:
    """Return a whole number that a 64-bit counter can hold; ValueError otherwise."""
    value = int(text)
    if abs(value) >= LARGEST:
        raise ValueError("a number out of range")
    return value


def _real(text: str) -> float:
    value = float(text)
    if not abs(value) < LARGEST:
        raise ValueError("a number out of range, or none")
    return value


def _traced(kind: str, spans: list[Span], damaged: int) -> Reading:
    """Sum the rows of a trace by name, and how long at least one kernel of the busiest device ran."""
    kept = [span for span in spans if span[4] >= span[3]]
    sums: dict[tuple[str, str], list[int]] = {}
    for name, domain, _, begin, end in kept:
        sums.setdefault((name, domain), []).append(end - begin)
    rows = [Row(name, len(ns), sum(ns) / 1000, domain) for (name, domain), ns in sums.items()]
    reading = _reading(kind, rows, damaged + len(spans) - len(kept))
    kernels = [span for span in kept if span[1] == "kernel"]
    if kernels and kind != "rocprofv3-counter-csv":
        devices = [span[2] for span in kernels]
        busiest = max(sorted(set(devices)), key=devices.count)
        reading.numbers |= _device([span for span in kernels if span[2] == busiest])
    return reading


def _device(kernels: list[Span]) -> dict[str, Any]:
    """Return busy time and span of one device's kernels. A share of the span would not be a share of the program."""
    begin, end = (np.array([span[i] for span in sorted(kernels, key=lambda s: s[3])]) for i in (3, 4))
    reached = np.maximum.accumulate(end)
    before = np.concatenate([begin[:1], reached[:-1]])
    busy = int((np.maximum(end, before) - np.maximum(begin, before)).sum())
    return {
        "busy_us": round(busy / 1000, 3),
        "span_us": round(int(reached[-1] - begin[0]) / 1000, 3),
        "busy_pct": None,
        "busy_pct_reason": "a table of kernels does not say when the program began and ended",
    }


def _summary(text: str) -> tuple[list[Row], int]:
    """Return rows of the markdown tables, each domain once; the last table repeats all of them."""
    rows: dict[tuple[str, str], Row] = {}
    damaged = 0
    for line in _lines(text):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.lstrip().startswith("|") or len(cells) < 4 or cells[0] == "NAME" or set(cells[0]) <= {"-"}:
            continue
        try:
            row = Row(cells[0], _whole(cells[2]), _real(cells[3]) / 1000, DOMAINS.get(cells[1], "other"))
        except ValueError:
            damaged += 1
            continue
        rows[row.name, row.domain] = row
    return list(rows.values()), damaged


def _reading(kind: str, rows: list[Row], damaged: int) -> Reading:
    numbers = kernel_table.numbers(rows)
    found = [finding("DAMAGED_LINES", numbers={"damaged_lines": damaged})] if damaged else []
    headline = kernel_table.headline(rows, numbers)
    return Reading(kind, numbers=numbers, findings=found, headline=headline, extra=kernel_table.extra(rows))
