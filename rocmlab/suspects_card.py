"""Suspects that lie in the card, its dtype and the model's size: emulated dtypes, a model too small, spilled memory.
Pure.

Each takes the clues and returns a Verdict.
"""

from __future__ import annotations

from typing import Any

from rocmlab import ceiling, clock_readings, experiments, gemm_judges, sensor_judges, words
from rocmlab.clues import Clues, Row, Span
from rocmlab.suspects import SHARE, Verdict, ms, not_applicable, pct, refuted, supported, undecided, within

ROOM = 0.5  # of the step: a device that works less than this could do twice the work in the same time
WIDER_FREE = 1.25  # times the step: a model twice as wide that takes no longer found room on the card

HOLDS = 0.9  # of the weights must lie in what the sensors saw in use


def wrong_dtype(clues: Clues) -> Verdict:
    """Judge whether the subject's dtype is computed by the device or only emulated."""
    rates, records = clues.table("gemm_rate"), ("gemm_rate", "experiments")
    if clues.dtype == "float32":
        return not_applicable("wrong_dtype", "float32")
    own, wide, half = (gemm_judges.rate_tflops(rates, name) for name in (clues.dtype, "float32", "float16"))
    if own is None or wide is None:
        return undecided("wrong_dtype", "06", records=records)
    rate = {name: words.number(one, "TFLOP/s") for name, one in (("rate", own), ("wide", wide), ("half", half))}
    told: dict[str, Any] = {"dtype": clues.dtype, **rate}
    kept: dict[str, Any] = {"records": records, "grade": "B", "step_ms": clues.step.ms if clues.step else None}
    computed = _computed(own, wide, half if clues.dtype == "bfloat16" else None)
    if computed is None:
        return undecided("wrong_dtype", "11", wording="between", **told, **kept)
    if computed:
        return refuted("wrong_dtype", span=Span(0.0, 0.0, 0.0), **told, **kept)
    better = _other_dtype(clues)
    if better is None or not clues.step:
        if clues.binds("device") is False:
            return refuted("wrong_dtype", "behind", span=Span(0.0, 0.0, 0.0), **told, **kept)
        kept["no_ms"] = words.both("verdict_no_experiment")
        return undecided("wrong_dtype", "11", wording="no_step", **told, **kept)
    span = within(Span(*(clues.step.ms * (1 - ratio) for ratio in better)), clues.step)
    if better[1] <= 1 - SHARE:
        return supported("wrong_dtype", span=span, **told, **kept)
    if better[2] > 1 - SHARE:
        return refuted("wrong_dtype", "hidden_dtype", span=span, **told, **kept)
    given = {"ms": ms(span), "step": ms(clues.step), "share": pct(span.ms / clues.step.ms)}
    ends = {"low": ms(span.low), "high": ms(span.high)}
    return undecided("wrong_dtype", "11", wording="wide", span=span, **given, **ends, **told, **kept)


def _computed(own: float, wide: float, half: float | None) -> bool | None:
    """Tell from rates whether a 16-bit dtype is computed; `half` is float16's, where the dtype is bfloat16."""
    if own < gemm_judges.HALF_SLOW * wide or (half is not None and own < gemm_judges.EMULATED * half):
        return False
    return True if own >= gemm_judges.AS_FAST * (half if half is not None else wide) else None


def _other_dtype(clues: Clues) -> tuple[float, float, float] | None:
    """Return T in another dtype over T in this one, (median, high, low), the best that was tried as an experiment."""
    others = {"float16", "float32"} - {clues.dtype}
    ratios = [ratio_of(row) for row in clues.table("experiments") if row.get("name") in others]
    known = [one for one in ratios if one]
    return min(known, key=lambda one: one[0]) if known and clues.texts == 1 else None


def ratio_of(row: Row) -> tuple[float, float, float] | None:
    """Return T_changed / T_baseline of one experiment as observed, (median, high, low); None where it did not run."""
    found = experiments.observed(row)
    return (found.median, found.high, found.low) if found else None


# ---- the card and its size


def model_small(clues: Clues) -> Verdict:
    """Judge whether the model gives the card too little to do: a wider model would then cost nothing more."""
    if clues.on_cpu:
        return not_applicable("model_small", "on_cpu")
    step, device = clues.step, clues.device_ms
    wider = next((ratio_of(row) for row in clues.table("experiments") if row.get("name") == "width_x2"), None)
    if clues.texts != 1:  # 11 tries a wider model on one text
        wider = None
    if step is None or device is None:
        return undecided("model_small", "11", records=("step",))
    idle = within(Span(step.ms - device.ms, step.low - device.high, step.high - device.low), step)
    told: dict[str, Any] = {"device": ms(device), "step": ms(step), "share": pct(device.ms / step.ms)}
    kept: dict[str, Any] = {"records": ("step", "experiments"), "step_ms": step.ms, "grade": "D"}
    room = clues.binds("host") is True and device.high <= ROOM * step.low
    full = clues.binds("device") is True or (device.low > ROOM * step.high)
    if room and (wider is None or wider[1] <= WIDER_FREE):
        return supported("model_small", span=idle, **told, **kept)
    if full and (wider is None or wider[2] > WIDER_FREE):
        return refuted("model_small", span=Span(0.0, 0.0, 0.0), **told, **kept)
    told |= {"ms": ms(idle), "share": pct(idle.ms / step.ms)}
    return undecided("model_small", "11", wording="mixed", span=idle, **told, **kept)


