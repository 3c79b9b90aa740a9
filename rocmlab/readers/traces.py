"""What does a trace of torch.profiler show? Reads .json and .json.gz, from Kineto or without it, whole or damaged.

`trace = load(Path("decode.json.gz"))` gives the complete events as columns; `read(evidence)` judges them.
Format quirks and metrics follow the Chrome trace that Kineto writes (output_json.cpp) and torch's EventList.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rocmlab.readers import Evidence, Reading, repair

# Categories of events, as Kineto names them now, and as it did until 2022 (Operator, Kernel, Memcpy, Runtime).
OP, MARK, PYTHON, CALL, KERNEL, COPY, FILL, OVERHEAD, GPU_MARK, SPAN, OTHER = range(11)
CATEGORIES = {
    "cpu_op": OP, "operator": OP,
    "user_annotation": MARK,
    "python_function": PYTHON,
    "cuda_runtime": CALL, "cuda_driver": CALL, "runtime": CALL,
    "kernel": KERNEL,
    "gpu_memcpy": COPY, "memcpy": COPY,
    "gpu_memset": FILL, "memset": FILL,
    "overhead": OVERHEAD,
    "gpu_user_annotation": GPU_MARK,
    "trace": SPAN,
}  # fmt: skip
DEVICE = (KERNEL, COPY, FILL)
DETAILED = (CALL, *DEVICE)

BATCH = 20_000
# Whole ticks of a microsecond: both the nanoseconds of durations and the steps of a double near 4e12 us (1/1024 us, in
# which Kineto's start times come) are multiples of it. Nothing is rounded, and parts add up exactly.
TICKS = 1_024_000
FAR_US = 1e11  # 28 hours: an event longer than this, or further away from the others, is damage

DIRECTIONS = {"htod": "HtoD", "dtoh": "DtoH", "dtod": "DtoD", "htoh": "HtoH", "ptop": "PtoP"}
HIP_KINDS = {"0": "HtoH", "1": "HtoD", "2": "DtoH", "3": "DtoD"}  # hipMemcpyKind, hip_runtime_api.h
LISTED = re.compile(rb'^\[\s*\{[^\[\]]{0,4096}"ph"\s*:\s*"[A-Za-z]"')
HEADER = re.compile(rb'"(?:schemaVersion|deviceProperties|baseTimeNanoseconds|displayTimeUnit)"')
# What an answer carries of the metrics besides its flat numbers.
SHOWN = (
    "window", "categories", "device_events", "kernel_us", "idle_us", "idle_why_us", "starved_by_us", "launch_delay_us",
    "launches", "queue", "host_exclusive_pct", "libraries", "top_kernels", "sync", "waits", "critical_path_us",
    "critical_path_pct", "no_launch_ops", "aten_ops", "steps",
)  # fmt: skip
OPERATOR_NAME = re.compile(r"detach_?$|\w+Backward\d+$")  # operators whose names have no namespace
PYTHON_NAME = re.compile(r"\.pyc?\(\d+\)|^<built-in |^<frozen |^nn\.Module: |\(\d+\): ")


class Args(msgspec.Struct, gc=False):
    correlation: Any = None
    stream: Any = None
    device: Any = None
    kind: Any = None
    hsa_queue: Any = None


class Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = ""
    name: str = ""
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: float | None = None
    dur: float | None = None
    args: Args | None = None


NO_ARGS = Args()


@dataclass
class Trace:
    """Complete events as columns, by start; times in ticks from the first event.

    `cat` one of the categories above, `name` an index into `names`, `thread` one into `threads` (pid, tid);
    `correlation` 0 and `device` -1 where the file gives none; `direction` "" or HtoD, DtoH, DtoD, HtoH, PtoP.
    """

    form: str
    names: list[str]
    threads: list[tuple[Any, Any]]
    start: np.ndarray
    end: np.ndarray
    cat: np.ndarray
    name: np.ndarray
    thread: np.ndarray
    correlation: np.ndarray
    device: np.ndarray
    stream: np.ndarray
    direction: np.ndarray
    devices: list[dict[str, Any]] = field(default_factory=list)
    truncated: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self.start)

    def of(self, *cats: int) -> np.ndarray:
        """Return the indices of events of these categories, by start."""
        return np.flatnonzero(np.isin(self.cat, cats))

    def called(self, index: int) -> str:
        return self.names[self.name[index]]


class _Numbered(dict[Any, int]):
    """Numbers its keys in the order in which they are first asked for."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


