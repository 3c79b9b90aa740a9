"""What does one decode step take of the host, and what of the device? Measured in one child process.

`study(run, model, arm, ...)` writes the table `step`, one line a quantity: {quantity, samples_ms, n, clock, grade,
valid, reason, method, and the header of lengths}. T, H and D drift between processes but not against each other, so
they are measured in one process and in turns. What may crash a driver comes last, when the rest is on disk.
`ledger.of_run(run.path)` makes the account.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from rocmlab import calls, decode, isolate, lengths, models, rig, sensors, step_device, timing, twin
from rocmlab.results import Run
from rocmlab.rig import Rig

SCHEMA = "rocmlab-step-1"
CONTEXT = 64
LAST = 1.6  # of the time for the turns, which is half of the process's: their lines must be on disk before its end
BLOCKS, LEAST_BLOCKS = 16, 6  # many and short: a host that changes its pace for seconds spoils few of them
TOKENISED, CALLS = 20, 2000
COPIES = ("aten::to", "aten::_to_copy", "aten::contiguous")  # they work only where something changes


def study(
    run: Run, model: str, arm: dict[str, str], *, limit_s: float, context: int = CONTEXT, steps: int = 3,
    blocks: int = BLOCKS, rows: int = 1,
) -> list[dict[str, Any]]:  # fmt: skip
    """Measure every quantity of a decode step in a child process; return how it ended, as a list of one row.

    `context` tokens stand before the step of `rows` texts, `steps` of them make a sample, `blocks` samples are taken of
    each quantity.
    """
    given: dict[str, Any] = run.where() | {"model": model, "arm": arm}
    given |= {"context": context, "steps": steps, "blocks": blocks, "limit_s": limit_s / 2, "rows": rows}
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
        except Exception as error:  # of whatever kind: it must not cost the parts that come after
            said = f"{type(error).__name__}: {error}"[:500]
            self.add(quantity, [], method="not measured", valid=False, reason=said)
            return None


def measure(
    run_dir: str, notebook: str, attempt: str, model: str, arm: dict[str, str], context: int, steps: int, blocks: int,
    limit_s: float, rows: int = 1,
) -> None:  # fmt: skip
    """Measure the step, its twin, and the device's own time; rows are appended as they come."""
    import torch

    began, device = time.perf_counter(), arm["device"]
    ends = began + limit_s, began + LAST * limit_s
    timing.use(device)
    run, loaded = Run(Path(run_dir), notebook, attempt), models.load(model, device, arm["dtype"])
    head = lengths.header(loaded, arm, 0) | {"context": context, "steps": steps, "core": timing.core()}
    head["layers"] = loaded.model.config.num_hidden_layers
    with torch.inference_mode():
        whole, refused = fitting(loaded.model, device, context, rows)
        asked, rows = rows, whole.rows
        notes, rigs = Notes(run, head | {"batch": rows}), {"T": whole}
        if refused:
            notes.add("rows", [], method="as many texts as memory holds", valid=False, reason=refused, asked=asked)
        small = notes.part("H", lambda: rig.ready(twin.make(loaded.model, device, arm["dtype"]), device, context, rows))
        rigs |= {"H": small} if small else {}
        if device == "cpu":
            in_turns(notes, rigs, steps, blocks, *ends)
            notes.part("smallest", lambda: _smallest(notes))
        else:
            torch.set_num_threads(1)  # for the twin on the CPU: it stands for the one thread that launches
            alone = notes.part("H_cpu", lambda: _on_cpu(loaded.model, arm["dtype"], context))
            in_turns(notes, rigs | ({"H_cpu": alone} if alone else {}), steps, blocks, *ends)
            notes.part("D_queue", lambda: step_device.queue(notes, rigs["T"], loaded.model))
        notes.part("dispatches", lambda: _dispatches(notes, rigs["T"]))
        notes.part("tokeniser", lambda: _tokeniser(notes, loaded.tokenizer))
        if device != "cpu":
            notes.part("launches", lambda: step_device.traced(notes, rigs["T"]))
            notes.part("D_graph", lambda: step_device.graphs(notes, rigs, steps, blocks))


def fitting(model: Any, device: str, context: int, rows: int) -> tuple[Rig, str | None]:
    """Return a rig of as many texts as memory holds, halved from `rows` until they fit, and why there are fewer.

    Several texts must also leave room for a step, which copies their caches; one text that does not fit raises.
    """
    asked, refused = rows, None
    while True:
        try:
            return _with_room(model, device, context, rows), refused
        except (RuntimeError, MemoryError) as error:
            if rows == 1 or not decode.is_out_of_memory(error):
                raise
        timing.release(device)
        rows //= 2
        refused = f"{asked} texts of {context} tokens do not fit into memory, so the step has {rows}"


def _with_room(model: Any, device: str, context: int, rows: int) -> Rig:
    made = rig.ready(model, device, context, rows)
    if rows > 1:
        rig.queued(made, 1)
    return made


def _on_cpu(model: Any, dtype: str, context: int) -> Rig:
    """Return the twin on the CPU, in the subject's dtype: another one has other operators. Else in float32.

    Of one text always: more of them are no more work for the host, but here they would be work for its arithmetic.
    """
    try:
        return rig.ready(twin.make(model, "cpu", dtype), "cpu", context)
    except RuntimeError:
        return rig.ready(twin.make(model, "cpu", "float32"), "cpu", context)


# ---- in turns


def in_turns(
    notes: Notes, rigs: dict[str, Rig], steps: int, blocks: int, deadline: float, last: float = math.inf
) -> None:
    """Take blocks of every quantity in turns, the order turned round each time, and append a line for each.

    After `deadline` six blocks are enough; a step so slow that not even these end before `last`, when the process must,
    keeps the blocks that it has, one at least.
    """
    ways: dict[str, Callable[[], dict[str, float]]] = {
        name: partial(rig.stamped, one, steps) for name, one in rigs.items()
    }
    if rigs["T"].device != "cpu":
        ways["E1"] = partial(rig.queued, rigs["T"], 1)
        ways["T_block"] = partial(rig.queued, rigs["T"], steps)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for _ in range(2):  # the first visit of each length is none of these
        began = time.perf_counter()
        for way in ways.values():
            way()
    round_s = time.perf_counter() - began
    readings = [sensors.reading(rigs["T"].device)]
    with timing.OtherWork() as others:
        for block in range(blocks):
            now = time.perf_counter()
            if (block >= LEAST_BLOCKS and now > deadline) or (block > 0 and now + round_s > last):
                break
            for name in list(ways) if block % 2 == 0 else list(ways)[::-1]:
                found[name].append(ways[name]())
    for name, samples in found.items():
        _add_turns(notes, name, samples)
    readings.append(sensors.reading(rigs["T"].device))
    notes.add("conditions", [], method="load", others_cpu_pct=others.pct, sensors=readings)


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
