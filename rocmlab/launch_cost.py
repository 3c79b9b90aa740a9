"""What does a launch cost the host? torch's smallest operator, and below torch an empty kernel through the driver.

`torch_smallest(run, head, device)` and `driver(run, head, ...)` append rows to the table `launch_cost`; `cost(rows)` is
pure. A block is short enough never to fill the launch queue (about 1,024 kernels): beyond that, queueing waits for the
device.
"""

from __future__ import annotations

import time
from typing import Any

from rocmlab import isolate, timing
from rocmlab.findings import Finding, finding
from rocmlab.results import Run

SCHEMA = "rocmlab-launch-cost-1"
CPU_SUBJECT = "the CPU is the subject: nothing is launched"
LAUNCHES = 200  # a block
BLOCKS = 30
DRIVER_SHARE_PCT = 50.0  # of torch's smallest operator: more than that, and most of it is the driver's
CLOCK = "perf_counter"
CHILD = "empty kernel"  # by this name its end is recorded

# ---- measure


def torch_smallest(run: Run, head: dict[str, Any], device: str) -> None:
    """Queue an in-place add on one element (no allocation) in blocks, and record us a launch: queued, and done.

    On the CPU the same operator is recorded, as what dispatching costs there: nothing is launched.
    """
    import torch

    what = "torch_smallest" if device != "cpu" else "torch_smallest_on_cpu"
    row: dict[str, Any] = {"schema": SCHEMA, "what": what, "layer": "torch", "launches": LAUNCHES, "clock": CLOCK}
    row |= {"samples_us": [], "drained_us": [], "library": f"torch {torch.__version__}", "reason": None}
    try:
        one = torch.zeros(1, device=torch.device(device))
        with torch.no_grad():
            row |= blocks(lambda: one.add_(1.0), device)
    except RuntimeError as error:
        row["reason"] = str(error)[:500]
    run.append("launch_cost", head | row)


def blocks(call: Any, device: str) -> dict[str, list[float]]:
    """Return samples_us (until queued) and drained_us (until done) of one call, one value a block."""
    found: dict[str, list[float]] = {"samples_us": [], "drained_us": []}
    for block in range(BLOCKS + 3):
        timing.synchronise(device)
        began = time.perf_counter()
        for _ in range(LAUNCHES):
            call()
        queued = time.perf_counter()
        timing.synchronise(device)
        done = time.perf_counter()
        if block >= 3:  # the first ones warm
            found["samples_us"].append(1e6 * (queued - began) / LAUNCHES)
            found["drained_us"].append(1e6 * (done - began) / LAUNCHES)
    return found


def driver(run: Run, head: dict[str, Any], subject: dict[str, Any], *, limit_s: float) -> dict[str, Any]:
    """Launch the empty kernel in a child process, record the row, return how the child ended.

    Whatever goes wrong becomes the row's `reason`, naming the step; on a CPU nothing is started.
    """
    row: dict[str, Any] = {"schema": SCHEMA, "what": "empty_kernel", "layer": "driver", "launches": LAUNCHES}
    row |= {"clock": CLOCK, "samples_us": [], "drained_us": [], "library": None, "steps": []}
    if subject["device"] == "cpu":
        run.append("launch_cost", head | row | {"reason": CPU_SUBJECT})
        return {}
    given = {"arch": subject["arch"], "index": subject["index"], "blocks": BLOCKS, "launches": LAUNCHES}
    outcome = isolate.call("rocmlab.empty_kernel:launch", given, limit_s=limit_s)
    run.append("launch_cost", head | row | answered(outcome))
    return isolate.record(run, "shapes_ended", CHILD, outcome)


def answered(outcome: isolate.Outcome) -> dict[str, Any]:
    """Return the row's fields of how the child ended: its answer, or the step in which it died."""
    if isinstance(outcome.result, dict):
        found = dict(outcome.result)
        return found | {"samples_us": found.pop("enqueue_us")}
    begun = [line[6:] for line in outcome.stderr.splitlines() if line.startswith("step: ")]
    where = f"{begun[-1]}: " if begun else ""
    return {"reason": f"{where}{outcome.words}", "steps": [{"step": one, "ok": one != begun[-1]} for one in begun]}


# ---- pure


def cost(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return {torch_launch_us, torch_drained_us, driver_launch_us, driver_drained_us}: timing.Interval or None.

    The driver's times are less what ctypes takes for such a call (`call_us`), never below zero.
    """
    found: dict[str, Any] = {}
    for layer in ("torch", "driver"):
        row = next((r for r in rows if r.get("layer") == layer and r.get("what") != "torch_smallest_on_cpu"), {})
        less = row.get("call_us") or 0.0
        for name, key, own in (("launch", "samples_us", less), ("drained", "drained_us", 0.0)):
            found[f"{layer}_{name}_us"] = timing.median_interval([max(0.0, us - own) for us in row.get(key) or []])
    return found


def reason(rows: list[dict[str, Any]], layer: str) -> str | None:
    """Return why a layer has no time, None where it has one."""
    row = next((r for r in rows if r.get("layer") == layer and r.get("what") != "torch_smallest_on_cpu"), None)
    if row is None:
        return "not measured"
    return row.get("reason") if not row.get("samples_us") else None


def judge(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say what a launch costs and whose cost that is: the driver's, or torch's around it. [] where nothing launches."""
    found = cost(rows)
    torch_us, driver_us = found["torch_launch_us"], found["driver_launch_us"]
    given: dict[str, Any] = {f"{key}": one.median for key, one in found.items() if one}
    if torch_us is None and driver_us is None:
        return []
    if torch_us is None or driver_us is None:
        lacking = "driver" if driver_us is None else "torch"
        variant = "torch_only" if driver_us is None else "driver_only"
        return [finding("LAUNCH_COST", numbers=given, variant=variant, reason=reason(rows, lacking) or "not measured")]
    pct = 100 * driver_us.median / torch_us.median
    given["driver_pct"] = pct
    return [finding("LAUNCH_COST", numbers=given, variant=None if pct >= DRIVER_SHARE_PCT else "framework")]
