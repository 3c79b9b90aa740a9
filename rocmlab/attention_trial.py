"""Force every back end of attention at one shape after the other, inside a child process: visits, values, steady times.

Decode is one query over a cache of `length` positions, and each layer has a cache of its own, as in a model: a pass is
one call a layer. Prefill is causal over `length` positions. Steady time on a GPU is device time a call: a captured pass
replayed between two device events (`method` = graph), else queued passes between them (events); on a CPU wall time.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rocmlab import attention_inputs, attention_seen, clock, patches, results, sensors, timing
from rocmlab.attention import BACKENDS, DEFAULT, NO_CUDNN, SWITCH, TABLE
from rocmlab.attention_inputs import Case, Inputs
from rocmlab.results import Run

REFUSED = re.compile(r"no available kernel|no viable backend", re.IGNORECASE)
FATAL = re.compile(r"\b(CUDA|HIP) error\b", re.IGNORECASE)  # after such a one nothing else runs in this process
SHORT = re.compile(r"out of memory|not enough memory|can't allocate", re.IGNORECASE)
PASS_MS = 20.0  # a pass of prefill calls is cut so that it takes about this long
WINDOW_MS = 1.0  # between the start and the stop of a clock, at the least
SLOW_MS, SLOW_SAMPLES = 400.0, 3  # a pass slower than this is sampled three times only


@dataclass
class Arm:
    """One back end at one case, ready to be timed: `queue` is a pass of `calls` calls, `one` a single call."""

    row: dict[str, Any]
    queue: Callable[[], Any]
    one: Callable[[], Any]
    calls: int
    task: Callable[[], Any]  # what is timed: the pass, or the replay of its graph
    repeats: int = 1
    slow: bool = False
    kept: Any = None  # what a captured pass reads: a graph holds addresses only, and the views change with the length


@dataclass
class Plan:
    """What all cases of one process share; `seen` are the (back end, phase) that have run before in it."""

    run: Run
    head: dict[str, Any]
    clock: clock.Choice
    samples: int
    visits: int
    excluded: list[list[str]]
    graphs: bool
    seen: set[tuple[str, str]]


def measure(
    run_dir: str, notebook: str, attempt: str, model: str, arm: dict[str, str], lengths: list[int], settings: bool,
    samples: int, visits: int, excluded: list[list[str]], graphs: bool,
) -> None:  # fmt: skip
    """Measure every case without a `shape` row; `excluded` are (back end, phase) that ended an earlier process."""
    import torch

    device = arm["device"]
    timing.use(device)
    run, load, value = Run(Path(run_dir), notebook, attempt), timing.load(device), os.environ.get(SWITCH)
    head = attention_inputs.header(model, arm) | {"load": load, "switch": value}
    plan = Plan(run, head, _clock(run.path, device), samples, visits, excluded, graphs, set())
    head["clock"] = plan.clock.clock
    done = [row["case"] for row in run.rows(TABLE) if row.get("what") == "shape" and row["switch"] == value]
    cases = attention_inputs.cases(lengths, head, settings)
    torch.manual_seed(0)
    with timing.OtherWork() as others, torch.inference_mode():
        for case in [one for one in cases if asdict(one) not in done]:
            _case(plan, case)
            run.append(TABLE, head | {"what": "shape", "case": asdict(case), **sensors.sparse(device)})
    run.append(TABLE, head | {"what": "conditions", "others_cpu_pct": others.pct})
    if settings:  # last: what the profiler has touched is not timed any more
        attention_seen.kernels(run, head, cases)


def _clock(path: Path, device: str) -> clock.Choice:
    """Return the clock that this run has qualified for the device, else qualify it now."""
    if device == "cpu":
        return clock.Choice(clock.WALL, WINDOW_MS, 0, 0, None, "a CPU has no events")
    known = [row for row in results.rows(path, "clock") if row.get("device") == device]
    return clock.choose(known[-1] if known else clock.qualify(device))


# ---- one case


def _case(plan: Plan, case: Case) -> None:
    """Try every back end at one shape, then time those that work in turns; a row each, whatever happened."""
    common, device = plan.head | case.fields(), plan.head["device"]
    try:
        inputs = attention_inputs.make(case, plan.head)
    except RuntimeError as error:
        plan.run.append(TABLE, common | {"what": "case", "backend": DEFAULT, **_failure(error)})
        return
    arms, pool = [], None
    if device != "cpu":
        import torch

        pool = torch.cuda.graph_pool_handle()  # of all graphs of this case: none needs what another has left there
    for place, backend in enumerate(_backends(device)):
        if [backend, case.phase] in plan.excluded:
            continue
        plan.run.append(TABLE, common | {"what": "trying", "backend": backend})
        row = common | {"what": "case", "backend": backend} | _tried(plan, backend, place, case, inputs)
        if row["status"] == "OK":
            arms.append(_arm(plan, case, inputs, row, pool))
            continue
        if row["status"] == "ERROR" and FATAL.search(row["error"]):
            raise RuntimeError(" ".join(row["error"].split()))  # attention.study goes on without this back end
        plan.run.append(TABLE, row)
    plan.run.append(TABLE, common | {"what": "timing"})
    _steady(arms, device, plan.clock, plan.samples)
    plan.run.append(TABLE, [arm.row for arm in arms])
    del arms, inputs
    timing.release(device)


def _backends(device: str) -> list[str]:
    """Return what is tried, the default first: forcing one must not have touched torch's own order before."""
    import torch
    from torch.nn.attention import SDPBackend

    named = [name for name, member in BACKENDS.items() if hasattr(SDPBackend, member)]
    cudnn = device != "cpu" and torch.version.hip is None and hasattr(torch.backends.cuda, "enable_cudnn_sdp")
    return [DEFAULT, *([NO_CUDNN] if cudnn else []), *named]