def spilled(clues: Clues) -> Verdict:
    """Judge whether the model's memory reaches past the card's own into memory behind PCIe: by the sensors beside the
    texts, and by the size from which reading gets slower."""
    if clues.on_cpu:
        return not_applicable("spilled", "on_cpu")
    if any(one.get("integrated") for one in clock_readings.beside_decode(clues)):
        return not_applicable("spilled", "integrated")
    rows, need, outside = clues.table("ceiling"), clues.weight_bytes, outside_card(clues)
    sizes = [row["bytes"] for row in rows if row.get("way") == "read" and ceiling.rate(row)]
    kept: dict[str, Any] = {
        "records": ("ceiling", "lengths"),
        "grade": "D",
        "step_ms": clues.step.ms if clues.step else None,
    }
    over = ceiling.spill(rows)
    told: dict[str, Any] = {"need": words.number(need, "B"), **(outside or {}).get("told", {})}
    if over is None or need is None or not sizes:
        return _by_sensors(outside, max(sizes, default=0), need, told, kept)
    told |= {"begin": words.number(float(over["bytes"]), "B"), "rate": words.number(over["gb_s"], "GB/s")}
    fits = max((size for size in sizes if size < over["bytes"]), default=0)
    if outside and outside["spilled"] is False:
        return refuted("spilled", "held_though", span=Span(0.0, 0.0, 0.0), **told, **kept)
    if need <= fits:
        if outside and outside["spilled"]:
            return supported("spilled", "seen", no_ms=words.both("verdict_no_single_time"), **told, **kept)
        return refuted("spilled", "fits", span=Span(0.0, 0.0, 0.0), **told, **kept)
    if need < over["bytes"]:
        return undecided("spilled", "04", wording="between_sizes", **told, **kept)
    slower = 1e-6 * (1 / over["gb_s"] - 1 / over["usual_gb_s"])  # ms a byte that lies outside
    ends = ((need - (fits + over["bytes"]) / 2) * slower, (need - over["bytes"]) * slower, (need - fits) * slower)
    step = clues.step
    if step and ends[1] > step.high:  # it would take longer than the step does
        return refuted(
            "spilled", "too_fast", span=Span(0.0, 0.0, 0.0), least=ms(ends[1]), step=ms(step), **told, **kept
        )
    span = Span(*(min(end, step.ms) for end in ends)) if step else Span(*ends)
    return supported("spilled", span=span, ms=ms(span), **told, **kept)


def _by_sensors(
    outside: dict[str, Any] | None, largest: float, need: float | None, told: dict[str, Any], kept: dict[str, Any]
) -> Verdict:
    """Return the verdict where reading never got slower: what the sensors saw, else whether so much was tried."""
    told |= {"largest": words.number(float(largest), "B")}
    if outside and outside["spilled"]:
        return supported("spilled", "seen", no_ms=words.both("verdict_no_single_time"), **told, **kept)
    if outside and outside["spilled"] is False:
        return refuted("spilled", "held", span=Span(0.0, 0.0, 0.0), **told, **kept)
    if need is None or not largest:
        return undecided("spilled", "04", **kept)
    if largest < need:
        return undecided("spilled", "04", wording="not_reached", **told, **kept)
    return refuted("spilled", span=Span(0.0, 0.0, 0.0), **told, **kept)


def outside_card(clues: Clues) -> dict[str, Any] | None:
    """Return {spilled, told} by the readings beside the texts of notebook 04; None where the source does not tell.

    spilled: True where the card was full and more of the machine's memory was in use than before the model was loaded;
    False where there was room, or next to nothing outside; None where nobody read before, so that it may be another's.
    """
    rows = [row for row in clues.table("lengths") if isinstance(row.get("sensor"), dict)]
    read = [row["sensor"] for row in rows if row.get("kind") == "hand"]
    before = sensor_judges.values([row["sensor"] for row in rows if row.get("kind") == "before"], "spilled_bytes")
    used, whole, out = (
        sensor_judges.values(read, f"{key}_bytes") for key in ("memory_used", "memory_total", "spilled")
    )
    shared = any(one.get("integrated") for one in read)  # those keep everything in one place
    need = clues.weight_bytes or 0.0
    if not used or not whole or shared or max(used) < HOLDS * need:  # whatever it is that was read, not the model's
        return None
    full, most = max(used) >= sensor_judges.FULL * whole[-1], max(out, default=None)
    told = {"used": words.number(max(used), "B"), "whole": words.number(whole[-1], "B"), "out": words.number(most, "B")}
    if not full:
        return {"spilled": False, "told": told}
    if most is None:
        return None
    if most < sensor_judges.SPILL_BYTES:
        return {"spilled": False, "told": told}
    grew = most - before[0] >= sensor_judges.SPILL_BYTES if before else None
    return {"spilled": grew, "told": told}
