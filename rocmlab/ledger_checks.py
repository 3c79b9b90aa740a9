"""What binds the step, and which of the measurements behind that count? Pure.

`regime(...)` is the rule: host-bound if H >= 0.85 T and D <= 0.7 T; device-bound if D >= 0.85 T; else mixed; undecided
where a part is missing or does not count, or where the intervals allow more than one of these. `checks(...)` lists
every validity check with its numbers and whether it passed; None: it could not be made.
"""

from __future__ import annotations

import statistics
from typing import Any

from rocmlab import launch_cost, ledger_lanes, ledger_quantities, words
from rocmlab.ledger_lanes import Quantity, known
from rocmlab.words import number

HOST, DEVICE, SLACK = 0.85, 0.85, 0.7
TWIN_SHARE = 0.5  # beyond, a fixed cost of every kernel on the device would look like host cost
AGREE = 1.2  # device times, corrected, over one another
E1_AGREES = 1.25  # enqueue of one step over the twin, either way
RESIDUAL_PCT = 10.0
LONGER = 1.25  # times the step: device time beyond this was taken while something else disturbed the machine
NAMED = 3  # operators in a sentence
KINDS = ("D_graph", "D_queue", "D_busy")  # three different quantities; the sum of operators is an upper bound
Check = dict[str, Any]


# ---- the rule


def of_this_step(used: str | None, found: dict[str, Quantity], facts: dict[str, Any]) -> str | None:
    """Return the device time to go by: that of the replay, unless it is of another step than the one as it is.

    A graph needs a cache of fixed size and a mask over all of it. With much cache this is other work: nothing is copied
    to append a position, and attention may take another path. Where the replay is more than AGREE away from every
    reading of the step itself, the reading of the step counts.
    """
    alike = ledger_lanes.corrected(found, facts)
    own = [name for name in ("D_queue", "D_busy") if name in alike]
    if used != "D_graph" or used not in alike or not own:
        return used
    return own[0] if all(times(alike[used], alike[name]) > AGREE for name in own) else used


def times(one: Quantity, other: Quantity) -> float:
    """Return how many times the smaller of two quantities is in the larger."""
    return max(one["ms"], other["ms"]) / min(one["ms"], other["ms"])


def regime(found: dict[str, Quantity], facts: dict[str, Any]) -> str:
    """Return host_bound, device_bound, mixed or undecided."""
    step, host, device = (found.get(name or "") for name in ("T", "H", facts["used"]))
    if not known(step) or not known(device):
        return "undecided"
    shares = share_ends(facts["used"], found, facts)
    if min(shares) > LONGER:
        return "undecided"
    if facts["cpu"]:
        return _one(_cpu_rule(share_ends("H", found, facts), shares)) if known(host) else "undecided"
    upper = facts["used"] == "D_ops" and facts["upper"]  # of an upper bound only smallness says something
    if all(share >= DEVICE for share in shares) and not upper:
        return "device_bound"
    if not known(host) or facts["twin_share"] is None:  # a twin with too much device time of its own is not known
        return "undecided"
    said = _one([rule(h, d) for h in share_ends("H", found, facts) for d in shares])
    holes = facts["used"] == "D_ops" and facts["missing"]  # and of a sum with holes only largeness does
    return "undecided" if holes or (upper and said != "host_bound") else said


def rule(host_share: float, device_share: float) -> str:
    """Return what two shares of the step say."""
    if device_share >= DEVICE:
        return "device_bound"
    return "host_bound" if host_share >= HOST and device_share <= SLACK else "mixed"


def _cpu_rule(hosts: list[float], works: list[float]) -> list[str]:
    """On a CPU Python and operators follow one another: one binds that alone takes more than the slack, and with the
    other accounts for the step."""
    found = []
    for host in hosts:
        for work in works:
            larger = "device_bound" if work >= host else "host_bound"
            found.append(larger if max(host, work) >= SLACK and host + work >= DEVICE else "mixed")
    return found


def _one(said: list[str]) -> str:
    """Return what every combination of ends says, undecided where they differ."""
    return said[0] if len(set(said)) == 1 else "undecided"