class _Categories(dict[str, int]):
    """The category of each name of one, also in the spelling of older files."""

    def __missing__(self, key: str) -> int:
        self[key] = number = CATEGORIES.get(key.lower(), OTHER)
        return number


def load(source: Path | bytes) -> Trace:
    """Load a trace file or its bytes. Raises OSError when the file cannot be opened; never for its content."""
    data, cut = repair.unpacked(source if isinstance(source, bytes) else source.read_bytes())
    found = repair.pieces(data)
    columns = _Columns(found.listed)
    for events in _decoded(found, columns.counts):
        columns.add(events)
    trace = columns.finish()
    trace.truncated = cut or found.truncated
    trace.devices = found.devices
    if found.salvaged and not trace.truncated:
        trace.counts["repaired"] = max(trace.counts["repaired"], 1)
    return trace


def _decoded(found: repair.Pieces, counts: Counter[str]) -> Iterator[list[Event]]:
    """Decode in batches, so that a large file never stands in memory as objects; bad pieces one by one."""
    several = msgspec.json.Decoder(list[Event], strict=False)
    single = msgspec.json.Decoder(Event, strict=False)
    for at in range(0, len(found.events), BATCH):
        batch = found.events[at : at + BATCH]
        try:
            yield several.decode(b"[" + b",".join(batch) + b"]")
        except (msgspec.MsgspecError, RecursionError, ValueError):
            yield list(_singly(batch, single, counts))


def _singly(batch: Iterable[Any], decoder: Any, counts: Counter[str]) -> Iterator[Event]:
    for piece in batch:
        try:
            yield decoder.decode(piece)
            continue
        except (msgspec.MsgspecError, RecursionError, ValueError):
            event = _lenient(repair.mended(piece))
        counts["repaired" if event else "dropped"] += 1
        if event:
            yield event


def _lenient(found: Any) -> Event | None:
    """Build an event from a repaired object, without the arguments when these are what is damaged."""
    for fields in (found, {**found, "args": None} if isinstance(found, dict) else None):
        try:
            return msgspec.convert(fields, Event, strict=False)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            continue
    return None


