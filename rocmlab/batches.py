"""How does a decode step change with the batch? Measured in child processes for notebook 05.

`study(run, ...)` hands a list of items (context x batch) to `measure`; an item that ends the process (killed, crashed,
hung) becomes a row, and a fresh process goes on behind it. Out of memory is a row as well, never the end.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmlab import decode, isolate, lengths, model_bytes, models, sensors, timing
from rocmlab.results import Run

SCHEMA = "rocmlab-batch-sweep-1"
CPU_FREE_SHARE = 0.5  # of the machine's free memory that a batch on the CPU may take: beyond, the system kills programs
PADDED = (1.0, 0.75, 0.5, 0.25)  # lengths of neighbouring rows in the padded batch, as shares of the context
NO_TIME, ENDED = "no time", "the process ended"  # how the errors of items begin that were never finished
COPIES = 2  # of the cache while it grows by one position: the old one and the new one


def items(batches: list[int], contexts: list[int]) -> list[dict[str, Any]]:
    """Return what is measured, small first: every batch (and batch 1) at every context, and one padded one at each."""
    found, wanted = [], sorted({1, *batches})
    for context in contexts:
        found += [{"context": context, "batch": batch, "padded": False} for batch in wanted]
        middle = wanted[len(wanted) // 2]
        found.append({"context": context, "batch": middle, "padded": True})
    return [one for one in found if not (one["padded"] and one["batch"] == 1)]


def study(
    run: Run, model: str, arm: dict[str, str], plan: list[dict[str, Any]], *, steps: int, passes: int, limit_s: float,
    **facts: Any,
) -> list[dict[str, Any]]:  # fmt: skip
    """Measure every item, in as many processes as it takes; return how each process ended.

    `facts` (arch, peak_gb_s) are written into every row. `limit_s` bounds all of it.
    """
    ended: list[dict[str, Any]] = []
    left, deadline = list(plan), time.monotonic() + limit_s
    while left and deadline - time.monotonic() > 1:
        given = run.where() | {"process": len(ended)}
        given |= {"model": model, "arm": arm, "plan": left, "steps": steps, "passes": passes, "facts": facts}
        outcome = isolate.call("rocmlab.batches:measure", given, limit_s=deadline - time.monotonic())
        ended.append(isolate.record(run, "batches_ended", f"batches, process {len(ended)}", outcome))
        done = sum(row.get("kind") == "done" and row["process"] == len(ended) - 1 for row in run.rows("batches"))
        if done == 0 and outcome.status == "ERROR":
            return ended  # the model cannot be loaded, or the program is wrong: the next process would end the same way
        left = left[done:]
        if not left or outcome.status == "OK":
            return ended
        if outcome.status != "TIMEOUT":
            left = _behind(run, left, outcome.words, facts)
    for item in left:
        run.append("batches", _lost(item, f"{NO_TIME}: the limit of {limit_s:g} s was reached", facts))
    return ended


def _behind(run: Run, left: list[dict[str, Any]], words: str, facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Record the item that ended its process and those as large that are not tried after it; return the others."""
    kept = without_larger(left[1:], left[0])
    run.append("batches", _lost(left[0], f"{ENDED}: {words}", facts))
    for item in left[1:]:
        if item not in kept:
            run.append("batches", _lost(item, f"not tried: batch {left[0]['batch']} ended its process", facts))
    return kept


def _lost(item: dict[str, Any], error: str, facts: dict[str, Any]) -> dict[str, Any]:
    return {"schema": SCHEMA, "kind": "item", **item, **facts, "error": error}


def without_larger(left: list[dict[str, Any]], failed: dict[str, Any]) -> list[dict[str, Any]]:
    """Drop what is larger than an item that failed: as many rows or more at the same context or a longer one."""
    return [one for one in left if one["context"] < failed["context"] or one["batch"] < failed["batch"]]


def measure(
    run_dir: str, notebook: str, attempt: str, process: int, model: str, arm: dict[str, str],
    plan: list[dict[str, Any]], steps: int, passes: int, facts: dict[str, Any],
) -> None:  # fmt: skip
    """Measure items in their order; each pass is a row, and a row of kind `done` closes each item."""
    timing.use(arm["device"])
    run, loaded = Run(Path(run_dir), notebook, attempt), models.load(model, arm["device"], arm["dtype"])
    head = lengths.header(loaded, arm, process) | facts | {"schema": SCHEMA, "new_tokens_each": steps}
    failed: list[dict[str, Any]] = []
    decode.write(loaded.model, arm["device"], decode.random_prompts(99, [lengths.COLD_LENGTH]), lengths.COLD_TOKENS)
    for item in plan:
        mark = head | {"kind": "item"} | item | {"prompt_tokens": item["context"]}
        smaller = next((one for one in failed if not without_larger([item], one)), None)
        if smaller:
            run.append("batches", mark | {"error": f"not tried: batch {smaller['batch']} did not fit before"})
        elif not _item(run, mark, loaded, item, steps, passes):
            failed.append(item)
            timing.release(arm["device"])
        run.append("batches", {"kind": "done", "process": process, **item})


