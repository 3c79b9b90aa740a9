"""What does one decode step take of the host, and what of the device? Measured in one child process.

`study(run, model, arm, ...)` writes the table `step`, one line a quantity: {quantity, samples_ms, n, clock, grade,
valid, reason, method, and the header of lengths}. T, H and D drift between processes but not against each other, so
they are measured in one process and in turns. What may crash a driver comes last, when the rest is on disk.
`ledger.of_run(run.path)` makes the account.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rocmlab import calls, clock, isolate, lengths, models, prefilled, profiler, replay, rig, timing, tracing, twin
from rocmlab.results import Run
from rocmlab.rig import Rig

SCHEMA = "rocmlab-step-1"
CONTEXT = 64
BLOCKS, LEAST_BLOCKS = 8, 6  # six give an interval
SPIN_TIMES = 2.5  # a spin against the time to queue what stands behind it
SPIN_LEAST_MS = 5.0
DEPTHS = (16, 8, 4, 2)  # parts of the layers behind a spin, where a whole step does not fit into the queue
TRACED = 3  # steps under the profiler
TOKENISED, CALLS = 20, 2000
COPIES = ("aten::to", "aten::_to_copy", "aten::contiguous")  # they work only where something changes


def study(
    run: Run, model: str, arm: dict[str, str], *, limit_s: float, context: int = CONTEXT, steps: int = 6,
    blocks: int = BLOCKS,
) -> list[dict[str, Any]]:  # fmt: skip
    """Measure every quantity of a decode step in a child process; return how it ended, as a list of one row.

    `context` tokens stand before the step, `steps` of them make a sample, `blocks` samples are taken of each quantity.
    """
    given: dict[str, Any] = {
        "run_dir": str(run.path),
        "notebook": run.notebook,
        "attempt": run.attempt,
        "model": model,
        "arm": arm,
    }
    given |= {"context": context, "steps": steps, "blocks": blocks, "limit_s": limit_s / 2}
    outcome = isolate.call("rocmlab.steps:measure", given, limit_s=limit_s)
    return [isolate.record(run, "step_ended", "one decode step", outcome)]


class Notes:
    """Where the rows of one process go: each with the header, as soon as it exists; a part that fails is a row too."""

    def __init__(self, run: Run, head: dict[str, Any]) -> None:
        self.run, self.head = run, head

    def add(self, quantity: str, samples: list[float], *, method: str, **facts: Any) -> None:
        """Append one line."""
        kept = {"quantity": quantity, "samples_ms": samples, "n": len(samples), "clock": "perf_counter", "grade": "D"}
        kept |= {"valid": bool(samples), "reason": None, "method": method}
        self.run.append("step", {"schema": SCHEMA, **self.head, **kept, **facts})

    def part(self, quantity: str, measured: Callable[[], Any]) -> Any:
        """Run one part; what it raises becomes a line with the reason, and None comes back."""
        try:
            return measured()
        except (RuntimeError, ValueError, TypeError, AttributeError, KeyError, ImportError, OSError) as error:
            said = f"{type(error).__name__}: {error}"[:500]
            self.add(quantity, [], method="not measured", valid=False, reason=said)
            return None


def measure(
    run_dir: str, notebook: str, attempt: str, model: str, arm: dict[str, str], context: int, steps: int, blocks: int,
    limit_s: float,
) -> None:  # fmt: skip
    """Measure the step, its twin, and the device's own time; rows are appended as they come."""
    import torch

    began, device = time.perf_counter(), arm["device"]
    timing.use(device)
    run, loaded = Run(Path(run_dir), notebook, attempt), models.load(model, device, arm["dtype"])
    head = lengths.header(loaded, arm, 0) | {"batch": 1, "context": context, "steps": steps, "core": timing.core()}
    head["layers"] = loaded.model.config.num_hidden_layers
    notes = Notes(run, head)
    with torch.inference_mode():
        rigs = {"T": rig.ready(loaded.model, device, context)}
        small = notes.part("H", lambda: rig.ready(twin.make(loaded.model, device, arm["dtype"]), device, context))
        rigs |= {"H": small} if small else {}
        if device == "cpu":
            in_turns(notes, rigs, steps, blocks, began + limit_s)
            notes.part("smallest", lambda: _smallest(notes))
        else:
            torch.set_num_threads(1)  # for the twin on the CPU: it stands for the one thread that launches
            alone = notes.part("H_cpu", lambda: _on_cpu(loaded.model, arm["dtype"], context))
            in_turns(notes, rigs | ({"H_cpu": alone} if alone else {}), steps, blocks, began + limit_s)
            notes.part("D_queue", lambda: queue(notes, rigs["T"], loaded.model))
        notes.part("dispatches", lambda: _dispatches(notes, rigs["T"]))
        notes.part("tokeniser", lambda: _tokeniser(notes, loaded.tokenizer))
        if device != "cpu":
            notes.part("launches", lambda: traced(notes, rigs["T"]))
            notes.part("D_graph", lambda: graphs(notes, rigs, steps, blocks))


def _on_cpu(model: Any, dtype: str, context: int) -> Rig:
    """Return the twin on the CPU, in the subject's dtype: another one has other operators. Else in float32."""
    try:
        return rig.ready(twin.make(model, "cpu", dtype), "cpu", context)
    except RuntimeError:
        return rig.ready(twin.make(model, "cpu", "float32"), "cpu", context)


# ---- in turns


