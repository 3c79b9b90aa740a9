"""What does one decode step take of the device? By a prefilled queue, by graph replay, and by the profiler.

Parts of `steps.measure`: each appends its rows through `notes`. The graph comes last, since a driver may crash in it.
"""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocmlab import clock, decode, prefilled, profiler, replay, rig, timing, tracing, twin
from rocmlab.readers import traces
from rocmlab.rig import Rig

if TYPE_CHECKING:
    from rocmlab.steps import Notes

SPIN_TIMES = 2.5  # a spin against the time to queue what stands behind it
SPIN_LEAST_MS = 5.0
DEPTHS = (16, 8, 4, 2)  # parts of the layers behind a spin, where a whole step does not fit into the queue
TRACED = 3  # steps under the profiler
SAMPLES = 6  # six give an interval


def queue(notes: Notes, whole: Rig, model: Any, samples: int = SAMPLES) -> None:
    """Read the step behind a spin, whole and with fewer layers; then what a chain of tiny kernels takes there."""
    device, layers = whole.device, model.config.num_hidden_layers
    rate, chosen = prefilled.cycles_a_ms(device), clock.choose(clock.qualify(device))
    facts = {"clock": chosen.clock, "grade": "B" if chosen.clock == clock.EVENTS else "D", "of_layers": layers}
    events = chosen.clock == clock.EVENTS
    depths = [layers, *sorted({max(1, layers // part) for part in DEPTHS} - {layers}, reverse=True)]
    for depth in depths:
        with twin.shallow(model, depth):
            one = whole if depth == layers else rig.ready(model, device, whole.context, whole.rows)
            once = statistics.median(rig.queued(one, 1)["enqueue_ms"] for _ in range(3))
            spin_ms = min(max(SPIN_LEAST_MS, SPIN_TIMES * once), prefilled.LONGEST_MS)
            read = []
            for _ in range(samples):
                read.append(prefilled.read(device, partial(rig.step, one), spin_ms, rate, events))
                rig.back(one, 1)
        found: dict[str, Any] = {"layers": depth, "spin_ms": spin_ms}
        found |= {"enqueue_ms": [round(r["enqueue_ms"], 5) for r in read]}
        found |= {"spin_seen_ms": [round(r["spin_ms"], 5) for r in read]}
        notes.add("D_queue", [round(r["ms"], 5) for r in read], method="prefilled queue", **facts | found)
    work = prefilled.chain(device)
    once = min(clock.warm(work, device))
    read = [prefilled.read(device, work, SPIN_TIMES * once + SPIN_LEAST_MS, rate, events) for _ in range(samples)]
    notes.add(
        "chain_queue", [r["ms"] / prefilled.TINY for r in read], method="one of a chain of tiny kernels in a queue",
        **facts, kernels=prefilled.TINY,
    )  # fmt: skip


def graphs(notes: Notes, rigs: dict[str, Rig], steps: int, blocks: int) -> None:
    """Replay the step and the twin's as graphs, in turns with the step itself; and a chain of tiny kernels."""
    device, context = rigs["T"].device, notes.head["context"]
    made: dict[str, replay.Captured] = {}
    for name, source in (("D_graph", "T"), ("H_graph", "H")):
        if source in rigs:
            one = notes.part(name, partial(_captured, rigs[source], context))
            made |= {name: one} if one else {}
    found: dict[str, list[float]] = {name: [] for name in (*made, "T")}
    for block in range(blocks):
        for name in list(found) if block % 2 == 0 else list(found)[::-1]:
            timed = rig.stamped(rigs["T"], steps)["ms"] if name == "T" else replay.time_a_replay(made[name], device)
            found[name].append(round(timed, 5))
    for name, one in made.items():
        off = _error(rigs["T" if name == "D_graph" else "H"], one)
        limit = replay.TOLERANCE.get(notes.head["dtype"], 0.1)
        said = None if off <= limit else f"the graph's logits differ by {off:.2g} of the largest, so it is not the step"
        facts = {"logits_error": off, "beside_ms": found["T"]}
        notes.add(name, found[name], method="graph replay, static cache", valid=said is None, reason=said, **facts)
    count = notes.part("nodes", lambda: replay.nodes(made["D_graph"])) if "D_graph" in made else None
    if count:
        notes.add("nodes", [], method="nodes of the graph", grade="C", valid=True, count=count)
    chain = replay.capture(prefilled.chain(device))
    each = [replay.time_a_replay(chain, device) / prefilled.TINY for _ in range(SAMPLES)]
    notes.add("chain_graph", each, method="one of a chain of tiny kernels in a graph", kernels=prefilled.TINY)


def _captured(one: Rig, context: int) -> replay.Captured:
    still = replay.static(one.model, one.device, context, one.first)
    made = replay.capture(still.work, still.reset)
    for _ in range(2):
        replay.time_a_replay(made, one.device)
    return made


def _error(one: Rig, made: replay.Captured) -> float:
    logits = decode.forward(one.model, one.state)
    rig.back(one, 1)
    return replay.error(made, one.device, logits)


def traced(notes: Notes, one: Rig) -> None:
    """Count the kernels of a step and their time under the profiler; it slows the host, so nothing else is timed."""
    from torch.profiler import record_function

    with tracing.profile(one.device) as prof:
        for number in range(TRACED):
            with record_function(f"decode_step#{number}"):
                rig.step(one)
                timing.synchronise(one.device)
            rig.back(one, 1)
    with tempfile.TemporaryDirectory(prefix="rocmlab-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "trace.json")
        prof.export_chrome_trace(str(path))
        seen = profiler.measure(traces.load(path)).get("steps") or []
    seen = [step for step in seen if step.get("kind") == "token" and step.get("kernels")]
    if not seen:
        raise RuntimeError("the profiler of this build shows no kernels")
    notes.add(
        "D_busy", [step["linked_busy_us"] / 1000 for step in seen], method="trace union", grade="A", clock="trace"
    )
    count = round(statistics.median(step["kernels"] for step in seen))
    notes.add("launches", [], method="kernels of a trace", grade="A", valid=True, count=count)
