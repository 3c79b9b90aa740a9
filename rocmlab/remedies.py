"""Which remedies exist here, what does each gain, what does it cost? Pure: rows of `experiments` in, a ranking out."""

from __future__ import annotations

import statistics
from typing import Any

from rocmlab import changes, experiments
from rocmlab.rates import is_number

HELPS = 1.1  # times as fast, at least, for the lower end of the interval: less is not worth a change
ERROR_SHARE = 0.1  # of the largest logit: a dtype's rounding stays far below it, a wrong kernel does not
ERROR_TIMES = 4.0  # of the error without the change


def rank(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one line a remedy: the largest gain first, then fast wrong answers, then those that failed, then those
    that cannot exist here."""
    lines = [line(row) for row in rows if row.get("kind") == changes.REMEDY]
    order = {"OK": 0, "CRASH": 2, "TIMEOUT": 2, "ERROR": 2}
    return sorted(lines, key=lambda one: (_place(one, order), -(one["gain_ratio"] or 0)))


def _place(one: dict[str, Any], order: dict[str, int]) -> int:
    return order.get(one["status"], 3) + (one["status"] == "OK" and one["sound"] is False)


def helps(one: dict[str, Any]) -> bool:
    """Tell whether a line of the ranking works, is sound and helps beyond doubt."""
    return bool(one["gain_ratio"] and one["enough"] and one["sound"] is not False and one["gain_ratio_low"] >= HELPS)


def line(row: dict[str, Any]) -> dict[str, Any]:
    """Return a remedy's gain (times as fast as the same loop beside it), tok/s of one text, costs, and soundness."""
    seen = experiments.observed(row)
    tokens = row.get("tokens_per_step") or 1.0
    found: dict[str, Any] = {"name": row["name"], "status": row.get("status"), "gain_ratio": None, "decode_tok_s": None}
    if seen:
        found |= {"gain_ratio": tokens / seen.median}
        found |= {
            "gain_ratio_low": tokens / seen.high,
            "gain_ratio_high": tokens / seen.low,
            "n": seen.n,
            "enough": seen.enough,
        }
        found["decode_tok_s"] = 1000 * tokens / statistics.median(row["changed_samples_ms"])
        found["usual_tok_s"] = 1000 / statistics.median(row["baseline_samples_ms"])
    for name in ("compile_s", "memory_gib", "logits_error", "logits_error_baseline", "logits_max_abs", "logits_reason"):
        found[name] = row.get(name)
    return found | {"sound": sound(row), "reason": row.get("reason")}


def sound(row: dict[str, Any]) -> bool | None:
    """Tell whether the logits are still those of the model; None where they were not compared."""
    error, usual, most = (row.get(name) for name in ("logits_error", "logits_error_baseline", "logits_max_abs"))
    if "logits_error" in row and error is None:
        return False  # NaN or infinity
    if not is_number(error) or not is_number(most):
        return None
    return error <= max(ERROR_SHARE * most, ERROR_TIMES * (usual or 0.0))


def best(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the remedy with the largest gain among those that work, are sound and help beyond doubt."""
    return next((one for one in rank(rows) if helps(one)), None)