def share_ends(name: str, found: dict[str, Quantity], facts: dict[str, Any]) -> list[float]:
    """Return the shares of the step (low, middle, high) that a part takes.

    From blocks measured in turns where there are such: T drifts, and the ratios of one process do not.
    """
    paired = facts["ratios"].get(name)
    if paired:
        return [paired.low, paired.median, paired.high]
    return [found[name][key] / found["T"]["ms"] for key in ("low", "ms", "high")]


def twin_share(found: dict[str, Quantity], facts: dict[str, Any]) -> float | None:
    """Return the largest share of the twin's step that its device time may take; None where nothing bounds it.

    Measured by replaying the twin, else bounded by the model's own device time: the twin has the same kernels with
    less to do.
    """
    used = "" if facts["used"] == "D_ops" and facts["missing"] else facts["used"]  # a sum with holes bounds nothing
    host, own, device = found.get("H"), found.get("H_graph"), found.get(used or "")
    bounds = [one["ms"] for one in (own, device) if known(one) and one is not None]
    return min(bounds) / host["ms"] if bounds and known(host) and host else None


# ---- checks


def checks(account: dict[str, Any], rows: list[dict[str, Any]], facts: dict[str, Any]) -> list[Check]:
    """Return every check of an account; on a CPU those about launches, queues and further ways are left out."""
    found = account["quantities"]
    made = [residual(account), firm(found, facts)]
    if facts["cpu"]:
        return [*made, operators(facts)]
    made += [operators(facts)] if facts["used"] == "D_ops" else []
    made += [one_way(found), queue(rows), twin(facts), agree(found, facts), enqueue(found)]
    return [*made, below_torch(account, facts)]


def check(name: str, passed: bool | None, numbers: dict[str, Any], state: str = "", **said: Any) -> Check:
    """Return one check; its words are `ledger_check_<name>_<yes, no or open>`, or those of another state."""
    state = state or {True: "yes", False: "no", None: "open"}[passed]
    return {
        "name": name,
        "passed": passed,
        "numbers": numbers,
        "said": words.both(f"ledger_check_{name}_{state}", **said),
    }


def residual(account: dict[str, Any]) -> Check:
    """At most a tenth of the step may be unexplained in the lane that binds."""
    pct, ms = account["residual_pct"], account["residual"]["ms"]
    passed = None if pct is None else abs(pct) <= RESIDUAL_PCT
    over = passed is False and pct < 0
    said = {"pct": number(-pct if over else pct, "%"), "ms": number(-ms if over else ms, "ms")}
    return check("residual", passed, {"residual_pct": pct}, "over" if over else "", **said)


def firm(found: dict[str, Quantity], facts: dict[str, Any]) -> Check:
    """The ends of the intervals must say the same as the medians."""
    step, host, device = (found.get(name or "") for name in ("T", "H", facts["used"]))
    if not (known(step) and known(host) and known(device)):
        return check("firm", None, {})
    shares = {"host": share_ends("H", found, facts), "device": share_ends(facts["used"], found, facts)}
    if facts["cpu"]:
        said = set(_cpu_rule(shares["host"], shares["device"]))
    else:
        said = {rule(h, d) for h in shares["host"] for d in shares["device"]}
    numbers = {
        f"{name}_share_{end}": ends[at] for name, ends in shares.items() for at, end in ((0, "low"), (2, "high"))
    }
    spans = {name: f"{100 * ends[0]:.0f}-{100 * ends[2]:.0f}%" for name, ends in shares.items()}
    if min(shares["device"]) > LONGER:
        return check("firm", False, numbers, "longer", **spans)
    return check("firm", len(said) == 1, numbers, **spans)


def one_way(found: dict[str, Quantity]) -> Check:
    """Device time that only one way gave has nothing to be compared with."""
    ways = [name for name in (*KINDS, "D_ops", "D_batch") if known(found.get(name))]
    passed = None if not ways else len(ways) > 1
    return check("one_way", passed, {"ways": len(ways)}, n=len(ways), names=", ".join(ways) or words.NONE)


def operators(facts: dict[str, Any]) -> Check:
    """Where device time is a sum over operators none may be missing, and none timed while the host was slower."""
    if facts["used"] is None:
        return check("operators", None, {})
    missing, upper = facts["missing"], [] if facts["cpu"] else facts["upper"]
    if upper and not missing:
        names = ", ".join(map(str, upper[:NAMED])) + (", …" if len(upper) > NAMED else "")
        return check("operators", None, {"missing": 0, "upper": len(upper)}, "upper", names=names)
    return check("operators", not missing, {"missing": len(missing)}, names=", ".join(map(str, missing)))


