"""What does a sweep over batches show? Pure: rows of `batches` in, tables of notebook 05 out.

`by_batch(rows)` is the table; `sweep(rows, context)` makes the record (rocmlab-batch-sweep-1) that batch_judges judges,
the same that `rocmlab read` takes from a file.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from rocmlab import timing, words
from rocmlab.curves import bytes_a_token, interval
from rocmlab.first_visits import Visit
from rocmlab.rates import gap_ms, longest_gap_ms
from rocmlab.timing import Interval

SCHEMA = "rocmlab-batch-sweep-1"


NAMES = ("context", "batch", "padded", "pass", "decode_step_ms", "prefill_ms", "real_prompt_tokens", "beside",
         "beside_padded")  # fmt: skip


def passes(rows: list[dict[str, Any]], visit: str = "steady", kinds: tuple[str, ...] = ("item",)) -> pd.DataFrame:
    """Return one line a pass: context, batch, padded, step in ms, prefill_ms, and what an anchor stands beside;
    `gap_ms` is the median step of the pass and `most_ms` its longest."""
    mine = [r for r in rows if r.get("kind") in kinds and r.get("visit") == visit and not r.get("error")]
    lines = [{name: r.get(name) for name in NAMES} | {"gap_ms": gap_ms(r), "most_ms": longest_gap_ms(r)} for r in mine]
    return pd.DataFrame(lines, columns=[*NAMES, "gap_ms", "most_ms"])


def first_visits(rows: list[dict[str, Any]]) -> list[Visit]:
    """Return the first pass of each item beside its steady ones, each pass by its median step."""
    first, later, found = passes(rows, "first"), passes(rows), []
    for item in items(rows):
        new, usual = of(first, item), of(later, item)["gap_ms"].dropna()
        if len(new["gap_ms"].dropna()) and len(usual):
            found.append(Visit(float(new["gap_ms"].iloc[0]), float(usual.median()), new["most_ms"].iloc[0]))
    return found


def steps_of(rows: list[dict[str, Any]], item: dict[str, Any]) -> list[float]:
    """Return the steady steps of an item in ms, a value a pass; one text alone also counts where it was the anchor."""
    kinds = ("item", "anchor") if item["batch"] == 1 else ("item",)
    return [float(one) for one in of(passes(rows, kinds=kinds), item)["decode_step_ms"]]


def ratio(rows: list[dict[str, Any]], item: dict[str, Any]) -> Interval | None:
    """Return an item's step over that of one text alone, from passes taken in turns; None for batch 1."""
    mine = of(passes(rows), item).set_index("pass")["decode_step_ms"]
    every = passes(rows, kinds=("anchor",))
    beside = (every["beside"] == item["batch"]) & (every["beside_padded"] == item["padded"])
    anchor = every[beside & (every["context"] == item["context"])].set_index("pass")["decode_step_ms"]
    shared = [one for one in mine.index if one in anchor.index]
    return timing.ratio_interval([float(mine[one]) for one in shared], [float(anchor[one]) for one in shared])


def by_batch(rows: list[dict[str, Any]], roof_gb_s: float | None = None) -> pd.DataFrame:
    """Return one line an item: step and throughput with intervals, GB/s, share of the roof, memory; or the error."""
    first, lines = passes(rows, "first"), []
    head: dict[str, Any] = next((r for r in rows if r.get("weight_bytes")), {})
    for item in items(rows):
        visit, samples = of(first, item), steps_of(rows, item)
        context, batch = item["context"], item["batch"]
        step = interval(samples)
        line: dict[str, Any] = {"context_tokens": context, "batch": batch, "padded": item["padded"], "step_ms": step}
        line["times_batch_1"] = ratio(rows, item)
        line["first_visit_ms"] = float(visit["gap_ms"].iloc[0]) if len(visit) else None
        line["decode_tok_s"] = interval([1000 * batch / one for one in samples])
        moved = bytes_a_token(head, context + (head.get("new_tokens_each") or 0) / 2, batch)
        line["gb_s"] = moved / step.median / 1e6 if moved and step else None
        line["roof_pct"] = 100 * line["gb_s"] / roof_gb_s if line["gb_s"] and roof_gb_s else None
        line["first_prefill_ms"] = float(visit["prefill_ms"].iloc[0]) if len(visit) else None
        line["peak_gib"] = _peak(rows, item)
        why = error_of(rows, item)
        line |= {
            f"{name}_reason": why or words.both("status_none") for name, value in list(line.items()) if value is None
        }
        if batch == 1 and step:
            line["times_batch_1_reason"] = words.both("sweep_batch_1")
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
    """Return the sweep at one context as a record (rocmlab-batch-sweep-1, plus cache bytes and what the roof is).

    A batch's step is that of batch 1 times its ratio, so that a machine that changes its speed meanwhile does not bend
    the curve.
    """
    head: dict[str, Any] = next((r for r in rows if r.get("weight_bytes")), {})
    found = []
    anchored = any(row.get("kind") == "anchor" for row in rows)
    alone = interval(steps_of(rows, {"context": context, "batch": 1, "padded": False}))
    for item in items(rows):
        if item["context"] != context or item["padded"]:
            continue
        own, times = interval(steps_of(rows, item)), ratio(rows, item)
        whole = item["batch"] == 1 or not anchored  # a batch without its anchor would be compared across time
        step = alone.median * times.median if alone and times else own.median if own and whole else None
        doubt = {"times_low": times.low, "times_high": times.high} if times else {}
        span = doubt | (
            {"decode_step_low_ms": own.low, "decode_step_high_ms": own.high} if own and item["batch"] == 1 else {}
        )
        memory = next((r["memory"] for r in rows if r.get("memory") and _same(r, item)), None)
        lost = {"error": error_of(rows, item) or "not measured", "memory": memory}
        found.append({"batch": item["batch"], **({"decode_step_ms": step} | span if step else lost)})
    kept = ("arch", "model", "dtype", "weight_bytes", "kv_bytes_a_position", "new_tokens_each", "device")
    record = {key: head.get(key) for key in kept}
    return {"schema": SCHEMA, **record, "prompt_tokens": context, "peak_gb_s": roof_gb_s, "roof": roof, "items": found}
