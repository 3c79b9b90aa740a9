"""A model ready to take the same decode steps again and again, and the ways to time them.

Every way starts with an idle device, takes its steps from the same place in the text and goes back to it. Times are ms
a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rocmlab import decode, timing


@dataclass
class Rig:
    """A model after its prefill of `context` tokens a row: the state and the first tokens to come back to."""

    model: Any
    device: str
    context: int
    state: decode.State
    first: Any
    rows: int = 1


def ready(model: Any, device: str, context: int, rows: int = 1) -> Rig:
    """Prefill `context` random tokens a row; inside torch.inference_mode()."""
    prompts = decode.random_prompts(model.config.vocab_size, [context] * rows, seed=context)
    logits, state = decode.prefill(model, *decode.padded(prompts, device))
    decode.choose(state, logits)
    return Rig(model, device, context, state, state.token, rows)


def back(rig: Rig, count: int) -> None:
    decode.back(rig.state, count)
    rig.state.token = rig.first


def stamped(rig: Rig, count: int, now: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Take steps with each token on the host: ms, and its parts forward_ms, choose_ms (with the stop rule), read_ms.

    `now` is the clock, in seconds.
    """
    spent = [0.0, 0.0, 0.0]
    timing.synchronise(rig.device)
    for _ in range(count):
        began = now()
        logits = decode.forward(rig.model, rig.state)
        forward = now()
        decode.choose(rig.state, logits)
        chosen = now()
        decode.ended([decode.on_host(rig.state)], None)
        done = now()
        for place, part in enumerate((forward - began, chosen - forward, done - chosen)):
            spent[place] += part
    back(rig, count)
    forward_ms, choose_ms, read_ms = (1000 * part / count for part in spent)
    whole = forward_ms + choose_ms + read_ms
    return {"ms": whole, "forward_ms": forward_ms, "choose_ms": choose_ms, "read_ms": read_ms}


def queued(rig: Rig, count: int) -> dict[str, float]:
    """Queue steps without waiting: ms until all are done, enqueue_ms until all are queued. A full queue makes queueing
    as slow as the device; one step from an empty queue tells what queueing costs."""
    timing.synchronise(rig.device)
    began = time.perf_counter()
    for _ in range(count):
        step(rig)
    filled = time.perf_counter()
    timing.synchronise(rig.device)
    done = time.perf_counter()
    back(rig, count)
    return {"ms": 1000 * (done - began) / count, "enqueue_ms": 1000 * (filled - began) / count}


def step(rig: Rig) -> None:
    """Take one step; its token stays on the device."""
    decode.choose(rig.state, decode.forward(rig.model, rig.state))
