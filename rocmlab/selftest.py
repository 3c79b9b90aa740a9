"""Does the program find what is there? Four faults and a control are planted, each in a known lane and dose.

A fault must move the number of its lane by its dose, leave the other lane's alone, and move the step itself by as much
as the slack lets through: "present, hidden, 0 ms of T" is a right answer. A dose is at least three times the spread of
the number that it must move; the spread is measured first (`testbench`). `judge(measured)` is pure, `run()` the verb.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

from rocmlab import device, generate, isolate, models, timing
from rocmlab.testbench import LEFT, spread

LIMIT_S = 240
NEAR = 0.25  # of the dose that a number may move more or less
# Between delays the host also launches more slowly. Seen on an H200 for 5.6, 13.7 and 23.2 ms of delay in a step: 7.3,
# 16.0 and 29.3 ms.
DELAY_COSTS = 1.3
MODELS = {True: "random:smollm2-135m", False: "random:qwen3-0.6b"}  # on a CPU, on a GPU
ENDLESS = float("inf")
ALL = ("T", "host", "device", "foreign", "visit")


# ---- pure


def judge(measured: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row a fault: {name, lane, number, spread, dose, moved, step_moved, right, said}; right None: it cannot
    be told on this model."""
    return [_judge(measured, one) for one in measured["faults"]]


LANES = {"host_delay": "host", "device_work": "device", "fallback": "host", "compile_every_shape": "first visit"}


