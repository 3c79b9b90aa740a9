"""How long are prefill and one decoded token, by the length of the prompt? Measured in child processes for notebook 04.

`study(run, ...)` runs `measure` in one process after the other; rows go to the tables `lengths` (one line a generation)
and `stamps` (what a stamp costs) as soon as they exist.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rocmlab import clock, decode, generate, isolate, model_bytes, models, sensors, timing
from rocmlab.results import Run

COLD_LENGTH, COLD_TOKENS = 5, 3  # of the very first call: no length that is measured later
DEVICE_BOUND = 1.5  # the injected device work of a step, as a multiple of the step


def study(
    run: Run, model: str, arm: dict[str, str], *, lengths: list[int], more_processes: int, limit_s: float, **plan: int
) -> list[dict[str, Any]]:
    """Measure every length in a first process, and the shortest again in further ones; return how each ended.

    `plan` holds tokens (of each text), visits (steady ones of each length) and stamp_steps.
    """
    rows = []
    for process in range(1 + more_processes):
        chosen = sorted(lengths) if process == 0 else [min(lengths)]
        given = run.where() | {"process": process}
        given |= {"model": model, "arm": arm, "lengths": chosen, **plan}
        outcome = isolate.call("rocmlab.lengths:measure", given, limit_s=limit_s)
        rows.append(isolate.record(run, "lengths_ended", f"lengths, process {process}", outcome))
    return rows


def header(loaded: models.Loaded, arm: dict[str, str], process: int) -> dict[str, Any]:
    """Return what every row of a process repeats: model, device, rules, and the load before anything was timed."""
    import torch

    return {
        **arm,
        "model": loaded.name,
        "model_spec": loaded.spec,
        "model_hash": loaded.model_hash,
        "weight_bytes": model_bytes.weight_bytes(loaded.model),
        "kv_bytes_a_position": model_bytes.kv_bytes_a_position(loaded.model),
        "attention": getattr(loaded.model.config, "_attn_implementation", None),
        "threads": torch.get_num_threads(),
        "process": process,
        "stop_rule": decode.STOP_RULE,
        "clock": decode.CLOCK,
        "evidence_grade": "D",
        "load": timing.load(),
    }


def measure(
    run_dir: str, notebook: str, attempt: str, process: int, model: str, arm: dict[str, str], lengths: list[int],
    tokens: int, visits: int, stamp_steps: int,
) -> None:  # fmt: skip
    """Measure one process: the very first call, first and second visit of each length, then steady rounds over all.

    The first process also compares with generate() and measures what a stamp costs, both at the shortest length.
    """
    timing.use(arm["device"])
    run = Run(Path(run_dir), notebook, attempt)
    run.append("lengths", {**arm, "kind": "before", "process": process, "sensor": sensors.reading(arm["device"])})
    loaded = models.load(model, arm["device"], arm["dtype"])
    head, vocabulary = header(loaded, arm, process), loaded.model.config.vocab_size
    cold = decode.random_prompts(vocabulary, [COLD_LENGTH])[0]
    _visit(run, head, loaded, cold, COLD_TOKENS, visit="cold", block=None)
    prompts = {length: decode.random_prompts(vocabulary, [length], seed=length)[0] for length in lengths}
    for length, prompt in list(prompts.items()):
        fits = [_visit(run, head, loaded, prompt, tokens, visit=visit, block=None) for visit in ("first", "second")]
        if not all(fits):
            del prompts[length]
    with timing.OtherWork() as others:
        for block in range(visits):
            for length in list(prompts) if block % 2 == 0 else list(prompts)[::-1]:
                _visit(run, head, loaded, prompts[length], tokens, visit="steady", block=block)
    run.append("lengths", head | {"kind": "conditions", "others_cpu_pct": others.pct, "core": timing.core()})
    if process == 0 and prompts:
        shortest = prompts[min(prompts)]
        _beside_generate(run, head, loaded, shortest, tokens, visits)
        _stamp_cost(run, head, loaded, shortest, stamp_steps, visits)


def _visit(run: Run, head: dict[str, Any], loaded: models.Loaded, prompt: list[int], tokens: int, **marks: Any) -> bool:
    """Write one text and record it; a length that does not fit into memory becomes a row that says why."""
    row = head | {"kind": "hand", "length": len(prompt), **marks}
    try:
        row |= decode.write(loaded.model, head["device"], [prompt], tokens)
        row["sensor"] = sensors.reading(head["device"])  # no clock runs here
    except RuntimeError as error:
        if not decode.is_out_of_memory(error):
            raise
        row |= {"error": str(error)[:1000], "memory": decode.memory_state(head["device"], error)}
    run.append("lengths", row)
    if "error" in row:
        timing.release(head["device"])
    return "error" not in row


def _beside_generate(
    run: Run, head: dict[str, Any], loaded: models.Loaded, prompt: list[int], tokens: int, blocks: int
) -> None:
    """Write the same text by hand and by generate() in turns; the order is turned round at every block."""
    device = head["device"]
    ways = {
        "by_hand": lambda: decode.write(loaded.model, device, [prompt], tokens),
        "generate": lambda: generate.generation(loaded, device, prompt, tokens),
    }
    for way in ways.values():
        way()
    for block in range(blocks):
        for kind in list(ways) if block % 2 == 0 else list(ways)[::-1]:
            marks = {"kind": kind, "length": len(prompt), "visit": "steady", "block": block}
            run.append("lengths", ways[kind]() | head | marks)


# ---- what a stamp costs


def _stamp_cost(
    run: Run, head: dict[str, Any], loaded: models.Loaded, prompt: list[int], count: int, blocks: int
) -> None:
    """Take the same steps with a stamp each and with one wait at the end, in turns: as the model is, and with so much
    device work injected into each step that the device is what binds."""
    import torch

    device = head["device"]
    with torch.inference_mode():
        logits, state = decode.prefill(loaded.model, *decode.padded([prompt], device))
        decode.choose(state, logits)
        usual = min(_block(loaded, state, device, count, None, False)["ms"] for _ in range(2)) / count
        cases: dict[str, Any] = {"as_it_is": (None, 0.0)}
        if device != "cpu":
            cases["device_bound"] = device_work(device, DEVICE_BOUND * usual)
        for case, (work, injected_ms) in cases.items():
            for block in range(blocks):
                for stamp in (True, False) if block % 2 == 0 else (False, True):
                    found = _block(loaded, state, device, count, work, stamp)
                    marks = {"case": case, "block": block, "stamped": stamp, "steps": count, "injected_ms": injected_ms}
                    run.append("stamps", head | marks | {"length": len(prompt)} | found)


def _block(
    loaded: models.Loaded, state: decode.State, device: str, count: int, work: Any, stamp: bool
) -> dict[str, float]:
    """Take `count` steps and go back; return their wall time and the time until the first was queued, in ms.

    Only the first step finds an empty queue: a full one makes queueing as slow as the device.
    """
    token = state.token
    timing.synchronise(device)
    began = time.perf_counter()
    queued = decode.steps(loaded.model, state, count, work, stamp)[0]
    timing.synchronise(device)
    done = time.perf_counter()
    decode.back(state, count)
    state.token = token
    return {"ms": 1000 * (done - began), "first_queued_ms": 1000 * (queued - began)}


def device_work(device: str, wanted_ms: float) -> tuple[Any, float]:
    """Return (work, its time in ms): matrix products that take the device about as long as wanted."""
    import torch

    square = torch.randn(2048, 2048, device=torch.device(device))
    once = min(clock.warm(lambda: [square @ square for _ in range(4)], device)) / 4
    count = max(1, round(wanted_ms / once))

    def work() -> None:
        for _ in range(count):
            torch.mm(square, square)

    return work, clock.timed(work, device)
