"""What do torch.profiler's own sums say: key_averages() of any torch version, and the table printed from them?

`totals(profiler.key_averages())` takes the objects; the reader takes the printed table, and recorded rows as JSON.
Totals are sums of self times: inclusive times count a kernel once for every operator around it.
"""

from __future__ import annotations

import re
from typing import Any

from rocmlab import kernel_table
from rocmlab.findings import finding
from rocmlab.kernel_table import Row
from rocmlab.readers import Evidence, Reading, decode

SCHEMA = "rocmlab-key-averages-1"
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
VALUE = re.compile(r"^(-?[\d.]+)(ns|us|ms|s)$")
LARGEST_US = 1e15  # thirty years; a larger time, or one that is not a number, is damage
NO_TOTAL = "neither a total nor a time of this kind is there"
TITLE = re.compile(r"^ *Name +Self CPU %", re.MULTILINE)
TOTAL = re.compile(r"^Self (CPU|CUDA|Device|PrivateUse1|XPU) time total: *([\d.]+(?:ns|us|ms|s))", re.MULTILINE)
# A row whose header was cut off: a name and the ten columns of a table without shapes and memory.
PERCENT, TIME = r" +-?[\d.]+%", r" +-?[\d.]+(?:ns|us|ms|s)"
ROW = re.compile(
    rf"^ *(\S.*?){PERCENT}({TIME}){PERCENT}{TIME}{TIME}({TIME}){PERCENT}{TIME}{TIME} +([0-9]{{1,15}}) *$", re.MULTILINE
)


def totals(rows: Any) -> dict[str, Any]:
    """Return {self_cpu_us, self_device_us} of key_averages() rows; None where the rows have no such time.

    torch before 2.4 calls device times cuda; newer ones call them device. Where kernels stand as rows of their own, as
    Kineto lists them, only these count for the device: their operators repeat the same time.
    """
    rows = list(rows)
    device = [row for row in rows if _is_device(row)] or rows
    device = [row for row in device if not _value(row, "is_user_annotation")]
    return {"self_cpu_us": _sum(rows, ("self_cpu_time_total",)), "self_device_us": _sum(device, DEVICE_TIMES)}


DEVICE_TIMES = ("self_device_time_total", "self_cuda_time_total")


def _value(row: Any, name: str) -> Any:
    return row.get(name) if isinstance(row, dict) else getattr(row, name, None)


def _is_device(row: Any) -> bool:
    kind = _value(row, "device_type")
    return kind is not None and not str(kind).endswith("CPU")


def _sum(rows: list[Any], names: tuple[str, ...]) -> float | None:
    values = [next((v for name in names if (v := _value(row, name)) is not None), None) for row in rows]
    known = [float(value) for value in values if isinstance(value, (int, float)) and abs(value) < LARGEST_US]
    return round(sum(known), 3) if known else None


def recognise(evidence: Evidence) -> bool:
    """Tell whether this is a printed table of torch.profiler, or recorded rows of key_averages()."""
    head = evidence.head
    if head.lstrip()[:1] == b"{":
        return SCHEMA.encode() in head and evidence.schema == SCHEMA
    text = decode(head).replace("\r", "")
    return bool(TITLE.search(text) or TOTAL.search(text) or len(ROW.findall(text)) > 1)


def read(evidence: Evidence) -> Reading:
    """Sum the rows of one or several tables."""
    if evidence.schema == SCHEMA:
        return _recorded(evidence.json)
    text = evidence.text.replace("\r", "")
    rows = [row for table in _tables(text) for row in table]
    sums = {"self_cpu_us": _printed(text, ("CPU",)), "self_device_us": _printed(text, ("CUDA", "Device"))}
    return _reading("torch-profiler-table", rows, _with_reasons(sums))


