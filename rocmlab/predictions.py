"""What will a change do to a decode step? Said before it is tried, from the ledger, the model's shape and counts. Pure.

T' = max(host', device') on a GPU, where the lanes overlap, and host' + device' on a CPU, where they do not. Each part
of a lane is scaled by what the change does to it: launches, dispatched operators, bytes, multiply-adds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from rocmlab import changes, words
from rocmlab.changes import Change
from rocmlab.rates import is_number

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
FUSED_BETWEEN = 1  # kernels that a compiler leaves between two products, at best
CACHE_PASSES = 3  # a cache that grows by concatenation is read by attention, read again and written
MOST_DELAY_MS = 300.0  # of all layers together: Windows resets a driver that is silent for two seconds


@dataclass(frozen=True)
class Lanes:
    """A step taken apart, in ms: the host's launches, Python and the rest; the device's part that follows the bytes and
    the part that follows the number of kernels. `serial`: nothing overlaps (a CPU)."""

    step: float
    launch: float
    python: float
    other: float
    moved: float
    kernels: float
    serial: bool
    graph: float | None = None
    twin: float | None = None
    delay: float = 0.0

    @property
    def host(self) -> float:
        return self.launch + self.python + self.other

    @property
    def device(self) -> float:
        return self.moved + self.kernels + self.delay

    @property
    def total(self) -> float:
        """The step that these lanes make."""
        return self.host + self.device if self.serial else max(self.host, self.device)


@dataclass(frozen=True)
class Known:
    """What a prediction may use: the lanes, the facts of the model, and records of other rooms where there are any."""

    lanes: Lanes
    facts: dict[str, Any]
    regime: str = "undecided"
    shapes: list[dict[str, Any]] = field(default_factory=list)
    attention: list[dict[str, Any]] = field(default_factory=list)
    gemm_rate: list[dict[str, Any]] = field(default_factory=list)
    first_visit: tuple[float, float] | None = None
    ceiling_gb_s: float | None = None


# ---- the lanes of a ledger


def lanes(ledger: dict[str, Any] | None) -> Lanes | None:
    """Return the lanes of an account (ledger.of_run), None without a step time or a device time.

    The lane that binds is as wide as the step; on a CPU what the operators do not take is the host's.
    """
    quantities = (ledger or {}).get("quantities") or {}
    step, device = _ms(quantities.get("T")), _ms((ledger or {}).get("device_ms"))
    if ledger is None or not step:
        return None
    serial = (ledger.get("subject") or {}).get("device") == "cpu"
    twin, graph = _ms(quantities.get("H")), _ms(quantities.get("D_graph"))
    host = twin
    if serial:
        device = min(device, step) if device else step - (twin or 0.0)
        host = step - device
    if device is None or host is None:
        if device is None and host is None:
            return None
        device, host = device if device is not None else step, host if host is not None else step
    if not serial:
        host, device = _as_wide_as(step, host, device, ledger.get("regime"))
    parts = {one["name"]: one.get("ms") for lane in ("host_lane", "device_lane") for one in ledger.get(lane) or []}
    launch, python, other = _host_parts(parts, host, serial)
    floor = min(parts.get("memory_floor") or 0.0, device)
    return Lanes(step, launch, python, other, floor, device - floor, serial, graph, twin)


def _as_wide_as(step: float, host: float, device: float, regime: str | None) -> tuple[float, float]:
    if regime == "host_bound":
        return step, device
    if regime == "device_bound":
        return host, step
    factor = step / max(host, device)  # mixed: what neither explains is shared between them
    return host * factor, device * factor


def _host_parts(parts: dict[str, Any], host: float, serial: bool) -> tuple[float, float, float]:
    """Split the host's time as the ledger does; what it cannot split counts as Python."""
    if serial:
        return 0.0, host, 0.0
    launch, python = parts.get("launch") or 0.0, parts.get("python_dispatch") or 0.0
    small = sum(parts.get(name) or 0.0 for name in ("sampling", "readback"))
    if not launch + python:
        return 0.0, host, 0.0
    small = min(small, host - launch - python) if host > launch + python else 0.0
    factor = (host - small) / (launch + python)
    return launch * factor, python * factor, small


def _ms(quantity: Any) -> float | None:
    if isinstance(quantity, dict) and is_number(quantity.get("ms")) and quantity.get("valid", True):
        return float(quantity["ms"])
    return None


# ---- doses


def doses(found: Lanes | None, layers: int) -> dict[str, float]:
    """Return the delays to inject, in microseconds a layer: one on the host that must show where the host binds, one on
    the device inside its slack, and one beyond it."""
    if found is None or not layers:
        return {"host": 100.0, "hidden": 100.0, "shown": 1000.0}
    slack = max(0.0, found.step - found.device)
    hidden, shown = 0.5 * slack if slack > 0.1 * found.step else 0.2 * found.step, slack + found.step
    capped = (min(ms, MOST_DELAY_MS) for ms in (0.5 * found.step, hidden, shown))
    return dict(zip(("host", "hidden", "shown"), (round(1000 * ms / layers, 1) for ms in capped), strict=True))


