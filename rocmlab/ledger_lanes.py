"""The two lanes of a decode step and what neither explains. Pure: quantities in, rows out.

On a GPU the lanes overlap and each is as wide as the step. On a CPU nothing overlaps: Python and the operators' own
work follow one another, and both lanes show the same parts from the two sides.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from rocmlab import words

Row = dict[str, Any]
Quantity = dict[str, Any]

NODE_US = 0.7  # what a node of a replayed graph takes beyond its kernel, measured on an H200 (methods, section 4)
WORST = "ABCD"


def lanes(found: dict[str, Quantity], facts: dict[str, Any], regime: str) -> dict[str, Any]:
    """Return {host_lane, device_lane, residual}: the residual belongs to the lane that binds, else to the host's."""
    if facts["cpu"]:
        return _on_cpu(found, facts)
    host, device = host_lane(found, facts), device_lane(found, facts, regime)
    binds = device if regime == "device_bound" else host
    return {"host_lane": host, "device_lane": device, "residual": residual(found.get("T"), binds)}


# ---- rows


def row(name: str, how: str, value: Quantity | None = None, **said: Any) -> Row:
    """Return one row of a lane; `how` is a key of words.yaml. Without a value its time is None."""
    kept = {key: value[key] for key in ("ms", "low", "high", "grade")} if value else {}
    return {"name": name, **dict.fromkeys(("ms", "low", "high", "grade")), **kept, "how": words.both(how, **said)}


def minus(whole: Quantity, *parts: Quantity, least: float | None = None) -> Quantity:
    """Return a difference with the ends that its parts allow, and the worst of their grades."""
    ms = whole["ms"] - sum(one["ms"] for one in parts)
    low = whole["low"] - sum(one["high"] for one in parts)
    high = whole["high"] - sum(one["low"] for one in parts)
    grade = max((one["grade"] for one in (whole, *parts)), key=WORST.index)
    ends = {"ms": ms, "low": low, "high": high}
    if least is not None:
        ends = {key: max(least, value) for key, value in ends.items()}
    return ends | {"grade": grade}


def exactly(ms: float, grade: str = "D") -> Quantity:
    """Return a value without a spread of its own."""
    return {"ms": ms, "low": ms, "high": ms, "grade": grade}


def known(one: Quantity | None) -> TypeGuard[Quantity]:
    """Tell whether a quantity has a value that counts."""
    return bool(one and one.get("valid", True) and one.get("ms") is not None)


# ---- host


def host_lane(found: dict[str, Quantity], facts: dict[str, Any]) -> list[Row]:
    """Return launch, Python and dispatch, sampling, read-back, tokeniser, and waiting for the device."""
    host, alone = found.get("H"), found.get("H_cpu")
    inside = facts["parts"]
    if not known(host):
        names = ("launch", "python_dispatch", "sampling", "readback", "wait")
        rows = [row(name, "ledger_no_twin") for name in names]
        if host and host.get("ms") is not None:  # it was measured, and does not count
            rows = [one | {"how": host["reason"]} for one in rows]
        return [*rows, _tokeniser(found)]
    if "H" not in inside:  # a step without stamps inside: sampling and read-back stay in the first two rows
        rows = _launch_and_python(host, alone)
        rows += [row("sampling", "ledger_not_stamped"), row("readback", "ledger_not_stamped")]
        return [*rows, _tokeniser(found), row("wait", "ledger_wait_unknown")]
    mine = inside["H"]
    rows = _launch_and_python(mine["forward"], inside["H_cpu"]["forward"] if "H_cpu" in inside else None)
    rows += [row("sampling", "ledger_sampling", mine["choose"]), row("readback", "ledger_readback", mine["read"])]
    rows.append(_tokeniser(found))
    if "T" not in inside:
        return [*rows, row("wait", "ledger_wait_unknown")]
    return [*rows, row("wait", "ledger_wait", minus(inside["T"]["read"], mine["read"], least=0.0))]


def _launch_and_python(host: Quantity, alone: Quantity | None) -> list[Row]:
    if not known(alone):
        return [row("launch", "ledger_no_cpu_twin"), row("python_dispatch", "ledger_python_and_launch", host)]
    if alone["ms"] >= host["ms"]:
        return [row("launch", "ledger_cpu_twin_slower"), row("python_dispatch", "ledger_python_and_launch", host)]
    return [
        row("launch", "ledger_launch", minus(host, alone)),
        row("python_dispatch", "ledger_python", alone),
    ]


def _tokeniser(found: dict[str, Quantity]) -> Row:
    """The step that is measured decodes no text, so the tokeniser takes none of it; what it would take is said."""
    one = found.get("tokeniser")
    if not known(one):
        return row("tokeniser", "ledger_tokeniser_none", exactly(0.0))
    return row("tokeniser", "ledger_tokeniser", exactly(0.0), us=words.number(1000 * one["ms"], "us"))


# ---- device


def busy(found: dict[str, Quantity], facts: dict[str, Any]) -> Quantity | None:
    """Return the time in kernels: as traced or summed, else the replay without what its nodes take."""
    used, traced, summed = found.get(facts["used"] or ""), found.get("D_busy"), found.get("D_ops")
    if known(traced):
        return traced
    whole = known(summed) and not facts["missing"] and not facts["upper"]
    if whole and known(used) and summed and summed["ms"] <= used["ms"]:
        return summed
    return corrected(found, facts).get("D_graph")