def _judge(measured: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    moved = {key: statistics.median(b - a for a, b in pairs) for key, pairs in one["pairs"].items()}
    scatter = {key: spread([b - a for a, b in pairs]) for key, pairs in one["pairs"].items()}
    clean = {key: max(spread(measured["clean"][key]), spread([a for a, _ in one["pairs"][key]])) for key in moved}
    number = one["number"] or "T"
    given = {key: one["dose"] * share(measured, one["name"], key) for key in moved}
    row = {"name": one["name"], "lane": LANES.get(one["name"], "none"), "number": one["number"] or "all"}
    row |= {"dose": given[number], "spread": clean[number], "moved": moved[number], "step_moved": moved["T"]}
    if not measured["narrow"] and one["name"] == "device_work":
        return row | {"right": None, "said": "cannot be told: this model is about as narrow as its twin"}
    wanted = _wanted(measured, one)
    if one["number"] and (LEFT * clean[number] > given[number] or any(scatter[key] > given[key] for key in wanted)):
        return row | {"right": False, "said": "WRONG: too noisy, the dose is below three spreads"}
    wrong = []
    for key, (low, high) in wanted.items():
        room = max(NEAR * given[key], scatter[key]) if one["dose"] else LEFT * max(clean[key], scatter[key])
        if not low - room <= moved[key] <= high + room:
            wrong.append(key)
    return row | {"right": not wrong, "said": _said(one["name"], moved, wanted, wrong)}


def share(measured: dict[str, Any], name: str, key: str) -> float:
    """Return the share of a step's dose that a number sees: on a GPU the device is read on a few layers only."""
    shallow = measured["device"] != "cpu" and name == "device_work" and key == "device"
    return measured["depth"] / measured["layers"] if shallow else 1.0


def _wanted(measured: dict[str, Any], one: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return how far each number must move, as (low, high)."""
    name, whole = one["name"], one["dose"]
    if name == "control":
        return dict.fromkeys(ALL, (0.0, 0.0))
    if name == "fallback":  # what it takes depends on the machine; it must be seen at all
        return {"foreign": (whole, ENDLESS)}
    if name == "compile_every_shape":  # steady steps do not pay it
        return {"visit": (whole, whole), "T": (0.0, 0.0)}
    if measured["device"] == "cpu":  # one thread does both, so the step pays either in full
        own, other = ("host", "device") if name == "host_delay" else ("device", "host")
        return {own: (whole, whole), other: (0.0, 0.0), "T": (whole, whole)}
    clean = {key: statistics.median(a for a, _ in pairs) for key, pairs in one["pairs"].items()}
    works = clean["device"] * measured["layers"] / measured["depth"]
    if name == "host_delay":
        low, high = host_paid(clean["T"], clean["host"], works, whole)
        return {"host": (whole, DELAY_COSTS * whole), "device": (0.0, 0.0), "T": (low, DELAY_COSTS * high)}
    seen = whole * share(measured, name, "device")
    return {"device": (seen, seen), "T": device_paid(clean["T"], works, whole)}


def host_paid(step: float, host: float, works: float, whole: float) -> tuple[float, float]:
    """Return how much of a host delay a step must show (low, high): all of it where the host binds, what is over the
    slack where the device does, and between the two where neither binds alone."""
    over = max(0.0, host + whole - step)
    if works >= 0.85 * step:
        return over, over
    return (whole, whole) if host >= 0.85 * step else (min(over, whole), whole)


def device_paid(step: float, works: float, whole: float) -> tuple[float, float]:
    """Return how much of some device work a step must show (low, high): none inside the slack of a host-bound step."""
    over = max(0.0, works + whole - step)
    if works >= 0.85 * step:
        return whole, whole
    return (over, over) if works <= 0.7 * step else (min(over, whole), whole)


def _said(name: str, moved: dict[str, float], wanted: dict[str, tuple[float, float]], wrong: list[str]) -> str:
    if wrong:
        return "WRONG: " + ", ".join(f"{key} moved {moved[key]:+.2f}" for key in wrong)
    if name == "control":
        return "nothing moved"
    if name == "compile_every_shape":
        return "present at a first visit, 0 ms of a steady T"
    hidden = wanted.get("T", (1.0, 1.0))[1] == 0.0
    return "present, hidden, 0 ms of T" if hidden else f"present, {moved['T']:+.2f} ms of T"


# ---- say


TITLES = {
    "control": "nothing (control)",
    "host_delay": "host delay a layer",
    "device_work": "device work a layer",
    "fallback": "operator falls back",
    "compile_every_shape": "compile every shape",
}
NUMBERS = {  # on a CPU, on a GPU
    "all": ("every number", "every number"),
    "host": ("twin's step, ms", "enqueue of a step, ms"),
    "device": ("step less twin, ms", "queue of {depth} layers, ms"),
    "foreign": ("operators in float64", "operators on the CPU"),
    "visit": ("first less second visit, ms", "first less second visit, ms"),
}


def table(measured: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Return the table in ASCII: a line a fault."""
    lines = [("fault", "lane", "number it must move", "spread", "dose", "moved", "T moved", "result")]
    for row in rows:
        shown = NUMBERS[row["number"]][0 if measured["device"] == "cpu" else 1].format(depth=measured["depth"])
        numbers = [f"{row[key]:.2f}" for key in ("spread", "dose", "moved", "step_moved")]
        lines.append((TITLES[row["name"]], row["lane"], shown, *numbers, row["said"]))
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    padded = [[one.ljust(width) for one, width in zip(line, widths, strict=True)] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in padded)


def run(model: str = "auto", arch: str = "auto") -> int:
    """Plant the faults on the subject and print the table; return 0 when all came out as they must, else 1.

    Raises UsageError for a model that can never be loaded.
    """
    from rocmlab.cli import UsageError

    began = time.monotonic()
    refused = None if model == "auto" else models.refusal(model)
    if refused:
        raise UsageError(refused)
    subject = device.subject(device.snapshot(device.CHECK_LIMIT_S), arch)
    arm = generate.arms_of(subject, "float16", "float32")[0][-1]
    spec = MODELS[arm["device"] == "cpu"] if model == "auto" else model
    outcome = isolate.call("rocmlab.testbench:measure", {"model": spec, "arm": arm}, limit_s=LIMIT_S)
    if outcome.status != "OK":
        print(f"rocmlab: the self-test could not be measured: {outcome.words}\n{outcome.stderr[-1500:]}")
        return 1
    measured = outcome.result
    rows = judge(measured)
    print(f"Planted faults: {spec}, {arm['dtype']}, {arm['device']} ({subject['why']}), {measured['layers']} layers.")
    print("T is one decode step; a fault that hides behind the other lane is right to cost 0 ms of it.")
    print(table(measured, rows))
    right = all(row["right"] is not False for row in rows)
    others = measured["others_cpu_pct"] or 0
    busy = f" Other programs used {others:.0f}% of the processor." if others > timing.OTHERS_PCT else ""
    print(f"{'All right' if right else 'NOT all right'}, after {time.monotonic() - began:.0f} s.{busy}")
    return 0 if right else 1
