"""Which library did the work? What a log says, as tidy rows, whatever library wrote it.

Parsers in `readers/` fill one `Log`; `rows(log)` is its table, `numbers(log)` its counts. Nothing here reads a file or
touches a device, and nothing here knows how a line looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MANAGED_N = 8  # how many values of n are counted one by one; the rest is in the total
SIGNS_KEPT = 2_000  # distinct signs of one log; a flood of different texts must not fill the memory

# How the libraries spell a type, and what everybody else calls it.
DTYPES = {
    "f16_r": "float16", "f32_r": "float32", "f64_r": "float64", "bf16_r": "bfloat16", "i8_r": "int8", "i32_r": "int32",
    "f8_r": "float8_e4m3", "bf8_r": "float8_e5m2", "xf32_r": "tf32", "f16_c": "complex32", "f32_c": "complex64",
    "f64_c": "complex128", "f8_fnuz_r": "float8_e4m3fnuz", "bf8_fnuz_r": "float8_e5m2fnuz",
    "R_16F": "float16", "R_32F": "float32", "R_64F": "float64", "R_16BF": "bfloat16", "R_8I": "int8", "R_32I": "int32",
    "R_8F_E4M3": "float8_e4m3", "R_8F_E5M2": "float8_e5m2", "R_4F_E2M1": "float4_e2m1",
    "f16": "float16", "f32": "float32", "f64": "float64", "bf16": "bfloat16", "s8": "int8", "u8": "uint8",
    "s32": "int32", "f8_e4m3": "float8_e4m3", "f8_e5m2": "float8_e5m2",
    "COMPUTE_16F": "float16", "COMPUTE_32F": "float32", "COMPUTE_64F": "float64", "COMPUTE_32I": "int32",
    "COMPUTE_32F_FAST_TF32": "tf32", "COMPUTE_32F_FAST_16F": "float16", "COMPUTE_32F_FAST_16BF": "bfloat16",
}  # fmt: skip


class Call(NamedTuple):
    """One kind of library call. For a GEMM: m output features, n rows (tokens), k inputs, as column-major BLAS counts
    them, so that n = 1 is a decode step; None where the log does not say. `kind` is gemm, convolution, batch_norm, rnn,
    kernel, launch, copy, sync and so on; `stage` is run, or search for work done only to choose a solver."""

    library: str
    routine: str
    kind: str
    shape: str = ""
    m: int | None = None
    n: int | None = None
    k: int | None = None
    batch: int = 1
    dtype: str = ""
    compute: str = ""
    kernel: str = ""
    stage: str = "run"


@dataclass
class Tally:
    """How often a call was logged. One call may be logged in several forms (trace, bench, profile): the most frequent
    form counts, so that no call is counted twice."""

    line: int
    forms: Counter[str] = field(default_factory=Counter)
    time_ms: float | None = None

    @property
    def calls(self) -> int:
        return max(self.forms.values())


@dataclass
class Sign:
    """Something a log says that is no call: a warning, an error, a missing file. `words` are those of the first one."""

    count: int
    line: int
    words: dict[str, Any]


@dataclass
class Log:
    """What was read so far, and what could not be: `other` lines belong to no library, `damaged` ones are cut or mixed
    with others."""

    lines: int = 0
    other: int = 0
    damaged: int = 0
    damaged_line: int = 0
    known: int = 0
    library_lines: int = 0
    phase: str = ""
    phases: Counter[str] = field(default_factory=Counter)
    arch: str = ""
    calls: dict[tuple[Call, str], Tally] = field(default_factory=dict)
    signs: dict[tuple[str, str], Sign] = field(default_factory=dict)
    libraries: Counter[str] = field(default_factory=Counter)
    listening: set[str] = field(default_factory=set)  # libraries whose calls are logged, so that none means none
    waiting: tuple[Call, int] | None = None  # a call and its line; what it hands to another library may follow

    def add(self, call: Call, line: int, form: str = "", times: int = 1, ms: float | None = None) -> None:
        """Count a call in the present phase."""
        tally = self.calls.get((call, self.phase))
        if tally is None:
            tally = self.calls[(call, self.phase)] = Tally(line)
        tally.forms[form] += times
        if ms is not None:
            tally.time_ms = (tally.time_ms or 0.0) + ms

    def hold(self, call: Call, line: int) -> None:
        """Keep a call back: lines that come before its end may tell which kernel another library chose for it."""
        self.settle()
        self.waiting = (call, line)

    def settle(self) -> None:
        """Count the call that was kept back, if there is one."""
        if self.waiting:
            held, self.waiting = self.waiting, None
            self.add(*held)

    def inner(self, call: Call) -> bool:
        """Take a cuBLASLt product as part of the call kept back, which stands around it; False when it is not.

        cuBLAS hands on its own product, so the sizes must agree; an engine of cuDNN may do anything as a product.
        """
        if self.waiting is None:
            return False
        outer, line = self.waiting
        own = outer.library == "cuBLAS" and call.routine.startswith("inner")
        if not (outer.library == "cuDNN" or (own and outer[4:8] == call[4:8])):
            return False
        names = [name for name in (outer.kernel, f"{call.library} {call.kernel}".strip()) if name]
        self.waiting = (outer._replace(kernel=" -> ".join(names)), line)
        if own:
            self.settle()
        return True

    def sign(self, name: str, line: int, key: str = "", **words: Any) -> None:
        """Count a sign; `key` tells signs of one name apart."""
        sign = self.signs.get((name, key))
        if sign is not None:
            sign.count += 1
        elif len(self.signs) < SIGNS_KEPT:
            self.signs[(name, key)] = Sign(1, line, words)

    def enter(self, phase: str) -> None:
        """Start a phase that a mark in the log names; the same name twice is two repeats of it."""
        self.settle()
        self.phase = phase
        self.phases[phase] += 1

    def named(self, name: str) -> dict[str, Sign]:
        """Return the signs of one name, by key, in the order they came."""
        return {key: sign for (one, key), sign in self.signs.items() if one == name}

    def of_kind(self, *kinds: str, stage: str = "run") -> list[tuple[Call, int]]:
        """Return (call, count) of these kinds, over all phases."""
        return [(c, t.calls) for (c, _), t in self.calls.items() if c.kind in kinds and c.stage == stage]


def rows(log: Log) -> list[dict[str, Any]]:
    """Return one tidy row a distinct call and phase: its fields, calls, time_ms (null: not in the log), first line."""
    return [
        {
            **call._asdict(),
            "phase": phase,
            "calls": tally.calls,
            "time_ms": tally.time_ms,
            "line": tally.line,
        }
        for (call, phase), tally in log.calls.items()
    ]


def total(calls: Iterable[tuple[Call, int]]) -> int:
    """Return the number of calls."""
    return sum(count for _, count in calls)


def passed_on(log: Log) -> int:
    """Return how many GEMMs stand in the log twice, because one library handed them to another that logs too.

    rocBLAS names its hipBLASLt back end (layer 8); cuBLAS calls cuBLASLt under names with three type letters.
    """
    gemms = log.of_kind("gemm")
    named = {library: total((c, n) for c, n in gemms if c.library == library) for library, _ in _libraries(gemms)}
    handed = sum(s.count for s in log.named("rocblas_to_hipblaslt").values())
    inner = total((c, n) for c, n in gemms if c.library == "cuBLASLt" and c.routine.startswith("inner"))
    return min(handed, named.get("hipBLASLt", 0)) + min(inner, named.get("cuBLAS", 0))


def _libraries(gemms: list[tuple[Call, int]]) -> list[tuple[str, int]]:
    found: Counter[str] = Counter()
    for call, count in gemms:
        found[call.library] += count
    return found.most_common()


def numbers(log: Log) -> dict[str, Any]:
    """Return the counts of one log, flat; what this kind of log cannot show has no key."""
    found: dict[str, Any] = {"lines": log.lines}
    found |= _gemm_numbers(log) | _miopen_numbers(log) | _runtime_numbers(log) | _tuned_numbers(log)
    return {**found, "other_lines": log.other, "damaged_lines": log.damaged}


def by_n(gemms: list[tuple[Call, int]]) -> dict[int, int]:
    """Return calls by n, the most frequent first; GEMMs whose shape the log does not give are left out."""
    counts: Counter[int] = Counter()
    for call, count in gemms:
        if call.n is not None:
            counts[call.n] += count
    return dict(counts.most_common())


def shapes(calls: list[tuple[Call, int]]) -> int:
    """Return how many distinct shapes there are among these calls."""
    return len({(c.m, c.n, c.k, c.batch) if c.kind == "gemm" else c.shape for c, _ in calls if c.shape or c.m})


def _gemm_numbers(log: Log) -> dict[str, Any]:
    gemms = log.of_kind("gemm")
    found: dict[str, Any] = {}
    blas = {"rocBLAS", "hipBLASLt"} if log.listening & {"rocBLAS", "hipBLASLt"} else set()
    if gemms or blas:
        found["gemm_calls"] = total(gemms) - passed_on(log)
        found["gemm_shapes"] = shapes(gemms)
    unread = total((c, n) for c, n in gemms if c.m is None)
    if unread:
        found["gemm_calls_shape_unknown"] = unread
    for n, count in list(by_n(gemms).items())[:MANAGED_N]:
        found[f"gemm_calls_n{n}"] = count
    for library in sorted(blas | {c.library for c, _ in gemms}):
        found[f"{library.lower()}_calls"] = total((c, n) for c, n in gemms if c.library == library)
    return found


def _miopen_numbers(log: Log) -> dict[str, Any]:
    kinds = ("convolution", "batch_norm", "rnn", "pooling", "activation", "softmax", "fusion")
    runs = [(c, n) for c, n in log.of_kind(*kinds) if c.library != "cuBLAS"]
    searches = [(c, n) for c, n in log.of_kind(*kinds, stage="search") if c.routine == "LogCmdFind"]
    if not runs and not searches:
        return {}
    convolutions = [(c, n) for c, n in runs if c.kind == "convolution"]
    found = {"convolutions": total(convolutions), "convolution_shapes": shapes(convolutions)}
    if log.libraries["MIOpen"]:
        found["searches"] = total(searches)
    for kind, key in (("batch_norm", "batch_norms"), ("rnn", "rnns")):
        found[key] = total((c, n) for c, n in runs if c.kind == kind)
    return found


def _runtime_numbers(log: Log) -> dict[str, Any]:
    calls = [(c, n) for c, n in log.of_kind("launch", "copy", "sync", "api") if c.library == "HIP runtime"]
    if not calls:
        return {}
    found = {"hip_calls": total(calls)}
    for kind, key in (("launch", "launches"), ("copy", "copies"), ("sync", "synchronisations")):
        found[key] = total((c, n) for c, n in calls if c.kind == kind)
    found["read_backs"] = total((c, n) for c, n in log.of_kind("direction") if c.routine == "DeviceToHost")
    found["hip_errors"] = sum(s.count for s in log.named("hip_call_failed").values())
    return found


def _tuned_numbers(log: Log) -> dict[str, Any]:
    tuned = log.of_kind("tuned_gemm", stage="search")
    if not tuned:
        return {}
    found: dict[str, Any] = {"tuned_shapes": total(tuned)}
    for library in ("rocBLAS", "hipBLASLt", "default"):
        found[f"tuned_{library.lower()}"] = total((c, n) for c, n in tuned if c.library == library)
    return found
