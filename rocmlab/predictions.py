"""What will a change do to a decode step? Said before it is tried, from the ledger, the model's shape and counts. Pure.

T' = max(host', device') on a GPU, where the lanes overlap, and host' + device' on a CPU, where they do not. Each part
of a lane is scaled by what the change does to it: launches, dispatched operators, bytes, multiply-adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rocmlab import changes, words
from rocmlab.changes import Change
from rocmlab.step_costs import BYTES, Known, attention_ms, linear_ms, ms_a_byte, multiplying_ms, one_row_times
from rocmlab.step_lanes import Lanes

FUSED_BETWEEN = 1  # kernels that a compiler leaves between two products, at best
CACHE_PASSES = 3  # a cache that grows by concatenation is read by attention, read again and written


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


def _one_row(known: Known, way: str, threads: int | None = None) -> Made:
    """Products of one row done another way, as notebook 06 timed two of them; None where it did not."""
    now, products, times = known.lanes, linear_ms(known), one_row_times(known, way, threads)
    if products is None or times is None:
        return None
    after = replace(now, moved=max(0.0, now.device + products * (times - 1)), kernels=0.0)
    return after, "prediction_one_row", {"times": times, "products_ms": products}


def _dtype(change: Change, given: dict[str, Any], known: Known) -> Made:
    now, facts = known.lanes, known.facts
    timed = _one_row(known, given["dtype"])
    if timed:
        return timed
    times = BYTES[given["dtype"]] / BYTES[facts["dtype"]]
    more = facts["weight_bytes"] * (times - 1) * ms_a_byte(known)
    return replace(now, moved=now.moved + more), "prediction_bytes", {"bytes_times": times}


def _rows(change: Change, given: dict[str, Any], known: Known) -> Made:
    """More rows or a longer context: more cache to move, more to multiply, and nothing more for the host."""
    facts, now = known.facts, known.lanes
    rows, context = given.get("rows", 1), given.get("context", facts["context"])
    timed = _one_row(known, "two_rows") if rows == 2 and context == facts["context"] else None
    if timed:
        return timed
    cache = facts["kv_bytes_a_position"] * CACHE_PASSES * (rows * context - facts["context"])
    more = cache * ms_a_byte(known, cache=True)
    numbers: dict[str, Any] = {"rows": rows, "context": context, "cache_mb": cache / 1e6}
    flops_ms = multiplying_ms(known, rows)
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
    now, more = known.lanes, known.lanes.step * given["dose"]
    return replace(now, other=now.other + more), "prediction_host_delay", {"injected_ms": more}


def _device_delay(change: Change, given: dict[str, Any], known: Known) -> Made:
    """The spins are launches too, one a layer, which the host has to make."""
    now, more, counts = known.lanes, known.lanes.step * given["dose"], (known.facts.get("counts") or {}).get("eager")
    launches = (counts or {}).get("launches")
    added = (now.launch + now.python) * known.facts["layers"] / launches if launches else 0.0
    return replace(now, delay=more, other=now.other + added), "prediction_device_delay", {"injected_ms": more}


def _threads(change: Change, given: dict[str, Any], known: Known) -> Made:
    timed = _one_row(known, "as_it_is", given["threads"])
    if timed:
        return timed
    now, times = known.lanes, max(1.0, known.facts["threads"] / given["threads"])
    after = replace(now, moved=now.moved * times, kernels=now.kernels * times)
    return after, "prediction_threads", {"threads": known.facts["threads"], "threads_after": given["threads"]}


def _second_row(change: Change, given: dict[str, Any], known: Known) -> Made:
    """The products move to the path for matrices: as 06 timed it, else as fast as the memory allows, at best."""
    timed = _one_row(known, "two_rows")
    if timed:
        return timed
    now, products = known.lanes, linear_ms(known)
    if products is None or not known.ceiling_gb_s:
        return None
    roof_ms = max(known.facts["weight_bytes"] / known.ceiling_gb_s / 1e6, multiplying_ms(known, 2) or 0.0)
    mended = max(0.0, now.kernels + now.moved - products + roof_ms)
    numbers = {"products_ms": products, "roof_ms": roof_ms}
    return replace(now, moved=mended, kernels=0.0), "prediction_second_row", numbers


def _same(why: str) -> Callable[..., Made]:
    return lambda change, given, known: (known.lanes, why, {})


def _transposed(change: Change, given: dict[str, Any], known: Known) -> Made:
    """The same bytes in another order: as 06 timed it, else no change."""
    return _one_row(known, "transposed") or (known.lanes, "prediction_transposed", {})


def _first_visit(change: Change, given: dict[str, Any], known: Known) -> Made:
    if given.get("cudnn") is False or (known.visit_charge_ms is None and known.first_visit is None):
        return known.lanes, "prediction_first_visit_none", {}
    if known.visit_charge_ms is not None:
        numbers = {"charge_ms": known.visit_charge_ms}
        return known.lanes.total + max(0.0, known.visit_charge_ms), "prediction_first_visit_charge", numbers
    assert known.first_visit is not None
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


_RULES: dict[str, Callable[..., Made]] = {
    "depth": _depth, "width": _width, "dtype": _dtype, "eager": _rows, "attention": _attention,
    "generate": _same("prediction_generate"), "host_delay": _host_delay, "device_delay": _device_delay,
    "one_core": _same("prediction_one_core"),
    "threads": _threads, "first_visit": _first_visit, "patched": _counted, "static": _fixed, "lean": _fixed,
    "tunable": _tunable, "prompt_lookup": _lookup, "rows_padded": _second_row,
    "weights_transposed": _transposed,
}  # fmt: skip
