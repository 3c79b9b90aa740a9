"""How near its ceiling is each operator at this model's shapes? Measured in one child process for notebook 06.

`study(run, ...)` measures rates of matrix products, the cost of a launch, every operator of a forward pass and, on a
CPU, the one-row product by threads; rows go to the tables `gemm_rate`, `launch_cost`, `shapes` and `one_row` as soon as
they exist. `step_sum(rows)` is pure: what the operators of one step take when each is timed apart.
"""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocmlab import (
    archs,
    call_timing,
    ceiling,
    clock,
    gemm_rate,
    isolate,
    launch_cost,
    lengths,
    model_operators,
    models,
    one_row,
    results,
    sensors,
    timing,
    tolerance,
)
from rocmlab.model_shape import DECODE, PREFILL, Operator
from rocmlab.results import Run

SCHEMA = "rocmlab-shapes-1"
ROTATE = 4  # times the last-level cache: what is read again only after so much has left it
UNKNOWN_CACHE = 64 << 20
FREE_SHARE = 0.25  # of the memory that is free, for copies
MOST_COPIES = call_timing.MOST_CALLS

# ---- measure


def study(
    run: Run, model: str, arm: dict[str, str], subject: dict[str, Any], *, context: int, prefill_tokens: int,
    limit_s: float,
) -> list[dict[str, Any]]:  # fmt: skip
    """Measure all of notebook 06 and return how each child ended: the empty kernel has one of its own."""
    given: dict[str, Any] = run.where()
    given |= {"model": model, "arm": arm}
    sizes = {"context": context, "prefill_tokens": prefill_tokens, "cache_bytes": cache_bytes(subject)}
    clocks: list[Any] = results.rows(run.path, "clock")
    given |= sizes | {"clock_record": clocks[-1] if clocks else None}
    outcome = isolate.call("rocmlab.shapes:measure", given, limit_s=limit_s)
    ended = [isolate.record(run, "shapes_ended", "shapes", outcome)]
    below = launch_cost.driver(run, {"device": arm["device"]}, subject, limit_s=min(60, limit_s))
    return ended + ([below] if below else [])


def cache_bytes(subject: dict[str, Any]) -> int:
    """Return the size of the last-level cache in bytes: of the card if archs.yaml knows it, of this CPU; else 64 MiB.

    torch reports only the L2 of a card, so the larger of both is taken where measuring begins.
    """
    if subject["device"] == "cpu":
        return _cpu_cache() or UNKNOWN_CACHE
    known = archs.product(subject.get("arch"), subject.get("name"), subject.get("memory_bytes"))
    return int((known or {}).get("cache_mb") or 0) << 20 or UNKNOWN_CACHE


def _cpu_cache() -> int | None:
    """Return the size of the largest cache that Linux reports for the first core, None elsewhere."""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="utf-8").strip()
        unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KMG") or 0) * unit)
    return max(sizes, default=None)


