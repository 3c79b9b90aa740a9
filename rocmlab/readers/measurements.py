"""Single measurement records: generations, timings, speed-ups, results, greedy checks (schemas rocmlab-*-N).

Recognised by the `schema` field. A schema of ours that this version does not know is named, with those it does.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

from rocmlab import batch_judges, drift, findings, isolate, rates, series, texts
from rocmlab.findings import finding
from rocmlab.readers import Evidence, Reading


def recognise(evidence: Evidence) -> bool:
    return (evidence.schema or "") in READERS


def read(evidence: Evidence) -> Reading:
    """Read one record; values that are not numbers become null with a reason and are named."""
    record, broken = finite(evidence.json)
    reading = READERS[record["schema"]](record)
    reading.schema = record["schema"]
    if broken:
        reading.findings.append(finding("NOT_A_NUMBER", count=len(broken), keys=", ".join(broken)))
        reading.numbers["not_a_number"] = len(broken)
    return reading


def finite(value: Any, path: str = "") -> tuple[Any, list[str]]:
    """Return (value with NaN and infinities as null, the dotted names of those)."""
    if isinstance(value, dict):
        parts = {key: finite(item, f"{path}.{key}" if path else str(key)) for key, item in value.items()}
        return {key: part[0] for key, part in parts.items()}, [name for part in parts.values() for name in part[1]]
    if isinstance(value, list):
        listed = [finite(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return [part[0] for part in listed], [name for part in listed for name in part[1]]
    if isinstance(value, float) and not math.isfinite(value):
        return None, [path]
    return value, []


def _generation(record: dict[str, Any]) -> Reading:
    numbers = rates.rates(record)
    if isinstance(record.get("max_new_tokens"), int):
        numbers["max_new_tokens"] = record["max_new_tokens"]
    headline = finding("GENERATION_READ", numbers=numbers)
    return Reading("generation", numbers=numbers, findings=rates.judge_record(record), headline=headline)


def _timings(record: dict[str, Any]) -> Reading:
    op = str(record.get("op") or "operator")
    if "calls" in record:
        calls = [c for c in record.get("calls") or [] if _is_number(c)]
        compiled, first, calls = series.judge_first_call(record, calls)
        median = statistics.median(calls) if calls else None
        numbers: dict[str, Any] = {"calls": len(calls), "median_ms": median}
        if median is None:
            numbers["median_ms_reason"] = "the record holds no calls"
        headline = finding("SERIES_READ", op=op, count=len(calls), median=median, unit=record.get("unit") or "ms")
        drifting, found = drift.judge(calls, record.get("sensor"), op)
        return Reading("timings", numbers=numbers | drifting | compiled, findings=first + found, headline=headline)
    numbers, found = rates.judge_gemm(record)
    words: dict[str, Any] = {"ms": numbers.get("median_ms"), "tflops": numbers.get("tflops")}
    words["pct"] = numbers.get("peak_pct")
    return Reading("timings", numbers=numbers, findings=found, headline=finding("GEMM_READ", op=op, **words))


def _speedup(record: dict[str, Any]) -> Reading:
    cpu, gpu = record.get("cpu") or {}, record.get("gpu") or {}
    below, above = cpu.get("decode_tok_s"), gpu.get("decode_tok_s")
    numbers: dict[str, Any] = {"ratio": None, "cpu_tok_s": below, "gpu_tok_s": above}
    if isinstance(below, (int, float)) and isinstance(above, (int, float)) and below > 0:
        numbers["ratio"] = above / below
    else:
        numbers["ratio_reason"] = "one of the two rates is missing"
    words = {"cpu_dtype": cpu.get("dtype") or "unknown", "gpu_dtype": gpu.get("dtype") or "unknown"}
    differ = words["cpu_dtype"] != words["gpu_dtype"] or "unknown" in words.values()
    found = [finding("NOT_LIKE_FOR_LIKE", numbers=numbers, **words)] if differ else []
    return Reading("speedup", numbers=numbers, findings=found, headline=finding("RATIO_READ", numbers=numbers, **words))


def _result(record: dict[str, Any]) -> Reading:
    numbers = {key: value for key, value in record.items() if value is None or _is_number(value)}
    for key in [key for key, value in numbers.items() if value is None]:
        numbers[f"{key}_reason"] = record.get(f"{key}_reason") or "NaN, Infinity or null in the file"
    count = sum(_is_number(value) for value in numbers.values())
    return Reading("result", numbers=numbers, headline=finding("RESULT_READ", count=count))


def _greedy(record: dict[str, Any]) -> Reading:
    """Compare the tokens of every path with the CPU's; a path with other tokens or broken logits has no speed."""
    numbers, found = texts.judge_paths(record)
    return Reading("greedy_check", numbers=numbers, findings=found)


def _sweep(record: dict[str, Any]) -> Reading:
    """Judge a sweep over batches; batches without a time are null with their reason."""
    numbers, found = batch_judges.judge(record)
    steps, failed = batch_judges.measured(record)
    words: dict[str, Any] = {key: str(record.get(key) or "unknown") for key in ("model", "dtype")}
    headline = finding("SWEEP_READ", batches=", ".join(map(str, sorted({*steps, *failed}))), **words)
    return Reading("batch_sweep", numbers=numbers, findings=found, headline=headline)


def _pieces(record: dict[str, Any]) -> Reading:
    numbers, found = series.judge_pieces(record)
    op = str(record.get("op") or "operator")
    return Reading("chunk_check", numbers=numbers, findings=found, headline=finding("PIECES_READ", op=op))


def _exit_codes(record: dict[str, Any]) -> Reading:
    """Say what each exit code of a child process means; the same code once."""
    items = [item for item in record.get("items") or [] if isinstance(item, dict) and _is_number(item.get("returncode"))]
    found = []
    for item in items:
        status, words = isolate.meaning(int(item["returncode"]), str(item.get("platform") or "") or None)
        if status in findings.messages():
            found.append(finding(status, variant="exit", words=words))
    order = list(dict.fromkeys(one["code"] for one in found))
    kept = [next(one for one in found if one["code"] == code) for code in order]
    return Reading("exit_codes", numbers={"items": len(items)}, findings=kept, headline=finding("EXIT_CODES_READ", items=len(items)))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


READERS = {
    "rocmlab-generation-1": _generation,
    "rocmlab-timings-1": _timings,
    "rocmlab-timings-2": _timings,
    "rocmlab-speedup-1": _speedup,
    "rocmlab-result-1": _result,
    "rocmlab-greedy-check-1": _greedy,
    "rocmlab-batch-sweep-1": _sweep,
    "rocmlab-chunk-check-1": _pieces,
    "rocmlab-exit-codes-1": _exit_codes,
}