def _recorded(document: dict[str, Any]) -> Reading:
    """Read rows that were recorded as JSON, one list a torch version; one number only where the lists agree."""
    lists = {name: rows for name, rows in document.items() if isinstance(rows, list)}
    items = [{"list": name, **totals(row for row in rows if isinstance(row, dict))} for name, rows in lists.items()]
    sums: dict[str, Any] = {}
    for key in ("self_device_us", "self_cpu_us"):
        values = {item[key] for item in items}
        sums[key] = values.pop() if len(values) == 1 else None
    headline = finding("KEY_AVERAGES_READ", **sums)
    found = _with_reasons(sums)
    return Reading("key_averages", schema=SCHEMA, numbers=found, headline=headline, extra={"items": items})


def _with_reasons(sums: dict[str, Any]) -> dict[str, Any]:
    reasons = {f"{key}_reason": NO_TOTAL for key, value in sums.items() if value is None}
    return sums | reasons


def _printed(text: str, names: tuple[str, ...]) -> float | None:
    """Return the sum of the totals that the tables print below themselves."""
    found = [_us(value) for name, value in TOTAL.findall(text) if name in names]
    known = [value for value in found if value is not None]
    return round(sum(known), 3) if known else None


def _us(value: str) -> float | None:
    match = VALUE.match(value.strip())
    if not match or not re.fullmatch(r"-?\d+(\.\d*)?|-?\.\d+", match[1]):
        return None
    us = float(match[1]) * UNITS[match[2]]
    return us if abs(us) < LARGEST_US else None


def _tables(text: str) -> list[list[Row]]:
    """Return the rows of each table, cut at the columns of its ruler; without a title, rows of the usual form."""
    lines = text.split("\n")
    titles = [number for number, line in enumerate(lines) if TITLE.match(line)]
    if not titles:
        return [[_row(name, calls, cpu, device) for name, cpu, device, calls in ROW.findall(text)]]
    return [_ruled(lines[begin:end]) for begin, end in zip(titles, [*titles[1:], len(lines)], strict=True)]


def _ruled(lines: list[str]) -> list[Row]:
    """Read a table from its title on: the ruler below it is there also when the one above it was not copied."""
    spans = [match.span() for line in lines[1:2] for match in re.finditer(r"-+", line)]
    # A title may be wider than its column, so that titles are told apart by the space between them.
    titles = re.split(r" {2,}", lines[0].strip())
    if len(spans) < 2 or len(titles) != len(spans):
        return []
    rows = []
    for line in lines[2:]:
        if line.startswith("---"):
            break
        cells = dict(zip(titles, (line[a:b].strip() for a, b in spans), strict=True))
        device = next((cells[t] for t in ("Self CUDA", "Self Device", "Self XPU") if t in cells), "")
        if re.fullmatch(r"[0-9]{1,15}", cells.get("# of Calls", "")):
            rows.append(_row(cells["Name"], cells["# of Calls"], cells.get("Self CPU", ""), device))
    return rows


def _row(name: str, calls: str, cpu: str, device: str) -> Row:
    """Kernels have no host time of their own, runtime calls have nothing but it."""
    cpu_us, device_us = _us(cpu) or 0.0, _us(device) or 0.0
    if not cpu_us and device_us:
        copy = name.startswith(("Memcpy", "Memset"))
        return Row(name, int(calls), device_us, "copy" if copy else "kernel")
    return Row(name, int(calls), cpu_us, "api" if re.match(r"hip[A-Z]|cuda[A-Z]|cu[A-Z]", name) else "operator")


def _reading(kind: str, rows: list[Row], sums: dict[str, Any]) -> Reading:
    numbers = {**kernel_table.numbers(rows), **sums}
    recorded = sums["self_device_us"] or any(row.domain == "kernel" for row in rows)
    found = [] if recorded else [finding("NO_DEVICE_DATA")]
    headline = kernel_table.headline(rows, numbers) if not found else None
    return Reading(kind, numbers=numbers, findings=found, headline=headline, extra=kernel_table.extra(rows))
