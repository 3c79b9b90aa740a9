"""What is proved about an operator? Pure: rows of the table "operators" in, verdicts, levels and counts out.

`verdict(row)` is one code a row; `levels(row)` says yes, no, unknown or na for each step of the ladder. That a result
lies on the device proves little; how many steps are proved is the answer.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from typing import Any

from rocmlab import kernels, timing

Row = dict[str, Any]

LEVELS = (
    "ran", "on_device", "matches_cpu", "grad_ok", "no_hidden_sync", "kernel_seen", "library_known", "faster_than_cpu",
)  # fmt: skip
STATES = ("yes", "no", "unknown", "na")
# Worst first, as they are reported.
ORDER = (
    "CRASH", "KILLED", "DLL_NOT_FOUND", "TIMEOUT", "OUT_OF_MEMORY", "ERROR", "NAN", "WRONG_VALUE", "CPU_RESULT",
    "PASS_WITH_WARNING", "PASS", "NOT_SUPPORTED", "NO_REFERENCE", "NOT_TRIED",
)  # fmt: skip
ENDED = ("CRASH", "KILLED", "DLL_NOT_FOUND", "TIMEOUT")
SOUND = ("PASS", "PASS_WITH_WARNING", "CPU_RESULT")
RETRIED = (*ENDED, "ERROR", "NAN", "WRONG_VALUE")
BROKEN = (*ENDED, "OUT_OF_MEMORY", "ERROR", "NAN", "WRONG_VALUE")

OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|not enough memory|can't allocate memory|MemoryError|Alloc_?Failed", re.I
)
# Words by which torch says that a combination does not exist, not that it failed.
UNSUPPORTED = re.compile(
    r"not implemented for|NotImplementedError|No available kernel|is not supported|not supported (?:on|for|by)"
    r"|unsupported (?:dtype|datatype)|(?:does not|doesn't) support|Cannot find a working triton|TritonMissing"
    r"|is not currently supported|only support(?:s|ed)|No valid triton|GPUTooOldForTriton|InvalidCxxCompiler"
    r"|No working C\+\+",
    re.I,
)
POISON = re.compile(r"(?:CUDA|HIP) error|AcceleratorError|device-side assert|illegal memory access|hipError", re.I)
TALK = re.compile(r"warning", re.I)
LEAK_DEVICE_BYTES = 512  # a call: the smallest block of the allocator, which counts exactly
LEAK_HOST_BYTES = 1 << 20  # a call: resident memory is a coarse measure
LEAK_HOST_LEAST = 32 << 20
FEW_APART = 1.5  # times that the ranges of fewer than six samples must lie apart: they are no intervals


def verdict(row: Row) -> str:
    """Return the code of one row."""
    if row.get("not_tried"):
        return "NOT_TRIED"
    if row.get("no_reference") and not row.get("error"):
        return "NO_REFERENCE"
    error = str(row.get("error") or "")
    if error and OUT_OF_MEMORY.search(error):
        return "OUT_OF_MEMORY"
    if row.get("status") in ENDED:
        return str(row["status"])
    if error:
        return "NOT_SUPPORTED" if UNSUPPORTED.search(error.splitlines()[0]) else "ERROR"
    if row.get("status") not in (None, "OK"):
        return "ERROR"
    tried = [*(row.get("inputs") or []), *([row["gradient"]] if row.get("gradient") else [])]
    if any(one.get("not_finite") for one in tried):
        return "NAN"
    if any(one.get("outside") for one in tried):
        return "WRONG_VALUE"
    if row.get("device") and _kind(row["device"]) != _kind(row.get("device_asked")):
        return "CPU_RESULT"
    return "PASS_WITH_WARNING" if said(row) else "PASS"


def said(row: Row) -> list[str]:
    """Return the warnings of a row: Python's, torch's, and those that a library printed."""
    printed = [line.strip() for line in str(row.get("stderr") or "").splitlines() if TALK.search(line)]
    return list(dict.fromkeys([*(row.get("warnings") or []), *printed]))


def _kind(device: Any) -> str:
    return str(device or "").split(":")[0]


def poisoned(row: Row) -> bool:
    """Tell whether an error stays in the driver's context, so that later operators of the process would fail too."""
    return bool(POISON.search(str(row.get("error") or "")))


def leaks(row: Row) -> bool:
    """Tell whether memory grew with every steady call."""
    growth = row.get("growth") or {}
    calls = growth.get("calls") or 0
    device, host = growth.get("device_growth_bytes") or 0, growth.get("host_growth_bytes") or 0
    return bool(calls) and (
        device >= calls * LEAK_DEVICE_BYTES or host >= max(calls * LEAK_HOST_BYTES, LEAK_HOST_LEAST)
    )


# ---- levels