def dosed(change: Change, amounts: dict[str, float]) -> dict[str, Any]:
    """Return what an arm is given, with the dose in microseconds a layer."""
    return {key: amounts[value] if key == "dose" else value for key, value in change.given.items()}


# ---- rules


def predict(change: Change, given: dict[str, Any], known: Known | None) -> dict[str, Any]:
    """Return {predicted_ratio, prediction_why, prediction_from}; a ratio of None comes with its reason."""
    if known is None:
        return {"predicted_ratio": None, "predicted_ratio_reason": words.both("prediction_no_ledger")}
    now = known.lanes
    rule = _RULES.get(change.name) or _RULES[change.arm]
    made = rule(change, given, known)
    if made is None:
        return {"predicted_ratio": None, "predicted_ratio_reason": words.both("prediction_not_counted")}
    after, why, numbers = made
    step = after.total if isinstance(after, Lanes) else after
    numbers = {"step_ms": now.step, "host_ms": now.host, "device_ms": now.device, **numbers}
    if isinstance(after, Lanes):
        numbers |= {"host_after_ms": after.host, "device_after_ms": after.device}
    numbers = {key: round(value, 4) if isinstance(value, float) else value for key, value in numbers.items()}
    said = {key: words.number(value) if isinstance(value, float) else value for key, value in numbers.items()}
    ratio = step / now.total
    return {"predicted_ratio": ratio, "prediction_why": words.both(why, **said), "prediction_from": numbers}


Made = tuple[Lanes | float, str, dict[str, Any]] | None


def _counted(change: Change, given: dict[str, Any], known: Known) -> Made:
    """Scale launches, Python and kernels by the operators counted with and without the change."""
    before, after = (known.facts.get("counts") or {}).get("eager"), changes.seen_like(change, known.facts)
    if not before or not after or "error" in before or "error" in after:
        return None
    return _by_counts(known, before, after), "prediction_counts", _numbers(before, after)


def _numbers(before: dict[str, float], after: dict[str, float]) -> dict[str, Any]:
    return {"launches": before["launches"], "launches_after": after["launches"]}


def _units(count: dict[str, float]) -> float:
    """What Python has to do: operators dispatched, views among them, and modules called."""
    return count["ops"] + count["calls"]


def _by_counts(known: Known, before: dict[str, float], after: dict[str, float]) -> Lanes:
    now = known.lanes
    launches = after["launches"] / before["launches"]
    kernels = now.kernels * launches
    if now.serial:  # the products keep their time: what is counted away are small operators
        products = min(linear_ms(known) or now.device, now.device)
        small = now.device - products
        kernels = products + small * launches - now.moved
    return replace(
        now, launch=now.launch * launches, python=now.python * _units(after) / _units(before), kernels=kernels
    )


def _depth(change: Change, given: dict[str, Any], known: Known) -> Made:
    facts, now = known.facts, known.lanes
    left = facts["layers"] - max(1, int(given["share"] * facts["layers"]))
    lost = left * facts["layer_bytes"] / facts["weight_bytes"]
    made = _counted(change, given, known)
    share = 1 - left / facts["layers"]
    if made and isinstance(made[0], Lanes):
        count = known.facts["counts"]["eager"]
        after = changes.seen_like(change, facts) or count
        kept, python = after["launches"] / count["launches"], _units(after) / _units(count)
    else:
        kept = python = share
    fewer = replace(now, launch=now.launch * kept, python=now.python * python, moved=now.moved * (1 - lost))
    fewer = replace(fewer, kernels=now.kernels * ((1 - lost) if now.serial else kept))
    return fewer, "prediction_depth", {"layers": facts["layers"], "layers_after": facts["layers"] - left}


def _width(change: Change, given: dict[str, Any], known: Known) -> Made:
    facts, now, times = known.facts, known.lanes, given["times"]
    if times == 0:
        if now.twin is None:
            return None
        return now.twin * now.total / now.step, "prediction_twin", {"twin_ms": now.twin}
    twin = (facts.get("widths") or {}).get(str(times)) or (facts.get("widths") or {}).get(times)
    if not twin:
        return None
    deeper = twin["layers"] / facts["layers"]
    more = twin["weight_bytes"] - facts["weight_bytes"]
    after = replace(now, launch=now.launch * deeper, python=now.python * deeper)
    kernels = now.kernels if now.serial else now.kernels * deeper
    after = replace(after, kernels=kernels, moved=now.moved + more * ms_a_byte(known))
    return after, "prediction_bytes", {"bytes_times": twin["weight_bytes"] / facts["weight_bytes"]}