@contextlib.contextmanager
def only(backend: str) -> Iterator[None]:
    """Allow one back end only; the default allows all, or all but cuDNN."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if backend == NO_CUDNN:
        with patches.no_cudnn_attention():
            yield
    elif backend == DEFAULT:
        yield
    else:
        with sdpa_kernel([getattr(SDPBackend, BACKENDS[backend])]):
            yield


def _tried(plan: Plan, backend: str, place: int, case: Case, inputs: Inputs) -> dict[str, Any]:
    """Call one back end: cold, at new lengths, at this one; return status, visits, value and what it consists of."""
    found: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as heard, only(backend):
        warnings.simplefilter("always")
        try:
            found |= _visited(plan, backend, place, case, inputs)
            found |= attention_inputs.value(case, inputs, plan.head)
            found |= {"status": "OK", "error": None} | attention_seen.operators(case, inputs)
            if backend in (DEFAULT, NO_CUDNN):
                found["choice"] = attention_seen.choice(case, inputs)
        except (RuntimeError, TypeError) as error:
            found |= _failure(error)
    said = [str(one.message).split(" (Triggered")[0][:400] for one in heard]
    return found | {"warnings": list(dict.fromkeys(said))}


def _failure(error: Exception) -> dict[str, Any]:
    said = f"{type(error).__name__}: {error}"[:600]
    status = "REFUSED" if REFUSED.search(said) else "OUT_OF_MEMORY" if SHORT.search(said) else "ERROR"
    return {"status": status, "error": said}


def _visited(plan: Plan, backend: str, place: int, case: Case, inputs: Inputs) -> dict[str, Any]:
    """Return times in ms: the very first call, then of each new length its first call, first pass and second pass.

    The new lengths lie below the case's own, other ones for each back end: what a library keeps of one length must not
    serve the next back end that uses the same library.
    """
    step, device = plan.visits + 1, plan.head["device"]
    lengths = [max(1, case.length - place * step - count) for count in range(step, 0, -1)]
    inputs.at(lengths[0])
    cold = round(clock.timed(lambda: inputs.calls(lengths[0], 1), device), 5)
    found: dict[str, Any] = {"cold_ms": None if (backend, case.phase) in plan.seen else cold}
    plan.seen.add((backend, case.phase))
    found |= {"calls_a_pass": inputs.sets, "first_call_ms": [], "first_pass_ms": [], "second_pass_ms": []}
    for length in lengths[1:]:
        inputs.at(length)
        first, rest, second = (
            clock.timed(lambda length=length, span=span: inputs.calls(length, span[1], span[0]), device)  # type: ignore[misc]
            for span in ((0, 1), (1, inputs.sets), (0, inputs.sets))
        )
        for name, ms in (("first_call_ms", first), ("first_pass_ms", first + rest), ("second_pass_ms", second)):
            found[name].append(round(ms, 5))
    return found


# ---- steady


def _arm(plan: Plan, case: Case, inputs: Inputs, row: dict[str, Any], pool: Any) -> Arm:
    """Prepare the timing of one back end: the pass, and on a GPU its graph if it can be captured."""
    device, calls = plan.head["device"], inputs.sets
    if case.phase == "prefill":
        once = min(row["second_pass_ms"]) / inputs.sets
        calls = max(1, min(plan.head["layers"], round(PASS_MS / max(once, 1e-3))))
    row |= {"method": "wall", "evidence_grade": "D", "timed_calls": calls}
    queue = functools.partial(inputs.calls, case.length, calls)
    arm = Arm(row, queue, functools.partial(inputs.calls, case.length, 1), calls, queue)
    arm.kept = inputs.at(case.length)
    with only(row["backend"]):
        if device != "cpu" and plan.graphs:
            plan.run.append(TABLE, {"what": "capturing", "backend": row["backend"], "switch": row["switch"]})
            _capture(arm, device, pool)
        elif device != "cpu":
            row |= {"method": "events", "evidence_grade": "B", "graph_reason": "a capture ended an earlier process"}
        usual = min(clock.warm(arm.task, device, blocks=4, limit_s=1.0))
    arm.repeats, arm.slow = max(1, round(WINDOW_MS / max(usual, 1e-3))), usual > SLOW_MS
    return arm


def _capture(arm: Arm, device: str, pool: Any) -> None:
    """Capture the pass as a graph; where that fails, queued passes between events serve, and the row says why."""
    import torch

    try:
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream(torch.device(device))
        timing.synchronise(device)
        with torch.cuda.stream(side):
            arm.queue()
            timing.synchronise(device)
            # Not torch.cuda.graph(): it empties the allocator and may collect garbage, a tenth of a second each time.
            graph.capture_begin(pool=pool)
            try:
                arm.queue()
            finally:
                graph.capture_end()
        graph.replay()
        timing.synchronise(device)
        arm.task = graph.replay
        arm.row |= {"method": "graph", "evidence_grade": "B"}
    except Exception as error:  # a capture fails in many ways, none of which says anything about attention
        arm.row |= {"method": "events", "evidence_grade": "B", "graph_reason": f"{type(error).__name__}: {error}"[:300]}
        timing.synchronise(device)


def _steady(arms: list[Arm], device: str, chosen: clock.Choice, samples: int) -> None:
    """Time all back ends in turns, the order turned round at every block; append samples (ms a call) to their rows.

    samples_ms: device time on a GPU, wall on a CPU. host_samples_ms: how long the host needs to queue one call of a
    pass. wall_samples_ms: one call, waited for at both ends.
    """
    names = ("samples_ms", "host_samples_ms", "wall_samples_ms")[: 1 if device == "cpu" else 3]
    for arm in arms:
        arm.row |= {name: [] for name in names}
    for block in range(samples):
        for arm in arms if block % 2 == 0 else arms[::-1]:
            if arm.slow and block >= SLOW_SAMPLES:
                continue
            with only(arm.row["backend"]):
                taken = [clock.each(arm.task, arm.repeats, device, chosen.clock) / arm.calls]
                if device != "cpu":
                    taken += [_queued(arm.queue, device) / arm.calls, clock.timed(arm.one, device)]
            for name, ms in zip(names, taken, strict=True):
                arm.row[name].append(round(ms, 6))
    if chosen.clock == clock.WALL:
        for arm in arms:
            arm.row["evidence_grade"] = "D"


def _queued(task: Callable[[], Any], device: str) -> float:
    """Return the time in ms until a pass is queued, from an empty queue on; then wait for it."""
    timing.synchronise(device)
    began = time.perf_counter()
    task()
    taken = 1000 * (time.perf_counter() - began)
    timing.synchronise(device)
    return taken
