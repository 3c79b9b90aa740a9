"""Suspects that cost the host's time: Python, launches, submission, waiting, new shapes, falling back. Pure.

Each takes the clues and returns a Verdict; the rule for a part of the step is suspects.by_share.
"""

from __future__ import annotations

from typing import Any

from rocmlab import attention_tables, curves, evidence, first_visits, launch_cost, sweep, words
from rocmlab.clues import Clues, Row, Span
from rocmlab.rates import is_number
from rocmlab.suspects import (
    REFUTED,
    SHARE,
    Verdict,
    by_share,
    ms,
    not_applicable,
    pct,
    refuted,
    supported,
    undecided,
    within,
)  # fmt: skip

WAITS_A_TOKEN = 2  # reading a token back is one; a second may be the stop rule's
# Operators of 02's catalogue that a decode step of these models goes through.
OF_DECODE = (
    "linear", "linear_one_row", "linear_vocabulary", "matrix_vector", "mm", "rms_norm", "rms_norm_by_hand", "embedding",
    "rope", "kv_cache_index_copy", "kv_cache_slice", "kv_cache_cat", "repeat_kv", "swiglu", "silu", "softmax",
    "sdpa", "sdpa_grouped_query", "sdpa_decode", "attention_by_hand", "add", "mul_broadcast", "cat_stack_split",
    "argmax", "greedy", "cast",
)  # fmt: skip


def python_dispatch(clues: Clues) -> Verdict:
    """Judge the host's own work: Python and operator dispatch, without launches."""
    apart = clues.on_cpu or clues.part("host", "launch") is not None
    return by_share(
        clues, "python_dispatch", "host", clues.part("host", "python_dispatch"),
        grade=clues.grade("host", "python_dispatch"), records=("step",), notebooks=("11",),
        wording="supported" if apart else "with_launches",
    )  # fmt: skip


def launches(clues: Clues) -> Verdict:
    """Judge what launching adds to dispatch; the empty kernel below torch tells how much of it is the driver's."""
    if clues.on_cpu:
        return not_applicable("launches", "on_cpu")
    found, count = clues.part("host", "launch"), clues.launches
    together = clues.part("host", "python_dispatch")
    if found is None and together and clues.step:
        return undecided("launches", "11", wording="not_apart", ms=ms(together), records=("step",))
    driver = driver_us(clues)
    each = dict.fromkeys(words.LANGUAGES, "")
    if found and count:
        each = words.both("verdict_launches", count=f"{count:,.0f}", us=words.number(1000 * found.ms / count, "us"))
    if found and count and driver and count * driver / 1000 <= found.ms:  # else the two were not of the same launches
        more = words.both("verdict_driver", us=words.number(driver, "us"), ms=ms(count * driver / 1000))
        each = {lang: each[lang] + more[lang] for lang in each}
    return by_share(
        clues, "launches", "host", found, grade=clues.grade("host", "launch"), records=("step", "launch_cost"),
        notebooks=("11",), each=each,
    )  # fmt: skip


def driver_us(clues: Clues) -> float | None:
    """Return what launching an empty kernel through the driver costs in us, below torch."""
    found = launch_cost.cost(clues.table("launch_cost"))["driver_launch_us"]
    return found.median if found else None


def submission(clues: Clues) -> Verdict:
    """Judge batching and flushes of the Windows driver: a step that waits for its token against queued steps."""
    if clues.on_cpu:
        return not_applicable("submission", "on_cpu")
    if clues.system and not clues.windows_driver:
        return not_applicable("submission", "not_windows", system=clues.system)
    step, queued = clues.step, clues.quantity("T_block")
    if not clues.system:
        return undecided("submission", "01", records=("snapshot",))
    if step is None or queued is None:
        return undecided("submission", "11", records=("step",))
    apart = within(Span(step.ms - queued.ms, step.low - queued.high, step.high - queued.low), step)
    kept: dict[str, Any] = {"records": ("step",), "step_ms": step.ms, "grade": "D"}
    told: dict[str, Any] = {"ms": ms(apart), "step": ms(step), "queued": ms(queued), "share": pct(apart.ms / step.ms)}
    if apart.high < SHARE * step.ms:
        return refuted("submission", span=apart, **told, **kept)
    if apart.low < SHARE * step.ms:
        return undecided("submission", "11", wording="wide", span=apart, low=ms(apart.low), high=ms(apart.high),
                         **told, **kept)  # fmt: skip
    return supported("submission", span=apart, **told, **kept)


