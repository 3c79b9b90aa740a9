"""How fast is text written, token by token, on the CPU and on the device under study?

`measure(...)` runs in a child process (see isolate.call) and appends its rows to the run's records as it goes, so that
a crash loses nothing. Arms are interleaved inside one process; times are stamps of tokens that have reached the host.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

from rocmlab import isolate, model_bytes, models, sensors, timing
from rocmlab.prompts import PROMPTS, prompt_ids
from rocmlab.results import Run

SCHEMA = "rocmlab-generation-1"
STOP_RULE = "end token off, min = max new tokens, greedy"
COLD_TOKENS = 8
CLOCK = "perf_counter"


def arms_of(subject: dict[str, Any], subject_dtype: str, cpu_dtype: str) -> tuple[list[dict], list[dict]]:
    """Return (main arms, side arms): the CPU and, if there is one, the GPU; then each in the other usual dtypes.

    The side arms make "like for like" (one dtype on both) and "best against best" possible.
    """
    cpu = {"arm": "cpu", "device": "cpu", "dtype": cpu_dtype}
    if subject["device"] == "cpu":
        return [cpu], []
    gpu = {"arm": "gpu", "device": subject["device"], "dtype": subject_dtype}
    others = [{"arm": f"cpu_{dtype}", "device": "cpu", "dtype": dtype} for dtype in ("float32", "bfloat16")]
    others += [{"arm": f"gpu_{dtype}", "device": gpu["device"], "dtype": dtype} for dtype in ("float16", "float32")]
    return [cpu, gpu], [arm for arm in others if arm["dtype"] != (cpu if arm["device"] == "cpu" else gpu)["dtype"]]


def study(
    run: Run, model: str, main: list[dict], side: list[dict], *, processes: int, limit_s: float, **plan: Any
) -> list[dict[str, Any]]:
    """Run `measure` in several processes, one after the other; the first also measures the side arms.

    `plan` holds prompts, repeats, new_tokens, side_repeats, side_new_tokens. Returns and records one row a process,
    with how it ended; a process that crashes costs its own rest only.
    """
    rows = []
    for process in range(processes):
        given = run.where() | {"process": process}
        given |= {"model": model, "arms": main, "side_arms": side if process == 0 else [], **plan}
        outcome = isolate.call("rocmlab.generate:measure", given, limit_s=limit_s)
        rows.append(ended(run, f"generation {process}", outcome))
    return rows


def ended(run: Run, what: str, outcome: isolate.Outcome) -> dict[str, Any]:
    """Record how a child process ended, as a row of the table `processes`, and return that row."""
    return isolate.record(run, "processes", what, outcome)


def measure(
    run_dir: str,
    notebook: str,
    attempt: str,
    process: int,
    model: str,
    arms: list[dict[str, str]],
    prompts: list[str],
    repeats: int,
    new_tokens: int,
    side_arms: list[dict[str, str]] | None = None,
    side_repeats: int = 6,
    side_new_tokens: int = 32,
) -> dict[str, Any]:
    """Measure generations of one process; an arm is `{arm, device, dtype}`.

    Every arm is visited cold, then over all lengths that will occur, then steadily with the arms interleaved (the
    order is turned round at every block). `side_arms` are further dtypes, on the first prompt only. Returns the load
    at start.
    """
    run, before = Run(Path(run_dir), notebook, attempt), timing.load(arms[-1]["device"])
    header = {"process": process, "stop_rule": STOP_RULE, "clock": CLOCK, "evidence_grade": "D", "load": before}
    loaded = {arm["arm"]: models.load(model, arm["device"], arm["dtype"]) for arm in arms}
    ids = {name: prompt_ids(next(iter(loaded.values())), PROMPTS[name]) for name in prompts}
    for arm in arms:
        _visit(run, header, arm, loaded[arm["arm"]], ids, new_tokens)
    # Neither the order of the arms nor the place in time may go with a prompt: both turn with the process.
    block, turned = process, prompts[process % len(prompts) :] + prompts[: process % len(prompts)]
    for repeat in range(repeats):
        for prompt in turned:
            for arm in arms if block % 2 == 0 else arms[::-1]:
                marks = {"visit": "steady", "prompt_id": prompt, "repeat": repeat, "block": block, "kind": "main"}
                one = loaded[arm["arm"]]
                row = generation(one, arm["device"], ids[prompt], new_tokens)
                row["sensor"] = sensors.reading(arm["device"])  # no clock runs here
                run.append("generation", header | marks | arm | row)
            block += 1
    _measure_side(run, header, model, loaded, arms, side_arms or [], prompts[0], ids, side_repeats, side_new_tokens)
    return {"load": before}


def _visit(
    run: Run, header: dict, arm: dict, loaded: models.Loaded, ids: dict[str, list[int]], new_tokens: int
) -> None:
    """Generate once cold, once over every length that will occur, and prefill every prompt once.

    Some builds pay tens of milliseconds at the first visit of each length; the steady figure must not contain that.
    """
    shortest = min(ids, key=lambda name: len(ids[name]))
    longest = max(len(tokens) for tokens in ids.values())
    marks = {"prompt_id": shortest, "repeat": 0, "block": None, "kind": "main"}
    plan = (("cold", COLD_TOKENS), ("first", longest - len(ids[shortest]) + new_tokens))
    for visit, count in plan:
        row = generation(loaded, arm["device"], ids[shortest], count)
        run.append("generation", header | marks | {"visit": visit} | arm | row)
    for tokens in ids.values():
        generation(loaded, arm["device"], tokens, 2)


def _measure_side(
    run: Run,
    header: dict,
    model: str,
    loaded: dict[str, models.Loaded],
    arms: list[dict],
    side_arms: list[dict],
    prompt: str,
    ids: dict[str, list[int]],
    repeats: int,
    new_tokens: int,
) -> None:
    """Measure the further dtypes and, interleaved with them, the main arms again on the same short task."""
    if not side_arms:
        return
    every = arms + side_arms
    for arm in side_arms:
        loaded[arm["arm"]] = models.load(model, arm["device"], arm["dtype"])
    for arm in every:
        generation(loaded[arm["arm"]], arm["device"], ids[prompt], new_tokens)
    for repeat in range(repeats):
        for arm in every if repeat % 2 == 0 else every[::-1]:
            marks = {"visit": "steady", "prompt_id": prompt, "repeat": repeat, "block": repeat, "kind": "side"}
            row = generation(loaded[arm["arm"]], arm["device"], ids[prompt], new_tokens)
            run.append("generation", header | marks | arm | row)


def generation(loaded: models.Loaded, device: str, ids: list[int], new_tokens: int) -> dict[str, Any]:
    """Generate `new_tokens` greedily after `ids` (batch 1) with a stamp a token; returns a rocmlab-generation-1 record.

    Times are seconds from the call of generate(); each stamp is taken when the token's number is on the host.
    """
    import torch

    tokens = torch.tensor([ids], device=device)
    stamps = _stamps(device)
    timing.synchronise(device)
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
    before = timing.core()
    with timing.OtherWork() as others, torch.inference_mode():
        began = time.perf_counter()
        loaded.model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            generation_config=greedy(new_tokens),
            stopping_criteria=[stamps],
        )
        returned = time.perf_counter()
    cores = [before, timing.core()]
    seconds = [round(stamp - began, 7) for stamp in stamps.times]
    return {
        "schema": SCHEMA,
        "model": loaded.name,
        "model_spec": loaded.spec,
        "model_hash": loaded.model_hash,
        "batch": 1,
        "prompt_tokens": len(ids),
        "prompt_hash": hashlib.sha256(repr(ids).encode()).hexdigest()[:16],
        "max_new_tokens": new_tokens,
        "new_tokens": len(stamps.tokens),
        "stop": "length",
        "t_start_s": 0.0,
        "t_first_token_s": seconds[0],
        "t_end_s": seconds[-1],
        "t_return_s": round(returned - began, 7),
        "token_stamps_s": seconds,
        "token_ids": stamps.tokens,
        "synchronized": True,
        "attention": getattr(loaded.model.config, "_attn_implementation", None),
        "threads": torch.get_num_threads(),
        "weight_bytes": model_bytes.weight_bytes(loaded.model),
        "kv_bytes_a_position": model_bytes.kv_bytes_a_position(loaded.model),
        "others_cpu_pct": others.pct,
        "cores": cores,
        "peak_device_bytes": torch.cuda.max_memory_allocated(device) if device != "cpu" else None,
    }


def greedy(new_tokens: int) -> Any:
    """Return a configuration of our own: a model's may bring sampling and an end token, and both change the length.

    -1 is no token, so nothing ends the text; None would be filled in again from the model's own configuration.
    """
    from transformers import GenerationConfig

    return GenerationConfig(do_sample=False, max_new_tokens=new_tokens, eos_token_id=-1, pad_token_id=0)


def _stamps(device: str) -> Any:
    """Return a stopping criterion that never stops: it notes each token and the time at which it is on the host.

    generate() itself waits for the device at every token (it reads whether all is finished), so reading the token just
    before moves that wait and adds little.
    """
    import torch
    from transformers import StoppingCriteria

    class Stamps(StoppingCriteria):
        def __init__(self) -> None:
            self.times: list[float] = []
            self.tokens: list[int] = []
            self.going_on = torch.zeros(1, dtype=torch.bool, device=device)

        def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
            self.tokens.append(input_ids[0, -1].item())
            self.times.append(time.perf_counter())
            return self.going_on

    return Stamps()