def measure(
    run_dir: str, notebook: str, attempt: str, model: str, arm: dict[str, str], context: int, prefill_tokens: int,
    cache_bytes: int, clock_record: dict[str, Any] | None,
) -> None:  # fmt: skip
    """Measure everything but the empty kernel in one process; a part that fails is a row and costs only itself."""
    import torch

    run, device = Run(Path(run_dir), notebook, attempt), arm["device"]
    timing.use(device)
    chosen = clock.choose(clock_record or clock.qualify(device))
    head: dict[str, Any] = {**arm, "load": timing.load(), "threads": torch.get_num_threads()}
    with timing.OtherWork() as others:
        gemm_rate.measure(run, head, device, chosen)
        launch_cost.torch_smallest(run, head, device)
        loaded = models.load(model, device, arm["dtype"])
        head = lengths.header(loaded, arm, 0)
        if device != "cpu":
            cache_bytes = max(cache_bytes, getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
        room = rotating_bytes(cache_bytes, int(head["weight_bytes"]), device)
        gc.freeze()  # capturing a graph collects garbage, and would look through the whole of transformers each time
        known: dict[str, dict[str, Any]] = {}
        with torch.inference_mode():
            for phase in (DECODE, PREFILL):
                makers = _makers(loaded.model, phase, prefill_tokens, context)
                _phase(run, head, phase, makers, room, chosen, known)
            if device == "cpu":
                one_row.measure(run, head, loaded.model, room)
    run.append("shapes", head | {"kind": "conditions", "others_cpu_pct": others.pct, "core": timing.core()})


def rotating_bytes(cache: int, weights: int, device: str) -> int:
    """Return over how many bytes calls rotate: four times the cache, no more than a step of this model reads anyway,
    and no more than a quarter of the free memory."""
    import psutil
    import torch

    free = psutil.virtual_memory().available if device == "cpu" else torch.cuda.mem_get_info(torch.device(device))[0]
    return int(min(ROTATE * cache, ceiling.PAST_CACHE, weights, FREE_SHARE * free))


def _makers(model: Any, phase: str, rows: int, context: int) -> list[Callable[[], Operator]]:
    """Return what makes each operator; of a model whose layout is not known here, one that says so."""
    try:
        return model_operators.operators(model, phase, rows, context)
    except (AttributeError, IndexError) as error:
        return [functools.partial(_unknown_layout, f"{type(model).__name__}: {error}")]


def _unknown_layout(said: str) -> Operator:
    raise ValueError(f"the layout of this model is not known here ({said})")


def _phase(
    run: Run, head: dict[str, Any], phase: str, makers: list[Callable[[], Operator]], room: int, chosen: clock.Choice,
    known: dict[str, dict[str, Any]],
) -> None:  # fmt: skip
    """Append a row an operator; one that another phase has measured at the same shape is repeated, not measured."""
    for make in makers:
        row = head | {"schema": SCHEMA, "kind": "operator", "phase": phase}
        try:
            made = make()
            key = f"{made.name} {made.shape}"
            if key not in known:
                known[key] = one(made, head["device"], head["dtype"], room, chosen) | {"measured_in": phase}
            row |= known[key] | {"count": made.count} | sensors.sparse(head["device"])
        except (RuntimeError, AttributeError, TypeError, ValueError) as error:
            # Models differ in what their layers hold, and a kernel may be missing: both are rows.
            row |= _named(make) | {"samples_ms": [], "reason": f"{type(error).__name__}: {error}"[:500]}
        run.append("shapes", row)
        _give_back(head["device"])


def _named(make: Any) -> dict[str, str]:
    """Return the name of an operator that could not be made or run: that of what makes it, and the module's path."""
    maker = getattr(make, "func", make).__name__.strip("_")
    path = next((one for one in getattr(make, "args", ())[1:2] if isinstance(one, str)), maker)
    return {"operator": maker, "name": path.rsplit(".")[-1]}


def _give_back(device: str) -> None:
    """Give the copies' memory back; on a CPU it goes by itself."""
    if device != "cpu":
        import torch

        torch.cuda.empty_cache()


def one(made: Operator, device: str, dtype: str, room: int, chosen: clock.Choice) -> dict[str, Any]:
    """Check one operator's value, then time it over rotating parts; returns the fields of its row."""
    row: dict[str, Any] = {"operator": made.operator, "name": made.name, "count": made.count, "shape": made.shape}
    row |= {"bytes": made.bytes, "flops": made.flops, **made.facts}
    value = compared(made, dtype)
    row |= {"value": value, "error_vs_float64": value.get("max_abs_err"), "over_tolerance": value.get("over_tolerance")}
    row["tolerance"] = made.atol if made.atol is not None else tolerance.relative(dtype, made.terms, made.steps)
    parts = rotated(made, room)
    row |= {"copies": len(parts), "rotated_bytes": len(parts) * made.part_bytes}
    found = call_timing.timed([functools.partial(made.call, part) for part in parts], device, chosen)
    found["evidence_grade"] = found["grade"]
    return row | found


def compared(made: Operator, dtype: str) -> dict[str, Any]:
    """Compare the result of one call with float64 on the CPU (tolerance.compare)."""
    part = made.parts[0]
    got = made.taken(made.call(part))
    return tolerance.compare(got, made.wanted(part), dtype, made.terms, made.steps, atol=made.atol)


def rotated(made: Operator, room: int) -> list[Any]:
    """Return the operator's own parts and as many copies of the first as it takes to read `room` bytes in turn.

    Own parts beyond that are left out too: a rotation longer than needed only takes time.
    """
    parts = made.parts[:MOST_COPIES]
    if not made.part_bytes or made.further is None:
        return parts
    wanted = max(1, min(MOST_COPIES, -(-room // made.part_bytes)))
    wanted = max(wanted, 2) if made.part_bytes < room else wanted
    return parts[:wanted] + [made.further(parts[0]) for _ in range(wanted - len(parts))]


# ---- pure


def step_sum(rows: list[dict[str, Any]], phase: str = DECODE) -> dict[str, Any]:
    """Return {ms, low, high, missing, n}: the sum over operators x count of one pass, each timed apart (D_ops).

    `low` and `high` add the ends of the operators' intervals; `missing` names operators without a time, so that nobody
    takes a sum with holes for a whole; ms is None when there is none. `host_may_bind` names those timed by a method in
    which the host may have been slower than the device.
    """
    mine = [row for row in rows if row.get("kind") == "operator" and row.get("phase") == phase]
    found: dict[str, Any] = {"ms": 0.0, "low": 0.0, "high": 0.0, "missing": [], "n": 0, "host_may_bind": []}
    for row in mine:
        interval = timing.median_interval(clock.kept(row.get("samples_ms") or [])[0])
        if interval is None:
            found["missing"].append(row.get("name"))
            continue
        count = row.get("count") or 0
        for key, ms in (("ms", interval.median), ("low", interval.low), ("high", interval.high)):
            found[key] += count * ms
        found["n"] += count > 0
        if row.get("host_may_bind") and row.get("device") != "cpu":
            found["host_may_bind"].append(row.get("name"))
    if not found["n"]:
        found |= dict.fromkeys(("ms", "low", "high"))
    return found
