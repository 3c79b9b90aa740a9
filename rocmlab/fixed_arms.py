"""Steps whose tensors stay where they are, so that a device can replay them as a graph: transformers' own model with a
cache of fixed size, and the step written out (lean.py). Inside a worker.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from rocmlab import decode, lean, patches, timing
from rocmlab.arm import Arm, Subject, prompts

EVERY = 8  # a graph's tokens are read back once in this many steps
ROOM = 64  # steps that fit behind the context in a cache of fixed size
WARM_CALLS = 3


def static(subject: Subject, graph: bool = False, compiled: str = "", fused: bool = False, merged: bool = False) -> Arm:
    """Take steps of transformers' own model with a cache of fixed size, as they are, compiled, or replayed as a graph.

    What is replayed ends in the choice of the token and its place in the next step: nothing goes through the host.
    """
    import torch
    from transformers import StaticCache

    model = subject.model
    around = patches.changed(model, fused=fused, merged=merged) if fused or merged else contextlib.nullcontext
    name = next(iter(decode.empty(model)))
    cache = StaticCache(config=model.config, max_cache_len=lean.room_for(subject.context + ROOM))
    layers: list[Any] = list(cache.layers)
    ids, _ = decode.padded(prompts(subject), subject.device)
    with around():
        first = model(ids, use_cache=True, logits_to_keep=1, **{name: cache}).logits[:, -1].argmax(-1, keepdim=True)
    call = torch.compile(model, dynamic=False, mode=compiled) if compiled else model

    place = torch.full((1, 1), subject.context, device=ids.device)
    places = torch.arange(layers[0].max_cache_len, device=ids.device)

    def forward(token: Any) -> Any:
        # Mask and positions are given: making them is the model's business and may ask the host, which a graph cannot.
        seen = (places <= place)[None, None]
        kept = {name: cache, "attention_mask": seen, "position_ids": place}
        logits = call(token, use_cache=True, logits_to_keep=1, **kept).logits
        place.add_(1)
        return logits

    def back() -> None:
        place.fill_(subject.context)
        for one in layers:
            one.cumulative_length.fill_(subject.context)

    return fixed(subject, forward, first, back, graph, around)


def lean_step(subject: Subject, graph: bool = False, compiled: str = "") -> Arm:
    """Take steps of lean.Lean: the same weights, written out for the device."""
    model = subject.model
    logits, state = decode.prefill(model, *decode.padded(prompts(subject), subject.device))
    decode.choose(state, logits)
    own = lean.Lean(model, 1, subject.context + ROOM, compiled)
    own.fill(next(iter(state.past.values())))
    return fixed(subject, own.logits, state.token, lambda: own.at.fill_(subject.context), graph)


def fixed(
    subject: Subject, forward: Callable[[Any], Any], first: Any, back: Callable[[], Any], graph: bool,
    around: Callable[[], Any] = contextlib.nullcontext,
) -> Arm:  # fmt: skip
    """Make an arm of a step whose tensors stay where they are; `back()` puts its position back to the start."""
    import torch

    token, found = first.clone(), {}
    written = torch.zeros(1, ROOM, dtype=torch.long, device=token.device)
    at = torch.zeros(1, dtype=torch.long, device=token.device)

    def step() -> None:
        found["logits"] = forward(token)
        token.copy_(found["logits"][:, -1].argmax(-1, keepdim=True))
        written.index_copy_(1, at, token)
        at.add_(1)

    def rewind(count: int = 0) -> None:
        back()
        at.zero_()
        token.copy_(first)

    began = time.perf_counter()
    with around():
        for _ in range(WARM_CALLS):  # also what is compiled, planned or allocated at the first call
            step()
        timing.synchronise(subject.device)
        warm_s = time.perf_counter() - began
        rewind()
        take = _captured(step, rewind) if graph else step

    def run(count: int) -> None:
        for number in range(count):
            take()
            if not graph or (number + 1) % EVERY == 0 or number + 1 == count:
                written[:, : number + 1].tolist()

    def force(tokens: list[int]) -> Any:
        kept = []
        for one in tokens:
            token.fill_(one)
            take()
            kept.append(found["logits"][0, -1].float().cpu())
        rewind()
        return torch.stack(kept)

    return Arm(run, rewind, around, force, facts={"compile_s": round(warm_s, 2)})


def _captured(step: Callable[[], None], rewind: Callable[[], None]) -> Callable[[], None]:
    """Capture a warm step as a graph; return what replays it."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    rewind()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    rewind()

    def replay(kept: Callable[[], None] = step) -> None:
        """Replay it. A graph holds addresses only, so the step is kept, and with it all that it reads."""
        graph.replay()

    return replay