def _dtype(change: Change, given: dict[str, Any], known: Known) -> Made:
    now, facts = known.lanes, known.facts
    times = BYTES[given["dtype"]] / BYTES[facts["dtype"]]
    more = facts["weight_bytes"] * (times - 1) * ms_a_byte(known)
    return replace(now, moved=now.moved + more), "prediction_bytes", {"bytes_times": times}


def _rows(change: Change, given: dict[str, Any], known: Known) -> Made:
    """More rows or a longer context: more cache to move, more to multiply, and nothing more for the host."""
    facts, now = known.facts, known.lanes
    rows, context = given.get("rows", 1), given.get("context", facts["context"])
    cache = facts["kv_bytes_a_position"] * CACHE_PASSES * (rows * context - facts["context"])
    more = cache * ms_a_byte(known, cache=True)
    numbers: dict[str, Any] = {"rows": rows, "context": context, "cache_mb": cache / 1e6}
    flops_ms = _multiplying_ms(known, rows)
    weights_ms = now.moved
    if now.serial and rows > 1 and linear_ms(known):
        weights_ms = linear_ms(known) or 0.0
        roof_ms = facts["weight_bytes"] / known.ceiling_gb_s / 1e6 if known.ceiling_gb_s else weights_ms
        more += max(roof_ms, flops_ms or 0.0) - weights_ms
    elif flops_ms is not None:
        more += max(0.0, flops_ms - weights_ms)
    if flops_ms is not None:
        numbers["multiplying_ms"] = flops_ms
    return replace(now, moved=max(0.0, now.device + more), kernels=0.0), "prediction_rows", numbers


def _multiplying_ms(known: Known, rows: int) -> float | None:
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


def _attention(change: Change, given: dict[str, Any], known: Known) -> Made:
    """Forcing one path: its own time where notebook 09 measured it, and more launches where it is not fused."""
    now, numbers = known.lanes, {}
    counts = _counted(change, given, known) if given["backend"] == "math" else None
    after = counts[0] if counts and isinstance(counts[0], Lanes) else now
    apart = [attention_ms(known, name) for name in (given["backend"], "default")]
    if apart[0] is not None and apart[1] is not None:
        more = known.facts["layers"] * (apart[0] - apart[1])
        numbers = {"more_ms": more}
        after = replace(now, launch=after.launch, python=after.python, kernels=max(0.0, now.kernels + more))
    return after, "prediction_attention", numbers


def attention_ms(known: Known, backend: str) -> float | None:
    """Return the time of one call at decode by a backend, at the length nearest to the usual context; as timed apart
    from one wait to the next, so only differences mean something."""
    mine = [one for one in known.attention if one.get("phase") == "decode" and one.get("backend") == backend]
    mine = [one for one in mine if one.get("samples_ms") and one.get("dtype") in (None, known.facts["dtype"])]
    if not mine:
        return None
    nearest = min(mine, key=lambda one: abs((one.get("length") or 0) - known.facts["context"]))
    return statistics.median(nearest["samples_ms"])


def _graph(change: Change, given: dict[str, Any], known: Known) -> Made:
    """A replayed graph has no host lane: what is left is the device's time, fewer kernels where the step has fewer."""
    now, facts = known.lanes, known.facts
    whole = now.graph if now.graph is not None else now.device
    counts = facts.get("counts") or {}
    before, after = counts.get("eager"), changes.seen_like(change, facts)
    if now.graph is not None and "launches" in (counts.get("static_cache") or {}):
        before = counts["static_cache"]  # what was replayed had a cache of fixed size
    if change.name == "graph":
        return whole, "prediction_graph", {"replay_ms": whole}
    if not before or not after or "error" in before or "error" in after:
        return None
    kernels = after["launches"]
    if given.get("compiled"):
        kernels = after["products"] * (1 + FUSED_BETWEEN) + facts["layers"]
    floor = min(now.moved, whole)
    step = floor + (whole - floor) * kernels / before["launches"]
    return step, "prediction_fewer_kernels", {"replay_ms": whole, "kernels": before["launches"],
                                              "kernels_after": kernels}  # fmt: skip


def _fixed(change: Change, given: dict[str, Any], known: Known) -> Made:
    return _graph(change, given, known) if given.get("graph") else _counted(change, given, known)


def _host_delay(change: Change, given: dict[str, Any], known: Known) -> Made:
    now, more = known.lanes, known.facts["layers"] * given["dose"] / 1000
    return replace(now, other=now.other + more), "prediction_host_delay", {"injected_ms": more}


