"""The two everyday questions: why does the task manager show a low GPU, and does the model run on the CPU? Pure."""

from __future__ import annotations

import statistics

from rocmlab import ledger_checks, profile_tables, suspects_device, words
from rocmlab.clues import Clues
from rocmlab.findings import Finding, finding
from rocmlab.rates import is_number
from rocmlab.suspects import SUPPORTED, Verdict

LOW_PCT = 70.0  # of the step: a GPU that works more than this should look busy


def judge(clues: Clues, verdicts: list[Verdict]) -> list[Finding]:
    """Return the answers that these records give; [] where they give none."""
    return [one for one in (low_gpu(clues), on_the_cpu(clues, verdicts)) if one]


def busy_pct(clues: Clues) -> float | None:
    """Return the share of a step in percent for which the GPU works: by the ledger, else by the trace of 07."""
    if clues.step and clues.device_ms and clues.device_ms.ms <= ledger_checks.LONGER * clues.step.ms:
        return 100 * min(1.0, clues.device_ms.ms / clues.step.ms)
    busy = (clues.of_profiler("evidence") or {}).get("device_busy_ms_a_token")
    clean = profile_tables.steps_ms([r for r in clues.table("profiler") if r.get("what") == "steps"], "clean")
    return 100 * busy / statistics.median(clean) if is_number(busy) and clean else None


def low_gpu(clues: Clues) -> Finding | None:
    """Say which share of the time the GPU works, and which engine a monitor counts."""
    if clues.on_cpu:
        return finding(
            "TASK_MANAGER_GPU", numbers={"busy_pct": None, "busy_pct_reason": "no GPU was in use"}, variant="cpu"
        )
    busy = busy_pct(clues)
    upper = bool((clues.account or {}).get("device_upper"))
    if busy is None or (upper and busy >= LOW_PCT):  # of an upper bound only smallness says something
        return None
    variant = ("low" if busy < LOW_PCT else "high") + ("_windows" if clues.system == "Windows" else "")
    only = words.both("busy_at_most" if upper else "busy_exactly", pct=_range(clues, busy))
    return finding("TASK_MANAGER_GPU", numbers={"busy_pct": busy}, variant=variant, only=only)


def _range(clues: Clues, busy: float) -> str:
    """Return "15-20%" where a trace of the step shows kernels at work for less: a replay's gaps are no work, and
    monitors differ in what they count."""
    traced = clues.quantity("D_busy")
    least = 100 * traced.ms / clues.step.ms if traced and clues.step else busy
    return f"{least:.0f}-{busy:.0f}%" if busy - least >= 2 else f"{busy:.0f}%"


def on_the_cpu(clues: Clues, verdicts: list[Verdict]) -> Finding | None:
    """Say what share of the processor one busy thread is, and where the model runs."""
    cores = (clues.snapshot.get("host") or {}).get("cores_logical")
    if not clues.device or not is_number(cores) or cores < 1:
        return None
    threads = next(
        (row["threads"] for name in ("step", "lengths") for row in clues.table(name) if row.get("threads")), None
    )
    numbers = {"one_thread_pct": 100 / cores, "threads_logical": int(cores)}
    fell = any(one.suspect == "cpu_fallback" and one.verdict == SUPPORTED for one in verdicts)
    if clues.on_cpu:
        used = threads or 1
        numbers |= {"cpu_pct": min(100.0, 100 * used / cores)}
        timed = suspects_device.one_row_times(clues)
        variant = "cpu_one_core" if timed and timed["one_core"] and used > 1 else "cpu"
        return finding("CPU_SHARE", numbers=numbers, variant=variant, threads=used)
    # Only where the host binds is its thread known to be busy all the time: else it may sleep while it waits.
    variant = "fallback" if fell else "gpu" if clues.binds("host") else "gpu_waits"
    return finding("CPU_SHARE", numbers=numbers, variant=variant)