def _item(run: Run, mark: dict[str, Any], loaded: models.Loaded, item: dict[str, Any], steps: int, passes: int) -> bool:
    """Measure one batch; return False after recording that it does not fit into memory."""
    short = _too_large(loaded, item, steps) if mark["device"] == "cpu" else None
    if short:
        run.append("batches", mark | short)
        return False
    try:
        _passes(run, mark, loaded, item, steps, passes)
    except RuntimeError as error:
        if not decode.is_out_of_memory(error):
            raise
        memory = decode.memory_state(mark["device"], error)
        run.append("batches", mark | {"error": f"out of memory: {error}"[:1000], "memory": memory})
        return False
    return True


def prompts_of(item: dict[str, Any], vocabulary: int) -> list[list[int]]:
    """Return the prompts of an item: all as long as the context, or of unequal lengths in the padded one."""
    shares = PADDED if item["padded"] else (1.0,)
    lengths_ = [max(1, int(item["context"] * shares[row % len(shares)])) for row in range(item["batch"])]
    return decode.random_prompts(vocabulary, lengths_, seed=item["context"])


def _passes(
    run: Run, mark: dict[str, Any], loaded: models.Loaded, item: dict[str, Any], steps: int, passes: int
) -> None:
    """Take the same steps again and again, in turns with one text alone (the anchor), whatever state the machine is in.

    The first pass visits each length for the first time and stands apart.
    """
    import torch

    device, model, vocabulary = mark["device"], loaded.model, loaded.model.config.vocab_size
    if device != "cpu":
        torch.cuda.reset_peak_memory_stats(device)
    with torch.inference_mode(), timing.OtherWork() as others:
        batch = _filled(model, prompts_of(item, vocabulary), device)
        run.append("batches", mark | batch.facts | {"pass": 0, "visit": "first"} | _steps(model, batch, device, steps))
        arms = [(mark | batch.facts, batch)]
        if item["batch"] > 1:
            alone = _filled(model, prompts_of(item | {"batch": 1, "padded": False}, vocabulary), device)
            _steps(model, alone, device, steps)
            beside = {"beside": item["batch"], "beside_padded": item["padded"], "batch": 1, "padded": False}
            arms.append((mark | alone.facts | {"kind": "anchor"} | beside, alone))
        for number in range(1, passes + 1):
            for row, one in arms if number % 2 else arms[::-1]:
                timed = _steps(model, one, device, steps)
                sensor = sensors.reading(device)  # no clock runs here
                run.append("batches", row | {"pass": number, "visit": "steady", "sensor": sensor} | timed)
    peak = torch.cuda.max_memory_allocated(device) if device != "cpu" else None
    run.append("batches", mark | {"kind": "conditions", "others_cpu_pct": others.pct, "peak_device_bytes": peak})


@dataclass
class Batch:
    """A batch after its prefill: the state and its first token to come back to, and facts for its rows."""

    state: decode.State
    first: Any
    facts: dict[str, Any]


def _filled(model: Any, prompts: list[list[int]], device: str) -> Batch:
    ids, mask = decode.padded(prompts, device)
    timing.synchronise(device)
    began = time.perf_counter()
    logits, state = decode.prefill(model, ids, mask)
    timing.synchronise(device)
    facts = {"prefill_ms": 1000 * (time.perf_counter() - began), "real_prompt_tokens": sum(map(len, prompts))}
    decode.choose(state, logits)
    return Batch(state, state.token, facts)


def _steps(model: Any, batch: Batch, device: str, steps: int) -> dict[str, Any]:
    """Take steps with a stamp each and go back; return the time of each in ms."""
    timing.synchronise(device)
    stamps = [time.perf_counter(), *decode.steps(model, batch.state, steps)]
    decode.back(batch.state, steps)
    batch.state.token = batch.first
    each = [1000 * (late - early) for early, late in itertools.pairwise(stamps)]
    return {"step_ms": each, "decode_step_ms": sum(each) / steps}


def _too_large(loaded: models.Loaded, item: dict[str, Any], steps: int) -> dict[str, Any] | None:
    """Return the error of a batch that would take over half of the machine's free memory; there the system would not
    refuse, it would kill programs."""
    free = timing.load()["memory_free_bytes"]
    positions = item["batch"] * (item["context"] + steps)
    need = COPIES * model_bytes.kv_bytes_a_position(loaded.model) * positions
    need += 4 * item["batch"] * loaded.model.config.vocab_size + 40 * positions * loaded.model.config.hidden_size
    if need <= CPU_FREE_SHARE * free:
        return None
    memory = {"asked_gib": need / 2**30, "free_gib": free / 2**30}
    return {"error": "out of memory: not tried, it would take over half of the free memory", "memory": memory}
