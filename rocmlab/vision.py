"""How fast are ResNet-50 training, BERT-base inference and a VGG16 forward pass here? Measured for notebook 10.

`study(...)` asks one worker process network by network; every row goes to the table `vision` as soon as it exists:
`first` (the very first step of a shape, memory, a check against float64), `steady` (single steps, all arms in turns),
`queued` (several steps, one wait at the end), `sustained` (the same step for seconds, under the sensors).
An arm is a dtype, and for convolutions a memory layout: "float16", "float16 channels_last".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocmlab import clock, decode, isolate, networks, results, sensors, timing
from rocmlab.network_steps import Plan, answers, check, exact, split, stepper
from rocmlab.results import Run
from rocmlab.worker import Worker

TABLE = "vision"
QUEUED_BLOCKS, QUEUED_STEPS = 6, 3
COST_BLOCK_S = 0.5
SLOW_STEP_S = 0.5  # a CPU step above this is warm enough after its first run


def study(
    run: Run, keeper: Worker, device: str, models: list[str], arms: list[str], plan: dict[str, Any], *, cost_pairs: int,
    limit_s: float,
) -> list[dict[str, Any]]:  # fmt: skip
    """Measure what the sampler costs, then the networks one after the other in one worker; return how each ended.

    A crash or a hang costs the arm that was being measured: a fresh worker goes on with the others.
    """
    where: dict[str, Any] = run.where()
    where["device"] = device
    ended = []
    if cost_pairs:
        given = where | {"block_s": COST_BLOCK_S, "pairs": cost_pairs}
        outcome = keeper.call("rocmlab.sensors:measure_cost", given, limit_s=limit_s)
        ended.append(isolate.record(run, "vision_ended", "cost of the sampler", outcome))
    for model in models:
        left, trial = [arm for arm in arms if model in networks.CONVOLUTIONS or "channels_last" not in arm], 0
        while left:
            trial += 1
            given = where | {"model": model, "arms": left, "plan": plan, "trial": trial}
            outcome = keeper.call("rocmlab.vision:measure", given, limit_s=limit_s)
            ended.append(isolate.record(run, "vision_ended", f"{model}: {', '.join(left)}", outcome))
            left = [] if outcome.status == "OK" else _without_guilty(run, device, model, left, ended[-1])
    return ended


def _without_guilty(run: Run, device: str, model: str, arms: list[str], ended: dict[str, Any]) -> list[str]:
    """Record the arm at which the worker ended, and return those still to be measured."""
    begun = [row["arm"] for row in run.rows(TABLE) if row.get("kind") == "begun" and row["model"] == model]
    guilty = begun[-1] if begun and begun[-1] in arms else arms[0]
    error = f"{ended['status']}: {ended['words']}"
    run.append(TABLE, {"kind": "failed", "model": model, "arm": guilty, "device": device, "error": error})
    return [arm for arm in arms if arm != guilty]


def measure(
    run_dir: str, notebook: str, attempt: str, device: str, model: str, arms: list[str], plan: dict[str, Any],
    trial: int = 1,
) -> None:  # fmt: skip
    """Measure one network in all arms: first runs one by one, then steady rounds over all arms that work.

    `trial` counts the workers that tried this network: only the rows of the last one stand beside each other.
    """
    timing.use(device)
    tf32 = exact()
    run, asked, load = Run(Path(run_dir), notebook, attempt), Plan(**plan), timing.load(device)
    head = {"device": device, "model": model, "work": networks.WORK[model], "image_px": asked.image}
    head |= {"length_tokens": asked.length if model == "bert_base" else None, "size": asked.size, "load": load}
    head |= {"clock": decode.CLOCK, "evidence_grade": "D", "tf32": tf32, "trial": trial}
    network = networks.build(model, asked.size)
    right = answers(model, network, "cpu", split("float64"), asked)
    made: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {}
    for arm in arms:
        run.append(TABLE, head | {"kind": "begun", "arm": arm})
        row, step = first_runs(head | split(arm), model, network, asked, right)
        run.append(TABLE, row)
        if step is not None:
            made[arm] = ({key: row[key] for key in (*head, "arm", "dtype", "layout", "batch")}, step)
        del step  # `made` alone holds it, so that an arm can be given up
    if made:
        _steady(run, made, asked)
        if made and model == "resnet50" and asked.sustained_s > 0:
            _sustained(run, *_fastest(run, made), asked.sustained_s)
    made.clear()
    timing.release(device)


# ---- first runs


def first_runs(
    head: dict[str, Any], model: str, network: Any, plan: Plan, right: dict[str, Any]
) -> tuple[dict[str, Any], Callable[[], Any] | None]:
    """Run an arm for the first time, with half the batch each time it does not fit; return its row and its step.

    The row holds first_ms and second_ms (a library may search for minutes at the first), peak memory, the batches that
    did not fit, and the check. The step is None where no batch fits or the arm fails.
    """
    device, batch = head["device"], plan.batch
    tried: list[dict[str, Any]] = []
    row = head | {"kind": "first", "asked_batch": plan.batch}
    while batch >= 1:
        timing.release(device)  # here, not where the error is caught: it still holds what it had allocated
        try:
            found, step = _first_two(model, network, batch, head, plan)
            row |= found | {"batch": batch, "stepped_down": tried}
            row |= networks.work(model, plan.size, batch, plan.image, plan.length)
            checked = {"batch": plan.check_batch, "image_px": plan.check_image}
            return row | {"check": checked | check(answers(model, network, device, head, plan), right)}, step
        except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
            if not decode.is_out_of_memory(error):
                return row | {
                    "kind": "failed",
                    "batch": batch,
                    "error": f"{type(error).__name__}: {error}"[:1000],
                }, None
            tried.append({"batch": batch, "memory": decode.memory_state(device, error)})
        batch //= 2
    return row | {"kind": "failed", "batch": None, "stepped_down": tried, "error": "out of memory at batch 1"}, None


def _first_two(
    model: str, network: Any, batch: int, arm: dict[str, Any], plan: Plan
) -> tuple[dict[str, Any], Callable[[], Any]]:
    import torch

    device, peak = arm["device"], None
    on_gpu = device != "cpu"
    before = torch.cuda.memory_allocated(device) if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    step = stepper(model, network, batch, device, arm, plan)
    first = clock.timed(step, device)
    slow = not on_gpu and first > 1000 * SLOW_STEP_S
    second = None if slow else clock.timed(step, device)
    if on_gpu:
        peak = torch.cuda.max_memory_allocated(device) - before
    why = {} if on_gpu else {"peak_bytes_reason": "the CPU's allocator keeps no peak"}
    return {"first_ms": first, "second_ms": second, "peak_bytes": peak, **why}, step


# ---- steady


def _steady(run: Run, made: dict[str, tuple[dict[str, Any], Callable[[], Any]]], plan: Plan) -> None:
    """Time single steps of all arms in turns, then on a GPU blocks of queued steps; the sensors are read in between."""
    head = {key: next(iter(made.values()))[0][key] for key in ("device", "model", "load")}
    device = head["device"]
    with timing.OtherWork() as others:
        for block in range(plan.rounds):
            for arm in list(made) if block % 2 == 0 else list(made)[::-1]:
                facts, ms = made[arm][0], _beside(run, made, arm, 1)
                if ms is not None:
                    read = {"sensor": sensors.reading(device)}
                    run.append(TABLE, facts | {"kind": "steady", "block": block, "ms": ms} | read)
        for block in range(QUEUED_BLOCKS if device != "cpu" else 0):
            for arm in list(made) if block % 2 == 0 else list(made)[::-1]:
                facts, ms = made[arm][0], _beside(run, made, arm, QUEUED_STEPS)
                if ms is not None:
                    run.append(TABLE, facts | {"kind": "queued", "block": block, "ms": ms, "steps": QUEUED_STEPS})
    run.append(TABLE, head | {"kind": "conditions", "others_cpu_pct": others.pct})


def _beside(run: Run, made: dict[str, Any], arm: str, count: int) -> float | None:
    """Return the ms of a step; None after dropping the arm, where it no longer fits beside the others."""
    facts, step = made[arm]
    try:
        return clock.timed(_times(step, count), facts["device"]) / count
    except RuntimeError as error:
        if not decode.is_out_of_memory(error):
            raise
        memory = decode.memory_state(facts["device"], error)
    said = "out of memory beside the other arms, though it had fitted alone"
    run.append(TABLE, facts | {"kind": "failed", "error": said, "memory": memory})
    del made[arm], step  # with it go its weights, which the others may need
    timing.release(facts["device"])
    return None


def _times(step: Callable[[], Any], count: int) -> Callable[[], None]:
    def steps() -> None:
        for _ in range(count):
            step()

    return steps


def _fastest(run: Run, made: dict[str, tuple[dict[str, Any], Callable[[], Any]]]) -> tuple[dict[str, Any], Any]:
    """Return the arm whose best steady step is the shortest: it heats the device most."""
    rows = [row for row in run.rows(TABLE) if row.get("kind") == "steady" and row["model"] == "resnet50"]
    best = {arm: min(row["ms"] for row in rows if row["arm"] == arm) for arm in made}
    return made[min(best, key=lambda arm: best[arm])]


def _sustained(run: Run, facts: dict[str, Any], step: Callable[[], Any], seconds: float) -> None:
    """Take step after step for some seconds while the sampler reads: does the speed last?"""
    device, calls = facts["device"], []
    with sensors.Sampler(run, device, "sustained") as sampler:
        sampler.on()
        began, at = time.perf_counter(), results.now()
        while time.perf_counter() - began < seconds:
            calls.append(clock.timed(step, device))
        sampler.off()
    run.append(TABLE, facts | {"kind": "sustained", "calls_ms": calls, "began": at, "sampler": sampler.ready})
