"""What does one more byte, row or call cost here? From the records of other rooms, for predictions. Pure."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from rocmlab.rates import is_number
from rocmlab.step_lanes import Lanes

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Known:
    """What a prediction may use: the lanes, the facts of the model, and records of other rooms where there are any."""

    lanes: Lanes
    facts: dict[str, Any]
    regime: str = "undecided"
    shapes: list[dict[str, Any]] = field(default_factory=list)
    attention: list[dict[str, Any]] = field(default_factory=list)
    gemm_rate: list[dict[str, Any]] = field(default_factory=list)
    one_row: list[dict[str, Any]] = field(default_factory=list)
    one_row_layer: list[dict[str, Any]] = field(default_factory=list)
    first_visit: tuple[float, float] | None = None
    visit_charge_ms: float | None = None
    ceiling_gb_s: float | None = None


def linears(known: Known) -> list[dict[str, Any]]:
    """Return the products of a decode step that notebook 06 timed."""
    return [
        one
        for one in known.shapes
        if one.get("operator") == "linear" and one.get("phase") == "decode" and one.get("samples_ms")
    ]


def linear_ms(known: Known) -> float | None:
    """Return the time of all products of a step, None where they were not timed; on a CPU in proportion to the step."""
    rows = linears(known)
    if not rows:
        return None
    return known.lanes.scale * sum((one.get("count") or 1) * statistics.median(one["samples_ms"]) for one in rows)


def one_row_times(known: Known, way: str, threads: int | None = None) -> float | None:
    """Return how many times as long the products of one row take another way (or with so many threads) as they do as
    they are, where notebook 06 timed both; the CPU only.

    06 times the largest product and the largest of a layer; each speaks for its part of the products' time.
    """
    largest, layers = (_times(rows, way, threads) for rows in (known.one_row, known.one_row_layer))
    if largest is None or layers is None or not known.lanes.serial:
        return largest if known.lanes.serial else None
    names = {one.get("name") for one in known.one_row}
    parts = {True: 0.0, False: 0.0}
    for one in linears(known):
        parts[one.get("name") in names] += (one.get("count") or 1) * statistics.median(one["samples_ms"])
    whole = sum(parts.values())
    return (parts[True] * largest + parts[False] * layers) / whole if whole else largest


def _times(rows: list[dict[str, Any]], way: str, threads: int | None) -> float | None:
    rows = [one for one in rows if one.get("samples_ms")]
    every = max((one.get("all_threads") or one.get("threads") or 1 for one in rows), default=1)
    timed = {(one["way"], one.get("threads")): statistics.median(one["samples_ms"]) for one in rows}
    usual, other = timed.get(("as_it_is", every)), timed.get((way, threads or every))
    return other / usual if usual and other else None


def ms_a_byte(known: Known, cache: bool = False) -> float:
    """Return what one more byte of weights costs the device.

    On a CPU the mean of the products; on a GPU the rate of the best one, since small ones are slow for being small.
    Without them the floor's rate where the host binds, and the whole device time where the device does.
    """
    now, weights = known.lanes, known.facts["weight_bytes"]
    products = linear_ms(known)
    if cache and known.ceiling_gb_s:
        return 1 / known.ceiling_gb_s / 1e6
    if products is not None and now.serial:
        return products / weights
    rates = [one["bytes"] / statistics.median(one["samples_ms"]) for one in linears(known) if one.get("bytes")]
    if rates:
        return 1 / max(rates)
    if known.regime == "host_bound":
        return now.moved / weights if now.moved else 0.0
    return now.device / weights


def multiplying_ms(known: Known, rows: int) -> float | None:
    """Return the time of the products' multiply-adds at the best rate measured here in this dtype."""
    rates = []
    for one in known.gemm_rate:
        samples = [ms for ms in one.get("samples_ms") or [] if is_number(ms) and ms > 0]
        if one.get("dtype") == known.facts["dtype"] and samples:
            flops = one.get("flops") or 2 * one["m"] * one["n"] * one["k"]
            rates.append(flops / statistics.median(samples))
    if not rates:
        return None
    flops = 2 * known.facts["weight_bytes"] / BYTES[known.facts["dtype"]] * rows
    return flops / max(rates)


def attention_ms(known: Known, backend: str) -> float | None:
    """Return the time of one call at decode by a backend, at the length nearest to the usual context; as timed apart
    from one wait to the next, so only differences mean something."""
    mine = [one for one in known.attention if one.get("phase") == "decode" and one.get("backend") == backend]
    mine = [one for one in mine if one.get("samples_ms") and one.get("dtype") in (None, known.facts["dtype"])]
    if not mine:
        return None
    nearest = min(mine, key=lambda one: abs((one.get("length") or 0) - known.facts["context"]))
    return statistics.median(nearest["samples_ms"])