def levels(row: Row) -> dict[str, str]:
    """Return {level: yes, no, unknown or na} of one row; na: the question does not apply to it."""
    code = verdict(row)
    if code in ("NOT_TRIED", "NOT_SUPPORTED"):
        return dict.fromkeys(LEVELS, "na")
    ran = code not in (*ENDED, "OUT_OF_MEMORY", "ERROR")
    if not ran:
        return {"ran": "no"} | dict.fromkeys(LEVELS[1:], "unknown")
    gpu = _kind(row.get("device_asked")) != "cpu"
    tried = row.get("inputs") or []
    right = all(not one.get("not_finite") and not one.get("outside") for one in tried)
    found = {"ran": "yes", "on_device": "na"}
    if gpu:
        same = _kind(row.get("device")) == _kind(row.get("device_asked"))
        found["on_device"] = "na" if not row.get("device") else "yes" if same else "no"
    found["matches_cpu"] = "unknown" if code == "NO_REFERENCE" or not tried else "yes" if right else "no"
    found["grad_ok"] = _gradient(row)
    found["no_hidden_sync"] = _sync(row) if gpu else "na"
    found |= _kernels(row, gpu)
    found["faster_than_cpu"] = _faster(row) if gpu else "na"
    return found


def _gradient(row: Row) -> str:
    if not row.get("has_gradient"):
        return "na"
    found = row.get("gradient")
    if not found:
        return "unknown"
    return "no" if found.get("not_finite") or found.get("outside") else "yes"


def _part(row: Row, name: str) -> Row:
    return (row.get("evidence") or {}).get(name) or {}


def _sync(row: Row) -> str:
    if row.get("waits_by_design"):
        return "na"
    waited = _part(row, "sync").get("waited")
    return "unknown" if waited is None else "no" if waited else "yes"


def libraries(row: Row) -> list[str]:
    """Return the libraries of a row: by the names of its kernels, else by a library's own log; unknown is left out."""
    names = _part(row, "kernels").get("names") or []
    found = [kernels.library(name) for name in names] or list(row.get("logged") or {})
    return list(dict.fromkeys(name for name in found if name not in (kernels.OTHER, "memcpy", "memset")))


def blind(rows: list[Row]) -> bool:
    """Tell whether the profiler named no kernel for most of the operators that ran on the device."""
    ran = [row for row in rows if levels(row)["ran"] == "yes"]
    seen = sum(bool(_part(row, "kernels").get("names")) for row in ran)
    return bool(ran) and 2 * seen < len(ran)


def _kernels(row: Row, gpu: bool) -> dict[str, str]:
    """A kernel that was not seen is unknown, never no: the profiler may be blind, and a view launches none."""
    names = _part(row, "kernels").get("names")
    known = "yes" if libraries(row) else "unknown"
    return {"kernel_seen": ("yes" if names else "unknown") if gpu else "na", "library_known": known}


def speed(row: Row) -> tuple[timing.Interval | None, timing.Interval | None]:
    """Return (time on the device, time on the CPU) in ms, medians with their intervals."""
    own = timing.median_interval(row.get("steady_ms") or [])
    cpu = timing.median_interval(_part(row, "cpu").get("steady_ms") or [])
    return own, cpu


def _faster(row: Row) -> str:
    own, cpu = speed(row)
    if own is None or cpu is None:
        return "unknown"
    apart = 1.0 if own.enough and cpu.enough else FEW_APART
    if apart * own.high < cpu.low:
        return "yes"
    return "no" if own.low > apart * cpu.high else "unknown"


def histogram(rows: list[Row]) -> dict[str, Counter[str]]:
    """Return {level: counts of yes, no, unknown, na} over all rows."""
    each = [levels(row) for row in rows]
    return {level: Counter(one[level] for one in each) for level in LEVELS}


def first_call(row: Row) -> tuple[float | None, float | None]:
    """Return (first call, steady median) in ms: the first holds compiling, searching and loading."""
    steady = row.get("steady_ms") or []
    return row.get("first_ms"), statistics.median(steady) if steady else None


def roof(row: Row, ceilings: dict[str, float]) -> float | None:
    """Return the share in % of the roof that binds; `ceilings` holds gb_s and <dtype>_tflops where measured."""
    _, steady = first_call(row)
    floors = floors_ms(row, ceilings)
    return 100 * max(floors.values()) / steady if floors and steady else None


def floors_ms(row: Row, ceilings: dict[str, float]) -> dict[str, float]:
    """Return {memory, products}: the least time in ms that a row's bytes and its products need, where measured."""
    timed, floors = row.get("timed") or {}, {}
    bandwidth, rate = ceilings.get("gb_s"), ceilings.get(f"{row.get('compute_dtype')}_tflops")
    if bandwidth and timed.get("bytes"):
        floors["memory"] = timed["bytes"] / bandwidth / 1e6
    if rate and timed.get("flop"):
        floors["products"] = timed["flop"] / rate / 1e9
    return floors