def in_turns(notes: Notes, rigs: dict[str, Rig], steps: int, blocks: int, deadline: float) -> None:
    """Take blocks of every quantity in turns, the order turned round each time, and append a line for each."""
    ways: dict[str, Callable[[], dict[str, float]]] = {
        name: partial(rig.stamped, one, steps) for name, one in rigs.items()
    }
    if rigs["T"].device != "cpu":
        ways["E1"] = partial(rig.queued, rigs["T"], 1)
        ways["T_block"] = partial(rig.queued, rigs["T"], steps)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(2):  # the first visit of each length is none of these
        for way in ways.values():
            way()
    with timing.OtherWork() as others:
        for block in range(blocks):
            if block >= LEAST_BLOCKS and time.perf_counter() > deadline:
                break
            for name in list(ways) if block % 2 == 0 else list(ways)[::-1]:
                found[name].append(ways[name]())
    for name, samples in found.items():
        _add_turns(notes, name, samples)
    notes.add("conditions", [], method="load", others_cpu_pct=others.pct)


def _add_turns(notes: Notes, name: str, samples: list[dict[str, float]]) -> None:
    def column(key: str) -> list[float]:
        return [round(one[key], 5) for one in samples]

    if name == "E1":
        notes.add("E1", column("enqueue_ms"), method="one step queued after a wait", drained_ms=column("ms"))
    elif name == "T_block":
        notes.add("T_block", column("ms"), method="steps queued, one wait at the end")
        notes.add("E_block", column("enqueue_ms"), method="steps queued, until the last is")
    else:
        inside = {key: column(key) for key in ("forward_ms", "choose_ms", "read_ms")}
        method = {"T": "steady steps, each token on the host", "H": "tiny-width twin on the subject",
                  "H_cpu": "tiny-width twin on the CPU, one thread"}[name]  # fmt: skip
        notes.add(name, column("ms"), method=method, **inside)


# ---- device time


def queue(notes: Notes, whole: Rig, model: Any, samples: int = 6) -> None:
    """Read the step behind a spin, whole and with fewer layers; then what a chain of tiny kernels takes there."""
    device, layers = whole.device, model.config.num_hidden_layers
    rate, chosen = prefilled.cycles_a_ms(device), clock.choose(clock.qualify(device))
    facts = {"clock": chosen.clock, "grade": "B" if chosen.clock == clock.EVENTS else "D", "of_layers": layers}
    events = chosen.clock == clock.EVENTS
    depths = [layers, *sorted({max(1, layers // part) for part in DEPTHS} - {layers}, reverse=True)]
    for depth in depths:
        with twin.shallow(model, depth):
            one = whole if depth == layers else rig.ready(model, device, whole.context)
            once = statistics.median(rig.queued(one, 1)["enqueue_ms"] for _ in range(3))
            spin_ms = min(max(SPIN_LEAST_MS, SPIN_TIMES * once), prefilled.LONGEST_MS)
            read = []
            for _ in range(samples):
                read.append(prefilled.read(device, partial(rig.step, one), spin_ms, rate, events))
                rig.back(one, 1)
        found = {"layers": depth, "spin_ms": spin_ms, "enqueue_ms": [round(r["enqueue_ms"], 5) for r in read]}
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
    each = [replay.time_a_replay(chain, device) / prefilled.TINY for _ in range(LEAST_BLOCKS)]
    notes.add("chain_graph", each, method="one of a chain of tiny kernels in a graph", kernels=prefilled.TINY)


def _captured(one: Rig, context: int) -> replay.Captured:
    still = replay.static(one.model, one.device, context)
    made = replay.capture(still.work, still.reset)
    for _ in range(2):
        replay.time_a_replay(made, one.device)
    return made


def _error(one: Rig, made: replay.Captured) -> float:
    from rocmlab import decode

    logits = decode.forward(one.model, one.state)
    rig.back(one, 1)
    return replay.error(made, one.device, logits)


def traced(notes: Notes, one: Rig) -> None:
    """Count the kernels of a step and their time under the profiler; it slows the host, so nothing else is timed."""
    from torch.profiler import record_function

    from rocmlab.readers import traces

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


# ---- counts and small things


def _dispatches(notes: Notes, one: Rig) -> None:
    """Count the operators of one step that work on something, by torch's own dispatch; an estimate of launches."""
    notes.add("dispatches", [], method="dispatch counting", valid=True, count=len(dispatched(lambda: rig.step(one))))
    rig.back(one, 1)


def dispatched(work: Callable[[], Any]) -> list[str]:
    """Return the names of the operators that some work dispatches, without views, allocations and questions."""
    from torch.utils._python_dispatch import TorchDispatchMode

    names: list[str] = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            name = str(func.name()).split(".")[0]
            copied = name in COPIES and out.data_ptr() != args[0].data_ptr()
            if copied or not calls.launches_nothing(name):
                names.append(name)
            return out

    with Counting():
        work()
    return names


def _smallest(notes: Notes) -> None:
    """Time torch's smallest operator on the CPU: what a call takes that computes nothing."""
    import torch

    value, samples = torch.zeros(1), []
    for _ in range(LEAST_BLOCKS + 1):
        began = time.perf_counter()
        for _ in range(CALLS):
            value.add_(1.0)
        samples.append(1000 * (time.perf_counter() - began) / CALLS)
    notes.add("smallest", samples[1:], method="one addition of one value, in a row of calls")


def _tokeniser(notes: Notes, tokenizer: Any) -> None:
    """Time turning one token into text, where the model has a tokenizer."""
    if tokenizer is None:
        return
    samples = []
    for part in range(LEAST_BLOCKS + 1):
        ids = range(100 + part * TOKENISED, 100 + (part + 1) * TOKENISED)
        began = time.perf_counter()
        for one in ids:
            tokenizer.decode([one])
        samples.append(1000 * (time.perf_counter() - began) / TOKENISED)
    notes.add("tokeniser", samples[1:], method="decoding one token")