def corrected(found: dict[str, Quantity], facts: dict[str, Any]) -> dict[str, Quantity]:
    """Return the kinds of device time as time in kernels, comparable: gaps between kernels and graph nodes taken off.

    A node costs NODE_US; a queued kernel costs that and what a chain of tiny kernels takes more in a queue than in a
    graph. Empty where the number of launches is unknown.
    """
    count = (facts["launches"] or {}).get("count")
    made: dict[str, Quantity] = {}
    for name in ("D_busy", "D_ops"):
        if known(found.get(name)) and not (name == "D_ops" and facts["missing"]):
            made[name] = found[name]
    if not count:
        return made
    if known(found.get("D_graph")):
        nodes = facts.get("nodes") or count  # a replay writes into a static cache, with kernels of its own
        made["D_graph"] = minus(found["D_graph"], exactly(nodes * NODE_US / 1000))
    queued, replayed = found.get("chain_queue"), found.get("chain_graph")
    if known(found.get("D_queue")) and known(queued) and known(replayed):
        more = minus(queued, replayed, least=0.0)
        gaps = {key: count * (more[key] + NODE_US / 1000) for key in ("ms", "low", "high")} | {"grade": more["grade"]}
        made["D_queue"] = minus(found["D_queue"], gaps)
    return {name: one for name, one in made.items() if one["ms"] > 0}


def device_lane(found: dict[str, Quantity], facts: dict[str, Any], regime: str) -> list[Row]:
    """Return memory floor, excess of the kernels over it, gaps between kernels, and idle time."""
    step, used = found.get("T"), found.get(facts["used"] or "")
    floor = exactly(facts["floor_ms"], "B") if facts["floor_ms"] is not None else None
    rows = [row("memory_floor", "ledger_floor" if floor else "ledger_no_floor", floor)]
    if used is None:
        return [*rows, *(row(name, "ledger_no_device_time") for name in ("excess", "gaps", "idle"))]
    mine = busy(found, facts) or used
    over = minus(mine, floor) if floor else mine
    rows.append(row("excess", "ledger_excess" if floor else "ledger_kernels", over))
    gaps = minus(used, mine, least=0.0) if mine is not used else None
    rows.append(row("gaps", "ledger_gaps" if gaps else "ledger_no_gaps", gaps))
    if step is None:
        return [*rows, row("idle", "ledger_no_step")]
    if regime != "device_bound":
        return [*rows, row("idle", "ledger_idle", minus(step, used, least=0.0))]
    inside = facts["parts"].get("H") if known(found.get("H")) else None
    if not inside:
        return [*rows, row("idle", "ledger_not_stamped")]
    both = {key: inside["choose"][key] + inside["read"][key] for key in ("ms", "low", "high")}
    return [*rows, row("idle", "ledger_idle_between", both | {"grade": "D"})]


def residual(step: Quantity | None, rows: list[Row]) -> Row:
    """Return what the rows of a lane leave of the step; negative where they are longer than it."""
    timed = [one for one in rows if one["ms"] is not None]
    whole = {"launch", "excess", "python_dispatch"}  # without any of these the lane says nothing
    if step is None or not whole & {one["name"] for one in timed}:
        return row("residual", "ledger_no_residual")
    return row("residual", "ledger_residual", minus(step, *timed))


# ---- a CPU as the subject


def overlap_ms(found: dict[str, Quantity], facts: dict[str, Any]) -> float:
    """Return the dispatch that both the twin and the operators timed apart hold: calls times the smallest one.

    Nothing is taken off where operators are missing: those that were timed are then the large ones.
    """
    count, smallest, host = facts["dispatches"], found.get("smallest"), found.get("H")
    if facts["missing"] or not count or not known(smallest) or not known(host):
        return 0.0
    return min(count * smallest["ms"], host["ms"])


def _on_cpu(found: dict[str, Quantity], facts: dict[str, Any]) -> dict[str, Any]:
    """Return both lanes of a CPU: Python between the operators, their own work, and what is left."""
    step, host, work = found.get("T"), found.get("H"), found.get("D_ops")
    shared = exactly(overlap_ms(found, facts))
    inside = facts["parts"].get("H")
    floor = exactly(facts["floor_ms"], "D") if facts["floor_ms"] is not None else None
    first = [row("launch", "ledger_cpu_no_launch")]
    if not known(host):
        first += [row(name, "ledger_no_twin") for name in ("python_dispatch", "sampling", "readback")]
        between = None
    else:
        between = minus(host, shared, least=0.0)
        ends = (inside["choose"], inside["read"]) if inside else ()
        first.append(row("python_dispatch", "ledger_cpu_python", minus(between, *ends, least=0.0)))
        for name, part in (("sampling", "choose"), ("readback", "read")):
            first.append(row(name, f"ledger_{name}" if inside else "ledger_not_stamped", inside and inside[part]))
    first += [_tokeniser(found), row("wait", "ledger_cpu_wait" if known(work) else "ledger_no_operators", work)]
    second = [row("memory_floor", "ledger_floor" if floor else "ledger_no_floor", floor)]
    over = (minus(work, floor) if floor else work) if known(work) and work is not None else None
    said = "ledger_no_operators" if over is None else "ledger_excess" if floor else "ledger_kernels"
    second += [row("excess", said, over), row("gaps", "ledger_cpu_no_gaps")]
    second.append(row("idle", "ledger_cpu_idle" if between else "ledger_no_twin", between))
    left = residual(step, second) if known(work) and between else row("residual", "ledger_no_residual")
    return {"host_lane": first, "device_lane": second, "residual": left}
