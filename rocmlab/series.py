"""A series of calls with a first one that compiles, and a result that is wrong as a whole but right in pieces. Pure."""

from __future__ import annotations

import math
import statistics
from typing import Any

from rocmlab import tolerance
from rocmlab.findings import Finding, finding
from rocmlab.rates import is_number

STEADY = 1.25  # a call is steady once it, and all after it, stay within this factor of the median of the last half
COMPILE_MS, COMPILE_TIMES = 1000.0, 20.0  # a first call longer than this, and this much longer than a steady one
# First calls elsewhere, as a record names them: in a second process (the disk cache), and of another shape.
ELSEWHERE = {
    "second_process_first_call_ms": "second_process_same_shape_first_call",
    "new_shape_first_call_ms": "new_shape_first_call",
}
LARGEST_OF_NORMAL = 6.0  # standard deviations: the largest of some hundred million normal values


def steady_from(calls: list[float]) -> int:
    """Return the index of the first call from which on the median of calls stays steady."""
    settled = statistics.median(calls[len(calls) // 2 :])
    slow = [place for place, ms in enumerate(calls[: len(calls) // 2]) if ms > STEADY * settled]
    return slow[-1] + 1 if slow else 0


def judge_first_call(record: dict[str, Any], calls: list[float]) -> tuple[dict[str, Any], list[Finding], list[float]]:
    """Return (numbers, findings, steady calls) of a series in ms; all calls stay unless the first one compiles."""
    if len(calls) < 3:
        return {}, [], calls
    start = steady_from(calls)
    kept = calls[start:]
    median = statistics.median(kept)
    if start == 0 or calls[0] < COMPILE_MS or calls[0] < COMPILE_TIMES * median:
        return {}, [], calls
    numbers: dict[str, Any] = {"median_ms": median, "first_call_ms": calls[0], "steady_calls": len(kept)}
    for key, name in ELSEWHERE.items():
        numbers[key] = record.get(name) if is_number(record.get(name)) else None
        if numbers[key] is None:
            numbers[f"{key}_reason"] = "the record does not hold it"
    op = str(record.get("op") or "operator")
    return numbers, [finding("COMPILE_ON_FIRST_CALL", numbers=numbers, op=op)], kept


def judge_pieces(record: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Judge one operation done whole, in pieces, and with random data of the same shape."""
    shape = record.get("shape") or {}
    whole, random = record.get("whole") or {}, record.get("random_input_same_shape") or {}
    pieces: dict[str, Any] = next((v for k, v in record.items() if k.startswith("chunks") and isinstance(v, dict)), {})
    numbers: dict[str, Any] = {"rows": shape.get("rows")}
    for name, part in (("whole", whole), ("chunks", pieces), ("random", random)):
        numbers[f"nan_{name}"] = part.get("nan_count")
        numbers[f"max_abs_err_{name}"] = part.get("max_abs_err_vs_cpu")
    for key in [key for key, value in numbers.items() if value is None]:
        numbers[f"{key}_reason"] = "not in the record, or no finite number"
    op, dtype = str(record.get("op") or "operator"), str(record.get("dtype") or "unknown dtype")
    limit = allowed_error(dtype, shape.get("k"))
    states = {name: _right(part, limit) for name, part in (("whole", whole), ("pieces", pieces), ("random", random))}
    if states["whole"] is not False:
        return numbers, []
    if states["pieces"] or (states["pieces"] is None and states["random"]):
        return numbers, [finding("WRONG_RESULT_BY_SIZE", numbers=numbers, op=op, dtype=dtype)]
    words = {"what": f"{op} in {dtype}", "max_rel_err": None}
    return numbers, [finding("WRONG_VALUE", numbers=numbers, **words)]


def allowed_error(dtype: str, terms: Any) -> float:
    """Return the absolute error that rounding may leave in a product of normal values with `terms` terms."""
    count = terms if is_number(terms) and terms > 0 else 1
    return tolerance.relative(dtype, int(count), 1) * (LARGEST_OF_NORMAL + 1) * math.sqrt(count)


def _right(part: dict[str, Any], limit: float) -> bool | None:
    """Tell whether a part is right; None where the record does not tell."""
    bad = (part.get("nan_count") or 0) + (part.get("inf_count") or 0)
    error = part.get("max_abs_err_vs_cpu")
    if not part:
        return None
    if bad:
        return False
    return error <= limit if is_number(error) else True