def waiting(clues: Clues) -> Verdict:
    """Judge synchronisation and reading back: its part of the host lane, and how often a token waits."""
    if clues.on_cpu:
        return not_applicable("waiting", "on_cpu")
    waits = waits_a_token(clues)
    seen = words.both("verdict_waits_unknown" if waits is None else "verdict_waits", waits=f"{waits or 0:g}")
    found = by_share(
        clues, "waiting", "host", clues.part("host", "readback"), grade=clues.grade("host", "readback"),
        records=("step", "profiler"), notebooks=("11",), seen=seen,
    )  # fmt: skip
    if found.verdict != REFUTED or waits is None or waits <= WAITS_A_TOKEN or clues.binds("host") is False:
        return found
    # What waits in the midst of a step stands in the launch or Python row of the lane, not in the read-back.
    kept: dict[str, Any] = {"grade": found.grade, "records": found.records, "step_ms": found.step_ms}
    return undecided("waiting", "07", wording="inside", waits=f"{waits:g}", ms=ms(found.span), **kept)


def waits_a_token(clues: Clues) -> float | None:
    """Return how many calls of a token wait for the device: by the trace, else by the runtime's log."""
    seen = (clues.of_profiler("evidence") or {}).get("sync_calls_a_token")
    if is_number(seen):
        return float(seen)
    steps = [one for row in clues.table("library_runs") for one in (row.get("per_step") or {}).values()]
    counts = [one.get("synchronisations_a_step") for one in steps]
    return next((float(one) for one in counts if is_number(one)), None)


def of_decode(clues: Clues) -> list[Row]:
    """Return the rows of 02 of operators that a decode step goes through: in the subject's dtype, where tried."""
    mine = [row for row in clues.operators if row.get("op") in OF_DECODE]
    return [row for row in mine if row.get("dtype") == clues.dtype] or mine


def cpu_fallback(clues: Clues) -> Verdict:
    """Judge whether an operator of the decode step runs on the CPU behind the user's back."""
    if clues.on_cpu:
        return not_applicable("cpu_fallback", "on_cpu")
    placed = {row["op"]: evidence.levels(row)["on_device"] for row in of_decode(clues)}
    fell = [op for op, state in placed.items() if state == "no"]
    kept: dict[str, Any] = {
        "records": ("operators", "profiler"),
        "step_ms": clues.step.ms if clues.step else None,
        "no_ms": words.both("verdict_no_single_time"),
    }
    if fell:
        return supported("cpu_fallback", names=", ".join(fell), **kept)
    proved, waits = [op for op, state in placed.items() if state == "yes"], waits_a_token(clues)
    if not proved:
        return undecided("cpu_fallback", "02", **kept)
    if waits is not None and waits > WAITS_A_TOKEN:
        return undecided("cpu_fallback", "07", wording="waits", waits=f"{waits:g}", count=len(proved), **kept)
    return refuted("cpu_fallback", span=Span(0.0, 0.0, 0.0), count=len(proved), **kept)


def new_shapes(clues: Clues) -> Verdict:
    """Judge what the first visit of a shape costs: compiling, searching or planning, paid once for each length."""
    shapes = curves.first_visits(clues.table("lengths"), "steady") + sweep.first_visits(clues.table("batches"))
    found = first_visits.cost(shapes)
    if found is None:
        return undecided("new_shapes", "04", "05", records=("lengths", "batches"))
    told: dict[str, Any] = {"first": ms(found.first_ms), "usual": ms(found.usual_ms), "count": found.count}
    kept: dict[str, Any] = {"records": ("lengths", "batches"), "grade": "D"}
    if found.slow is None:
        return undecided("new_shapes", "04", wording="some", **told, **kept)
    if found.slow:
        span = Span(found.extra_ms, found.low_ms, found.high_ms)
        return supported("new_shapes", span=span, extra=ms(span), by=charging(clues), **told, **kept)
    span = Span(*(max(one, 0.0) for one in (found.extra_ms, found.low_ms, found.high_ms)))
    return refuted("new_shapes", span=span, **told, **kept)


def charging(clues: Clues) -> dict[str, str]:
    """Name the attention path that charges for a first visit, in ms a step, where notebook 09 found one; else ""."""
    rows = clues.table("attention")
    lines = [one for one in attention_tables.visits(rows) if one["backend"] == "default" and one["charge_ms"]]
    head = next(
        (r for r in attention_tables.usual(attention_tables.own(rows), "decode") if r["backend"] == "default"), None
    )
    if not lines or head is None or lines[0]["charge_ms"].low <= 0:
        return dict.fromkeys(words.LANGUAGES, "")
    took = attention_tables.path(head, rows, [])["path"] or "default"
    return words.both("verdict_charged", path=took, ms=ms(lines[0]["charge_ms"].median))
