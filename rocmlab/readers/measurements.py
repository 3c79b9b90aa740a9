"""Single measurement records: generations, timings, speed-ups, results, greedy checks (schemas rocmlab-*-N).

Recognised by the `schema` field. A schema of ours that this version does not know is named, with those it does.
"""

from __future__ import annotations

import math
import statistics
import sys
from typing import Any

from rocmlab import batch_judges, drift, evidence, findings, isolate, machines, rates, sdpa_probe, series, texts
from rocmlab.findings import finding
from rocmlab.readers import Evidence, Reading

# What a sweep over batches is computed from, beside its items.
SWEEP_NUMBERS = (
    "prompt_tokens", "new_tokens_each", "weight_bytes", "kv_bytes_a_position", "peak_gb_s", "kernel_launches_per_step",
)  # fmt: skip
LARGEST_BATCH = 1_000_000  # more rows than any device holds: such a number is damage


def recognise(evidence: Evidence) -> bool:
    return (evidence.schema or "") in READERS


def read(evidence: Evidence) -> Reading:
    """Read one record; values that are not numbers become null with a reason and are named."""
    record, broken = finite(evidence.json)
    reading = READERS[record["schema"]](record)
    reading.numbers = findings.finite(reading.numbers)
    reading.schema = record["schema"]
    if broken:
        reading.findings.append(finding("NOT_A_NUMBER", count=len(broken), keys=", ".join(broken)))
        reading.numbers["not_a_number"] = len(broken)
    return reading