class _Columns:
    """Collects the complete events batch by batch; names, threads and streams become numbers at once."""

    def __init__(self, listed: bool) -> None:
        self.listed = listed
        self.names, self.threads, self.streams, self.cats = _Numbered(), _Numbered(), _Numbered(), _Categories()
        self.parts: dict[str, list[np.ndarray]] = {key: [] for key in ("start", "dur", "cat", "name", "thread")}
        self.details: dict[str, list[np.ndarray]] = {key: [] for key in ("at", *DETAIL_DEFAULTS)}
        self.counts: Counter[str] = Counter()
        self.length = 0

    def add(self, events: list[Event]) -> None:
        """Take the complete events of a batch whose times make sense; count those that had to be left out."""
        complete = [e for e in events if e.ph == "X"]
        kept = [e for e in complete if e.ts is not None and e.dur is not None and e.dur >= 0]
        if len(kept) < len(complete):
            negative = sum(e.ts is not None and e.dur is not None and e.dur < 0 for e in complete)
            self.counts["negative"] += negative
            self.counts["dropped"] += len(complete) - len(kept) - negative
        named = [self.cats[e.cat] if e.cat else self._unnamed(e) for e in kept]
        cats = np.array(named, dtype=np.int8)
        self.parts["cat"].append(cats)
        self.parts["start"].append(np.array([e.ts for e in kept], dtype=np.float64))
        self.parts["dur"].append(np.array([e.dur for e in kept], dtype=np.float64))
        self.parts["name"].append(np.array([self.names[e.name] for e in kept], dtype=np.int32))
        self.parts["thread"].append(np.array([self.threads[e.pid, e.tid] for e in kept], dtype=np.int32))
        self._add_details(kept, cats)
        self.length += len(kept)

    def _add_details(self, kept: list[Event], cats: np.ndarray) -> None:
        """Take the arguments of calls and device events; those of operators are of no use here."""
        at = np.flatnonzero(np.isin(cats, DETAILED))
        mine = [kept[place] for place in at.tolist()]
        args = [e.args or NO_ARGS for e in mine]
        streams = [a.hsa_queue if a.stream is None else a.stream for a in args]
        direction = np.full(len(mine), "", dtype=object)
        for place in np.flatnonzero(cats[at] == COPY).tolist():
            direction[place] = _direction(mine[place].name, args[place].kind)
        for place in [place for place, a in enumerate(args) if a.kind is not None]:
            direction[place] = _direction(mine[place].name, args[place].kind)
        found = {
            "at": at + self.length,
            "correlation": _whole_numbers([a.correlation for a in args], 0),
            "device": _whole_numbers([-1 if a.device is None else a.device for a in args], -1),
            "stream": np.array([self.streams[str(stream)] for stream in streams], dtype=np.int64),
            "direction": direction,
        }
        for key, values in found.items():
            self.details[key].append(values)

    def _unnamed(self, event: Event) -> int:
        """Tell categories apart by name where the file gives none, as torch writes it without Kineto."""
        if event.pid in ("CUDA functions", "GPU functions"):
            return KERNEL
        if PYTHON_NAME.search(event.name):
            return PYTHON
        return OP if "::" in event.name or OPERATOR_NAME.match(event.name) else MARK

    def finish(self) -> Trace:
        """Sort by start, longest first, and count time in ticks from the first event."""
        joined = {key: np.concatenate(parts) if parts else np.zeros(0) for key, parts in self.parts.items()}
        near = np.flatnonzero(joined["cat"] != SPAN)
        middle = np.median(joined["start"][near]) if len(near) else 0.0
        near_enough = (np.abs(joined["start"][near] - middle) < FAR_US) & (joined["dur"][near] < FAR_US)
        self.counts["dropped"] += int((~near_enough).sum())
        near = near[near_enough]
        first = joined["start"][near].min() if len(near) else 0.0
        start = _ticks(joined["start"] - first, near)
        end = start + _ticks(joined["dur"], near)
        by_start = np.lexsort((-end, start))
        order = near[by_start]
        details: dict[str, Any] = {key: self._spread(key, fill)[order] for key, fill in DETAIL_DEFAULTS.items()}
        columns: dict[str, Any] = {key: joined[key][order].astype(np.int32) for key in ("cat", "name", "thread")}
        names = [repair.unescaped(name) for name in self.names]
        changed = [number for name, number in self.names.items() if name != names[number]]
        self.counts["repaired"] += int(np.isin(columns["name"], changed).sum())
        return Trace(
            form="eventlist" if self.listed else "kineto",
            names=names,
            threads=list(self.threads),
            start=start[by_start],
            end=end[by_start],
            counts=self.counts,
            **columns,
            **details,
        )

    def _spread(self, key: str, fill: Any) -> np.ndarray:
        column = np.full(self.length, fill, dtype=object if key == "direction" else np.int64)
        if self.details["at"]:
            column[np.concatenate(self.details["at"])] = np.concatenate(self.details[key])
        return column


DETAIL_DEFAULTS: dict[str, Any] = {"correlation": 0, "device": -1, "stream": -1, "direction": ""}


def _ticks(us: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return np.rint(us[rows] * TICKS).astype(np.int64)


def _whole_numbers(values: list[Any], default: int) -> np.ndarray:
    """Return whole numbers of arguments, which are such as a rule, but may be missing, text, or nonsense."""
    try:
        return np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_whole(value, default) for value in values], dtype=np.int64)


def _whole(value: Any, default: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return default
    return number if -(2**62) < number < 2**62 else default


def _direction(name: str, kind: Any) -> str:
    """Return the direction of a copy: hipMemcpyKind of a HIP call, else what the device event says."""
    said = HIP_KINDS.get(str(kind)) or DIRECTIONS.get(str(kind).lower())
    if said or not name.startswith("Memcpy"):
        return said or ""
    return DIRECTIONS.get(name[7:11].lower(), "")


def recognise(evidence: Evidence) -> bool:
    """Tell whether this is a Chrome trace of torch.profiler, by its content, packed or not, whole or not."""
    head = repair.unpacked(evidence.head)[0].lstrip()
    if head.startswith(b"["):
        return bool(LISTED.search(head))
    if not head.startswith(b"{"):
        return False
    if repair.EVENTS_KEY.search(head):
        return True
    return bool(HEADER.search(head[:4096])) and bool(repair.EVENTS_KEY.search(repair.unpacked(evidence.data)[0]))


def read(evidence: Evidence) -> Reading:
    """Judge a trace in the window that was asked for."""
    from rocmlab import profiler, trace_judge

    metrics = profiler.measure(load(evidence.path), evidence.window)
    numbers, found = trace_judge.judge(metrics)
    shown = {key: metrics[key] for key in SHOWN if key in metrics}
    return Reading("trace", numbers=numbers, findings=found, extra={"cause": metrics.get("cause"), "metrics": shown})
