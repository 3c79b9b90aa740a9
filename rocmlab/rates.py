"""What does one record say? Pure arithmetic on single generation and operator records."""

from __future__ import annotations

import itertools
import statistics
from typing import Any, TypeGuard

from rocmlab.findings import Finding, finding


def rates(record: dict[str, Any]) -> dict[str, Any]:
    """Return {ttft_s, tpot_ms, decode_tok_s, prompt_per_ttft_tok_s, e2e_tok_s, new_tokens} of one generation record.

    A rate that the record cannot give is null with `<key>_reason`. decode = (new - 1) / (end - first token).
    """
    start, first, end = (record.get(key) for key in ("t_start_s", "t_first_token_s", "t_end_s"))
    new, prompt = record.get("new_tokens"), record.get("prompt_tokens")
    given: dict[str, Any] = {"new_tokens": new if is_number(new) else None}
    ttft, decode_s, whole_s = _between(start, first), _between(first, end), _between(start, end)
    steps = new - 1 if is_number(new) and new > 1 else None
    given["ttft_s"] = ttft
    given["prompt_per_ttft_tok_s"] = prompt / ttft if is_number(prompt) and ttft else None
    given["tpot_ms"] = 1000 * decode_s / steps if decode_s and steps else None
    later, whole = _written(record, steps, new)
    given["decode_tok_s"] = later / decode_s if decode_s and later else None
    given["e2e_tok_s"] = whole / whole_s if whole and whole_s else None
    for key in [k for k, v in given.items() if v is None]:
        given[f"{key}_reason"] = "the record lacks the times or token counts that this needs"
    return given


def _gaps_ms(record: dict[str, Any]) -> list[float]:
    """Return the times between the tokens of one record in ms: of its stamps, or the steps of a pass; [] without."""
    stamps, steps = (_samples(record.get(name)) for name in ("token_stamps_s", "step_ms"))
    if all(is_number(one) for one in stamps) and len(stamps) > 1:
        return [1000 * (late - early) for early, late in itertools.pairwise(stamps)]
    return [one for one in steps if is_number(one)]


def gap_ms(record: dict[str, Any]) -> float | None:
    """Return the median gap in ms, which a single long one does not move; the mean where no gaps were recorded."""
    gaps = _gaps_ms(record)
    return statistics.median(gaps) if gaps else record.get("decode_step_ms") or rates(record)["tpot_ms"]


def longest_gap_ms(record: dict[str, Any]) -> float | None:
    """Return the longest gap in ms, None where no gaps were recorded."""
    return max(_gaps_ms(record), default=None)


def _written(record: dict[str, Any], steps: Any, new: Any) -> tuple[float | None, float | None]:
    """Return the tokens after the first and all tokens of a batch; rows that ended early count what they wrote."""
    rows, batch = record.get("row_tokens"), record.get("batch")
    batch = batch if is_number(batch) and batch > 0 else 1
    if isinstance(rows, list) and rows and all(is_number(one) for one in rows):
        return sum(max(0, one - 1) for one in rows), sum(rows)
    return batch * steps if steps else None, batch * new if is_number(new) else None


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is an int or float; True and False are neither."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _between(early: Any, late: Any) -> float | None:
    return late - early if is_number(early) and is_number(late) and late > early else None


def _samples(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def judge_record(record: dict[str, Any]) -> list[Finding]:
    """Judge one generation record by itself: did it end early?"""
    new, limit = record.get("new_tokens"), record.get("max_new_tokens")
    if is_number(new) and is_number(limit) and new < limit:
        return [finding("STOPPED_EARLY", numbers={"new_tokens": new, "max_new_tokens": limit})]
    return []


def judge_gemm(record: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Judge timings of one operator with known work, with and without synchronisation (milliseconds, FLOP)."""
    flop, peak = record.get("flop"), record.get("peak_tflops")
    numbers: dict[str, Any] = {}
    found = []
    for key, prefix in (("with_sync", ""), ("no_sync", "no_sync_")):
        samples = [s for s in _samples(record.get(key)) if is_number(s) and s > 0]
        if not samples:
            continue
        median = statistics.median(samples)
        numbers[f"{prefix}ms" if prefix else "median_ms"] = median
        if not is_number(flop):
            continue
        rate = flop / median / 1e9
        numbers[f"{prefix}tflops"] = rate
        if not is_number(peak) or not peak:
            continue
        numbers[f"{prefix}over_peak" if prefix else "peak_pct"] = rate / peak if prefix else 100 * rate / peak
        if rate > peak:
            given = {"tflops": rate, "over_peak": rate / peak}
            variant = "no_sync" if prefix else "with_sync"
            found.append(finding("IMPOSSIBLE_RATE", numbers=given, variant=variant, ms=median, peak=peak))
    return numbers, found