def finite(value: Any, path: str = "") -> tuple[Any, list[str]]:
    """Return (value with NaN, infinities and whole numbers beyond any float as null, the dotted names of those)."""
    if isinstance(value, dict):
        parts = {key: finite(item, f"{path}.{key}" if path else str(key)) for key, item in value.items()}
        return {key: part[0] for key, part in parts.items()}, [name for part in parts.values() for name in part[1]]
    if isinstance(value, list):
        listed = [finite(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return [part[0] for part in listed], [name for part in listed for name in part[1]]
    if isinstance(value, float) and not math.isfinite(value):
        return None, [path]
    if isinstance(value, int) and abs(value) > sys.float_info.max:  # arithmetic with such a one raises
        return None, [path]
    return value, []


def _generation(record: dict[str, Any]) -> Reading:
    numbers = rates.rates(record)
    if isinstance(record.get("max_new_tokens"), int):
        numbers["max_new_tokens"] = record["max_new_tokens"]
    headline = finding("GENERATION_READ", numbers=numbers)
    return Reading("generation", numbers=numbers, findings=rates.judge_record(record), headline=headline)


def _timings(record: dict[str, Any]) -> Reading:
    op = _word(record, "op", "operator")
    if "calls" in record:
        calls = [float(c) for c in _listed(record.get("calls")) if _is_number(c)]
        compiled, first, calls = series.judge_first_call(record, calls)
        median = statistics.median(calls) if calls else None
        numbers: dict[str, Any] = {"calls": len(calls), "median_ms": median}
        if median is None:
            numbers["median_ms_reason"] = "the record holds no calls"
        headline = finding("SERIES_READ", op=op, count=len(calls), median=median, unit=_word(record, "unit", "ms"))
        drifting, found = drift.judge(calls, _listed(record.get("sensor")), op)
        return Reading("timings", numbers=numbers | drifting | compiled, findings=first + found, headline=headline)
    numbers, found = rates.judge_gemm(record)
    words: dict[str, Any] = {"ms": numbers.get("median_ms"), "tflops": numbers.get("tflops")}
    words["pct"] = numbers.get("peak_pct")
    return Reading("timings", numbers=numbers, findings=found, headline=finding("GEMM_READ", op=op, **words))


def _speedup(record: dict[str, Any]) -> Reading:
    sides = {name: side if isinstance(side := record.get(name), dict) else {} for name in ("cpu", "gpu")}
    below, above = (rate if _is_number(rate := side.get("decode_tok_s")) else None for side in sides.values())
    numbers: dict[str, Any] = {"ratio": None, "cpu_tok_s": below, "gpu_tok_s": above}
    if below is not None and above is not None and below > 0:
        numbers["ratio"] = above / below
    else:
        numbers["ratio_reason"] = "one of the two rates is missing, or is no rate"
    for key in [key for key in ("cpu_tok_s", "gpu_tok_s") if numbers[key] is None]:
        numbers[f"{key}_reason"] = "the record holds no such number"
    words = {f"{name}_dtype": _word(side, "dtype", "unknown") for name, side in sides.items()}
    differ = words["cpu_dtype"] != words["gpu_dtype"] or "unknown" in words.values()
    found = [finding("NOT_LIKE_FOR_LIKE", numbers=numbers, **words)] if differ else []
    return Reading("speedup", numbers=numbers, findings=found, headline=finding("RATIO_READ", numbers=numbers, **words))


def _result(record: dict[str, Any]) -> Reading:
    numbers: dict[str, Any] = {key: value for key, value in record.items() if value is None or _is_number(value)}
    for key in [key for key, value in numbers.items() if value is None]:
        numbers[f"{key}_reason"] = _word(record, f"{key}_reason", "NaN, Infinity or null in the file")
    count = sum(_is_number(value) for value in numbers.values())
    return Reading("result", numbers=numbers, headline=finding("RESULT_READ", count=count))


def _greedy(record: dict[str, Any]) -> Reading:
    """Compare the tokens of every path with the CPU's; a path with other tokens or broken logits has no speed."""
    numbers, found = texts.judge_paths(record)
    return Reading("greedy_check", numbers=numbers, findings=found)


def _sweep(record: dict[str, Any]) -> Reading:
    """Judge a sweep over batches; batches without a time are null with their reason."""
    record = record | {key: _number(record.get(key)) for key in SWEEP_NUMBERS}
    record["items"] = [_sweep_item(item) for item in _listed(record.get("items")) if _is_batch(item)]
    numbers, found = batch_judges.judge(record)
    steps, failed = batch_judges.measured(record)
    words: dict[str, Any] = {key: _word(record, key, "unknown") for key in ("model", "dtype")}
    headline = finding("SWEEP_READ", batches=", ".join(map(str, sorted({*steps, *failed}))), **words)
    return Reading("batch_sweep", numbers=numbers, findings=found, headline=headline)


def _pieces(record: dict[str, Any]) -> Reading:
    numbers, found = series.judge_pieces(record)
    op = _word(record, "op", "operator")
    return Reading("chunk_check", numbers=numbers, findings=found, headline=finding("PIECES_READ", op=op))


def _attention(record: dict[str, Any]) -> Reading:
    """Judge the back ends of attention, forced in turn, and the default."""
    numbers, found = sdpa_probe.judge(record)
    given = record.get("shape")
    shape = given if isinstance(given, dict) else {}
    words: dict[str, Any] = {"arch": _word(record, "arch", "unknown"), "dtype": _word(record, "dtype", "unknown")}
    words["shape"] = ", ".join(f"{key} {value}" for key, value in shape.items() if _is_number(value)) or "unknown"
    told = {key: numbers.get(key) for key in ("default_ms", "math_ms", "default_over_math_pct")}
    headline = finding("ATTENTION_READ", numbers=told, **words)
    return Reading("sdpa_probe", numbers=numbers, findings=found, headline=headline)


def _exit_codes(record: dict[str, Any]) -> Reading:
    """Say what each exit code of a child process means; the same code once."""
    given = [item for item in _listed(record.get("items")) if isinstance(item, dict)]
    items = [item for item in given if _is_number(item.get("returncode"))]
    found = []
    for item in items:
        status, words = isolate.meaning(int(item["returncode"]), str(item.get("platform") or "") or None)
        if status in findings.messages():
            found.append(finding(status, variant="exit", words=words))
    order = sorted({one["code"] for one in found}, key=evidence.ORDER.index)
    kept = [next(one for one in found if one["code"] == code) for code in order]
    headline = finding("EXIT_CODES_READ", items=len(items))
    return Reading("exit_codes", numbers={"items": len(items)}, findings=kept, headline=headline)


def _machines(record: dict[str, Any]) -> Reading:
    """Tell the devices of several machines apart by target and memory, whatever they are called."""
    numbers, items, found, who = machines.read(record)
    headline = finding("MACHINES_READ", machines=numbers["machines"], who=who)
    return Reading("machines", numbers=numbers, findings=found, headline=headline, extra={"items": items})


def _is_batch(item: Any) -> bool:
    return isinstance(item, dict) and _is_number(item.get("batch")) and 1 <= item["batch"] <= LARGEST_BATCH


def _sweep_item(item: dict[str, Any]) -> dict[str, Any]:
    memory = item.get("memory")
    sizes = {key: value for key, value in memory.items() if _is_number(value)} if isinstance(memory, dict) else None
    return item | {"memory": sizes}


def _number(value: Any) -> float | None:
    return value if _is_number(value) else None


_is_number = rates.is_number


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _word(record: dict[str, Any], key: str, otherwise: str) -> str:
    """Return a word of the record, or another where there is none; a list or object in its place is none."""
    value = record.get(key)
    return str(value) if isinstance(value, (str, int, float)) and value else otherwise


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
    "rocmlab-sdpa-probe-1": _attention,
    "rocmlab-machines-1": _machines,
}
