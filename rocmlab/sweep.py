"""What does a sweep over batches show? Pure: rows of `batches` in, tables of notebook 05 out.

`by_batch(rows)` is the table; `sweep(rows, context)` makes the record (rocmlab-batch-sweep-1) that batch_judges judges,
the same that `rocmlab read` takes from a file.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from rocmlab.curves import bytes_a_token, interval

SCHEMA = "rocmlab-batch-sweep-1"


def passes(rows: list[dict[str, Any]], visit: str = "steady") -> pd.DataFrame:
    """Return one line a pass: context, batch, padded, step in ms, prefill_ms."""
    names = ["context", "batch", "padded", "pass", "decode_step_ms", "prefill_ms", "real_prompt_tokens"]
    mine = [r for r in rows if r.get("kind") == "item" and r.get("visit") == visit and not r.get("error")]
    return pd.DataFrame([{name: r.get(name) for name in names} for r in mine], columns=names)


def by_batch(rows: list[dict[str, Any]], roof_gb_s: float | None = None) -> pd.DataFrame:
    """Return one line an item: step and throughput with intervals, GB/s, share of the roof, memory; or the error."""
    steady, first, lines = passes(rows), passes(rows, "first"), []
    head: dict[str, Any] = next((r for r in rows if r.get("weight_bytes")), {})
    for item in items(rows):
        group, visit = of(steady, item), of(first, item)
        context, batch = item["context"], item["batch"]
        step = interval(group["decode_step_ms"])
        line: dict[str, Any] = {"context_tokens": context, "batch": batch, "padded": item["padded"], "step_ms": step}
        line["first_visit_ms"] = float(visit["decode_step_ms"].iloc[0]) if len(visit) else None
        line["decode_tok_s"] = interval([1000 * batch / one for one in group["decode_step_ms"]])
        moved = bytes_a_token(head, context + (head.get("new_tokens_each") or 0) / 2, batch)
        line["gb_s"] = moved / step.median / 1e6 if moved and step else None
        line["roof_pct"] = 100 * line["gb_s"] / roof_gb_s if line["gb_s"] and roof_gb_s else None
        line["prefill_ms"] = float(group["prefill_ms"].iloc[0]) if len(group) else None
        line["peak_gib"] = _peak(rows, item)
        why = error_of(rows, item)
        line |= {f"{name}_reason": why or "not measured" for name, value in list(line.items()) if value is None}
        lines.append(line)
    return pd.DataFrame(lines)


def items(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return every item (context, batch, padded) once, in the order of measurement."""
    every = [(r["context"], r["batch"], bool(r.get("padded"))) for r in rows if r.get("kind") == "item"]
    return [{"context": c, "batch": b, "padded": p} for c, b, p in dict.fromkeys(every)]


def of(frame: pd.DataFrame, item: dict[str, Any]) -> pd.DataFrame:
    return frame[
        (frame["context"] == item["context"]) & (frame["batch"] == item["batch"]) & (frame["padded"] == item["padded"])
    ]


def _same(row: dict[str, Any], item: dict[str, Any]) -> bool:
    return all(bool(row.get(k)) == v if k == "padded" else row.get(k) == v for k, v in item.items())


def error_of(rows: list[dict[str, Any]], item: dict[str, Any]) -> str | None:
    """Return the first line of an item's error, None where it was measured."""
    said = [r["error"] for r in rows if r.get("error") and _same(r, item)]
    return str(said[0]).splitlines()[0][:200] if said else None


def _peak(rows: list[dict[str, Any]], item: dict[str, Any]) -> float | None:
    seen = [r["peak_device_bytes"] for r in rows if r.get("peak_device_bytes") and _same(r, item)]
    return seen[0] / 2**30 if seen else None


def sweep(rows: list[dict[str, Any]], context: int, roof_gb_s: float | None, roof: str) -> dict[str, Any]:
    """Return the sweep at one context as a record (rocmlab-batch-sweep-1, plus cache bytes and what the roof is)."""
    head: dict[str, Any] = next((r for r in rows if r.get("weight_bytes")), {})
    found = []
    for item in items(rows):
        if item["context"] != context or item["padded"]:
            continue
        step = interval(of(passes(rows), item)["decode_step_ms"])
        why = error_of(rows, item)
        memory = next((r["memory"] for r in rows if r.get("memory") and _same(r, item)), None)
        value = {"decode_step_ms": step.median} if step else {"error": why or "not measured", "memory": memory}
        found.append({"batch": item["batch"], **value})
    kept = ("arch", "model", "dtype", "weight_bytes", "kv_bytes_a_position", "new_tokens_each", "device")
    record = {key: head.get(key) for key in kept}
    return {"schema": SCHEMA, **record, "prompt_tokens": context, "peak_gb_s": roof_gb_s, "roof": roof, "items": found}