def _device_delay(change: Change, given: dict[str, Any], known: Known) -> Made:
    now, more = known.lanes, known.facts["layers"] * given["dose"] / 1000
    return replace(now, delay=more), "prediction_device_delay", {"injected_ms": more}


def _threads(change: Change, given: dict[str, Any], known: Known) -> Made:
    now, times = known.lanes, max(1.0, known.facts["threads"] / given["threads"])
    after = replace(now, moved=now.moved * times, kernels=now.kernels * times)
    return after, "prediction_threads", {"threads": known.facts["threads"], "threads_after": given["threads"]}


def _second_row(change: Change, given: dict[str, Any], known: Known) -> Made:
    """The products move to the path for matrices: as fast as the memory allows, at best."""
    now, products = known.lanes, linear_ms(known)
    if products is None or not known.ceiling_gb_s:
        return None
    roof_ms = max(known.facts["weight_bytes"] / known.ceiling_gb_s / 1e6, _multiplying_ms(known, 2) or 0.0)
    mended = max(0.0, now.kernels + now.moved - products + roof_ms)
    numbers = {"products_ms": products, "roof_ms": roof_ms}
    return replace(now, moved=mended, kernels=0.0), "prediction_second_row", numbers


def _same(why: str) -> Callable[..., Made]:
    return lambda change, given, known: (known.lanes, why, {})


def _first_visit(change: Change, given: dict[str, Any], known: Known) -> Made:
    if known.first_visit is None or given.get("cudnn") is False:
        return known.lanes, "prediction_first_visit_none", {}
    first, second = known.first_visit
    numbers = {"first_visit_ms": first, "second_visit_ms": second}
    return known.lanes.total * first / second, "prediction_first_visit", numbers


def _tunable(change: Change, given: dict[str, Any], known: Known) -> Made:
    """At best every product reaches the rate of the best one."""
    now, products = known.lanes, linear_ms(known)
    if products is None:
        return now, "prediction_tunable_unknown", {}
    at_best = known.facts["weight_bytes"] * ms_a_byte(known)
    saved = max(0.0, products - at_best)
    after = replace(now, kernels=max(0.0, now.kernels - saved))
    return after, "prediction_tunable", {"products_ms": products, "at_best_ms": at_best}


def _lookup(change: Change, given: dict[str, Any], known: Known) -> Made:
    facts = known.facts
    if not facts.get("text_written"):
        return None
    steps = lookup_steps(facts["text_prompt"], facts["text_written"], given["guess"])
    wide = _rows(change, {"rows": given["guess"] + 1, "context": facts["context"] / (given["guess"] + 1)}, known)
    a_step = wide[0].total if wide and isinstance(wide[0], Lanes) else known.lanes.total
    count = len(facts["text_written"])
    return a_step * steps / count, "prediction_lookup", {"steps": steps, "tokens": count, "a_step_ms": a_step}


def lookup_steps(prompt: list[int], written: list[int], guess: int, ngram: int = 2) -> int:
    """Return the steps that a greedy text takes when each may check up to `guess` tokens copied from what stands
    before: those that followed the first earlier match of the last two tokens, else of the last one."""
    steps = done = 0
    while done < len(written):
        text = prompt + written[:done]
        copied = _after_match(text, guess, ngram)
        right = 0
        while right < len(copied) and done + right < len(written) and copied[right] == written[done + right]:
            right += 1
        done += right + 1
        steps += 1
    return steps


def _after_match(text: list[int], guess: int, ngram: int) -> list[int]:
    for size in range(min(ngram, len(text) - 1), 0, -1):
        last = text[-size:]
        for start in range(len(text) - size):
            if text[start : start + size] == last:
                return text[start + size : start + size + guess]
    return []


# ---- what other rooms measured


def linears(known: Known) -> list[dict[str, Any]]:
    """Return the products of a decode step that notebook 06 timed."""
    return [
        one
        for one in known.shapes
        if one.get("operator") == "linear" and one.get("phase") == "decode" and one.get("samples_ms")
    ]


def linear_ms(known: Known) -> float | None:
    """Return the time of all products of a step, None where they were not timed."""
    rows = linears(known)
    return sum((one.get("count") or 1) * statistics.median(one["samples_ms"]) for one in rows) if rows else None


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


_RULES: dict[str, Callable[..., Made]] = {
    "depth": _depth, "width": _width, "dtype": _dtype, "eager": _rows, "attention": _attention, "generate": _counted,
    "host_delay": _host_delay, "device_delay": _device_delay, "one_core": _same("prediction_one_core"),
    "threads": _threads, "first_visit": _first_visit, "patched": _counted, "static": _fixed, "lean": _fixed,
    "tunable": _tunable, "prompt_lookup": _lookup, "rows_padded": _second_row,
    "weights_transposed": _same("prediction_transposed"),
}  # fmt: skip
