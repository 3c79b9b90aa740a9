"""How fast are ResNet-50 training, BERT-base inference and a VGG16 forward pass here? Measured for notebook 10.

`study(...)` asks one worker process network by network; every row goes to the table `vision` as soon as it exists:
`first` (the very first step of a shape, memory, a check against float64), `steady` (single steps, all arms in turns),
`queued` (several steps, one wait at the end), `sustained` (the same step for seconds, under the sensors).
An arm is a dtype, and for convolutions a memory layout: "float16", "float16 channels_last".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rocmlab import clock, decode, isolate, networks, results, sensors, timing
from rocmlab.results import Run
from rocmlab.worker import Worker

TABLE = "vision"
LEARNING_RATE, MOMENTUM = 0.01, 0.9
# GradScaler begins at 65,536, which a fresh network may overflow: it would skip steps while they are timed.
FIRST_SCALE = 1024.0
QUEUED_BLOCKS, QUEUED_STEPS = 6, 3
SLOW_STEP_S = 2.0  # a CPU step above this is warm enough after its first run


@dataclass(frozen=True)
class Plan:
    """What is asked of each network; sizes in pixels and tokens, `check_` for the comparison with float64."""

    batch: int
    image: int
    length: int
    size: str
    rounds: int
    check_batch: int
    check_image: int
    sustained_s: float


def study(
    run: Run, device: str, models: list[str], arms: list[str], plan: dict[str, Any], *, limit_s: float
) -> list[dict[str, Any]]:
    """Measure the networks one after the other in one worker; return how each ended.

    A crash or a hang costs the arm that was being measured: a fresh worker goes on with the others.
    """
    ended = []
    with Worker() as keeper:
        for model in models:
            left = [arm for arm in arms if model in networks.CONVOLUTIONS or "channels_last" not in arm]
            while left:
                given = {"run_dir": str(run.path), "notebook": run.notebook, "attempt": run.attempt, "device": device}
                given |= {"model": model, "arms": left, "plan": plan}
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
    run_dir: str, notebook: str, attempt: str, device: str, model: str, arms: list[str], plan: dict[str, Any]
) -> None:
    """Measure one network in all arms: first runs one by one, then steady rounds over all arms that work."""
    timing.use(device)
    exact()
    run, asked, load = Run(Path(run_dir), notebook, attempt), Plan(**plan), timing.load(device)
    head = {"device": device, "model": model, "work": networks.WORK[model], "image_px": asked.image}
    head |= {"length_tokens": asked.length if model == "bert_base" else None, "size": asked.size, "load": load}
    head |= {"clock": decode.CLOCK, "evidence_grade": "D", "tf32": False}
    network = networks.build(model, asked.size)
    right = answers(model, network, "cpu", split("float64"), asked)
    made: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {}
    for arm in arms:
        run.append(TABLE, head | {"kind": "begun", "arm": arm})
        row, step = first_runs(head | split(arm), model, network, asked, right)
        run.append(TABLE, row)
        if step is not None:
            made[arm] = ({key: row[key] for key in (*head, "arm", "dtype", "layout", "batch")}, step)
    if made:
        _steady(run, made, asked)
        if model == "resnet50" and asked.sustained_s > 0:
            _sustained(run, *_fastest(run, made), asked.sustained_s)
    made.clear()
    timing.release(device)


def exact() -> None:
    """Keep float32 float32: TF32, which cuDNN would use by default, has float16's precision and a name of its own."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False


def split(arm: str) -> dict[str, str]:
    """Return {arm, dtype, layout} of "float16" or "float16 channels_last"."""
    dtype, _, layout = arm.partition(" ")
    return {"arm": arm, "dtype": dtype, "layout": layout or "contiguous"}


# ---- one step


def stepper(model: str, network: Any, batch: int, device: str, arm: dict[str, Any], plan: Plan) -> Callable[[], Any]:
    """Return a function that does one step on a copy of the network and returns the loss, or the output.

    Training: forward, loss, backward, SGD; 16 bit by autocast, float16 with GradScaler. Inference: weights in the dtype.
    """
    import copy

    import torch

    mine = copy.deepcopy(network).to(torch.device(device))
    given = networks.inputs(model, batch, plan.image, plan.length).to(torch.device(device))
    if arm["layout"] == "channels_last":
        mine = mine.to(memory_format=torch.channels_last)
        given = given.contiguous(memory_format=torch.channels_last)
    if networks.WORK[model] == "training":
        return _trainer(model, mine.train(), given, networks.targets(batch).to(given.device), arm["dtype"])
    dtype = getattr(torch, arm["dtype"])
    mine = mine.eval().to(dtype)
    given = given.to(dtype) if given.is_floating_point() else given

    def step() -> Any:
        with torch.inference_mode():
            return networks.output(model, mine, given)

    return step