def queue(rows: list[dict[str, Any]]) -> Check:
    """A prefilled queue counts only if filling it took less than half the spin in front of it."""
    mine = [row for row in rows if row.get("quantity") == "D_queue" and row.get("enqueue_ms") and row.get("spin_ms")]
    if not mine:
        tried = [row for row in rows if row.get("quantity") == "D_queue" and row.get("reason")]
        return check("queue", None, {}, "failed" if tried else "", reason=tried[-1]["reason"] if tried else "")
    deepest = max(mine, key=lambda row: row.get("layers") or 0)
    filled = statistics.median(deepest["enqueue_ms"])
    passed = ledger_quantities.queue_counts(deepest) and deepest.get("layers") == deepest.get("of_layers")
    numbers = {"enqueue_ms": filled, "spin_ms": ledger_quantities.spin_ms(deepest), "layers": deepest.get("layers")}
    numbers |= {"reading_ms": statistics.median(deepest["samples_ms"]) if deepest.get("samples_ms") else None}
    said = {key: number(numbers[key], "ms") for key in ("enqueue_ms", "spin_ms", "reading_ms")}
    return check("queue", passed, numbers, **said, layers=numbers["layers"])


def twin(facts: dict[str, Any]) -> Check:
    """The twin stands for the host only if its own device time is at most half its step."""
    share = facts["twin_share"]
    unbounded = share is not None and share > TWIN_SHARE and not facts["twin_measured"]
    passed = None if share is None or unbounded else share <= TWIN_SHARE
    said = number(100 * share if share is not None else None, "%")
    return check("twin", passed, {"twin_device_share": share}, "unbounded" if unbounded else "", pct=said)


def agree(found: dict[str, Quantity], facts: dict[str, Any]) -> Check:
    """The kinds of device time must agree within 20% once gaps and nodes are taken off."""
    alike = {name: one for name, one in ledger_lanes.corrected(found, facts).items() if name in KINDS}
    numbers = {f"{name}_corrected_ms": one["ms"] for name, one in alike.items()}
    if len(alike) < 2:
        return check("agree", None, numbers)
    ratio = max(times(one, other) for one in alike.values() for other in alike.values())
    said = ", ".join(f"{name} {number(one['ms'], 'ms')}" for name, one in alike.items())
    state = "graph" if "D_graph" in alike and facts["used"] != "D_graph" else ""
    told = {"values": said, "ratio": f"{ratio:.2f}", "used": facts["used"]}
    return check("agree", ratio <= AGREE, numbers | {"ratio": ratio}, state, **told)


def enqueue(found: dict[str, Quantity]) -> Check:
    """The time to queue one step into an empty queue must be the twin's host time."""
    once, host = found.get("E1"), found.get("H")
    if not (known(once) and known(host)) or once is None or host is None:
        return check("enqueue", None, {})
    ratio = once["ms"] / host["ms"]
    said = {"e1": number(once["ms"], "ms"), "h": number(host["ms"], "ms")}
    return check("enqueue", 1 / E1_AGREES <= ratio <= E1_AGREES, {"e1_over_h": ratio}, **said)


def below_torch(account: dict[str, Any], facts: dict[str, Any]) -> Check:
    """The launch part cannot be less than its launches cost below torch, in the driver."""
    part = next((row["ms"] for row in account["host_lane"] if row["name"] == "launch"), None)
    count = (facts["launches"] or {}).get("count")
    below = launch_cost.cost(facts["launch_cost"])["driver_launch_us"]
    empty = below.median if below else None
    if part is None or not count or empty is None:
        return check("launch_cost", None, {"launch_ms": part, "empty_kernel_us": empty})
    driver = count * empty / 1000
    numbers = {"launch_ms": part, "driver_ms": driver, "empty_kernel_us": empty, "launches": count}
    numbers["us_a_launch"] = 1000 * part / count
    said = {"part": number(part, "ms"), "driver": number(driver, "ms"), "us": number(numbers["us_a_launch"], "us")}
    return check("launch_cost", driver <= 1.1 * part, numbers, **said, empty=number(empty, "us"))