def _trainer(model: str, network: Any, given: Any, wanted: Any, dtype: str) -> Callable[[], Any]:
    import torch

    kind, narrow = given.device.type, dtype in ("float16", "bfloat16")
    network, given = (network, given) if narrow else (network.to(getattr(torch, dtype)), given.to(getattr(torch, dtype)))
    optimiser = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    scaled = dtype == "float16" and kind == "cuda"
    scaler = torch.amp.GradScaler(kind, init_scale=FIRST_SCALE, enabled=scaled)  # type: ignore[attr-defined]

    def step() -> Any:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(kind, dtype=getattr(torch, dtype) if narrow else None, enabled=narrow):
            found = networks.output(model, network, given)
            loss = torch.nn.functional.cross_entropy(found, wanted)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss.detach()

    return step


# ---- first runs, memory, right or wrong


def first_runs(
    head: dict[str, Any], model: str, network: Any, plan: Plan, right: dict[str, Any]
) -> tuple[dict[str, Any], Callable[[], Any] | None]:
    """Run an arm for the first time, with half the batch each time it does not fit; return its row and its step.

    The row holds first_ms and second_ms (a library may search for minutes at the first), peak memory, the batches that
    did not fit, and the check. The step is None where no batch fits or the arm fails.
    """
    device, tried, batch = head["device"], [], plan.batch
    row = head | {"kind": "first", "asked_batch": plan.batch}
    while batch >= 1:
        try:
            found, step = _first_two(model, network, batch, head, plan)
            row |= found | {"batch": batch, "stepped_down": tried}
            row |= networks.work(model, plan.size, batch, plan.image, plan.length)
            checked = {"batch": plan.check_batch, "image_px": plan.check_image}
            return row | {"check": checked | check(answers(model, network, device, head, plan), right)}, step
        except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
            timing.release(device)
            if not decode.is_out_of_memory(error):
                return row | {"kind": "failed", "batch": batch, "error": f"{type(error).__name__}: {error}"[:1000]}, None
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


def answers(model: str, network: Any, device: str, arm: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """Return what an arm computes on a small batch, as float64 tensors on the CPU: {output}, or {loss, gradient}.

    The loss is that of a training step. The gradient is taken with fixed statistics of the batch norms: with those of a
    small batch a fresh network is so ill-conditioned that even float32 gradients come out 2% apart.
    """
    import torch

    small = replace(plan, image=plan.check_image)
    found = stepper(model, network, plan.check_batch, device, arm, small)()
    if networks.WORK[model] != "training":
        return {"output": found.to("cpu", torch.float64)}
    return {"loss": found.to("cpu", torch.float64), "gradient": _gradient(model, network, device, arm, small)}


def _gradient(model: str, network: Any, device: str, arm: dict[str, Any], plan: Plan) -> Any:
    import copy

    import torch

    narrow = arm["dtype"] in ("float16", "bfloat16")
    dtype = torch.float32 if narrow else getattr(torch, arm["dtype"])
    mine = copy.deepcopy(network).eval().to(device=device, dtype=dtype)
    given = networks.inputs(model, plan.check_batch, plan.image, plan.length).to(device, dtype)
    if arm["layout"] == "channels_last":
        mine = mine.to(memory_format=torch.channels_last)
        given = given.contiguous(memory_format=torch.channels_last)
    scale = FIRST_SCALE if arm["dtype"] == "float16" else 1.0
    with torch.autocast(given.device.type, dtype=getattr(torch, arm["dtype"]) if narrow else None, enabled=narrow):
        found = networks.output(model, mine, given)
        loss = torch.nn.functional.cross_entropy(found, networks.targets(plan.check_batch).to(device))
    (scale * loss).backward()
    return torch.cat([one.grad.to("cpu", torch.float64).flatten() for one in mine.parameters()]) / scale


def check(got: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Compare answers with those in float64: {<what>_error} relative to the norm, and whether all is finite."""
    import torch

    row: dict[str, Any] = {"finite": all(bool(torch.isfinite(one).all()) for one in got.values())}
    for name, one in got.items():
        row[f"{name}_error"] = float(torch.linalg.vector_norm(one - right[name]) / torch.linalg.vector_norm(right[name]))
    return row | ({"loss": float(got["loss"]), "loss_float64": float(right["loss"])} if "loss" in got else {})


# ---- steady


def _steady(run: Run, made: dict[str, tuple[dict[str, Any], Callable[[], Any]]], plan: Plan) -> None:
    """Time single steps of all arms in turns, then on a GPU blocks of queued steps; the sensors are read in between."""
    arms = list(made.values())
    device = arms[0][0]["device"]
    with timing.OtherWork() as others:
        for block in range(plan.rounds):
            for facts, step in arms if block % 2 == 0 else arms[::-1]:
                ms = clock.timed(step, device)
                run.append(TABLE, facts | {"kind": "steady", "block": block, "ms": ms, "sensor": sensors.reading(device)})
        for block in range(QUEUED_BLOCKS if device != "cpu" else 0):
            for facts, step in arms if block % 2 == 0 else arms[::-1]:
                ms = clock.timed(lambda step=step: [step() for _ in range(QUEUED_STEPS)], device) / QUEUED_STEPS
                run.append(TABLE, facts | {"kind": "queued", "block": block, "ms": ms, "steps": QUEUED_STEPS})
    facts = {key: arms[0][0][key] for key in ("device", "model", "load")}
    run.append(TABLE, facts | {"kind": "conditions", "others_cpu_pct": others.pct})


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
