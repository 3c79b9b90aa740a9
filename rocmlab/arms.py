"""How each arm of an experiment takes its decode steps: the loop as it is, and the loop with one thing changed.

`make(subject, name, given)` returns an Arm. `run(n)` takes n steps, `rewind(n)` goes back, `around()` is entered before
the clock starts, so that both arms share one model and can take turns. Inside a worker.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from rocmlab import decode, generate, lean, models, patches, timing

CONTEXT = 64
EVERY = 8  # a graph's tokens are read back once in this many steps
ROOM = 64  # steps that fit behind the context in a cache of fixed size
WARM_CALLS = 3


@dataclass
class Subject:
    """What is under study: the loaded model, device and dtype, and the context of a usual step."""

    loaded: models.Loaded
    device: str
    dtype: str
    context: int = CONTEXT

    @property
    def model(self) -> Any:
        return self.loaded.model


@dataclass
class Arm:
    """One way to take steps. `run` may return its own ms a step; `force(tokens)` returns logits (n, vocabulary) of a
    text it is made to follow; `tokens` a step and sequence may be more than one."""

    run: Callable[[int], float | None]
    rewind: Callable[[int], None] = lambda count: None
    around: Callable[[], Any] = contextlib.nullcontext
    force: Callable[[list[int]], Any] | None = None
    tokens: float = 1.0
    facts: dict[str, Any] = field(default_factory=dict)


def make(subject: Subject, name: str, given: dict[str, Any]) -> Arm:
    """Return the arm of this name (a function below)."""
    return _MAKERS[name](subject, **given)


def prompts(subject: Subject, rows: int = 1, context: int | None = None) -> list[list[int]]:
    """Return seeded random prompts of one length."""
    vocabulary = subject.model.config.vocab_size
    return decode.random_prompts(vocabulary, [context or subject.context] * rows, seed=1)


# ---- the usual loop


def eager(
    subject: Subject, rows: int = 1, context: int | None = None, model: Any = None,
    around: Callable[[], Any] = contextlib.nullcontext,
) -> Arm:  # fmt: skip
    """Take steps by the hand-written loop, every token brought to the host."""
    model = model or subject.model
    with around():
        logits, state = decode.prefill(model, *decode.padded(prompts(subject, rows, context), subject.device))
    decode.choose(state, logits)
    first = state.token

    def rewind(count: int) -> None:
        decode.back(state, count)
        state.token = first

    def run(count: int) -> None:
        decode.steps(model, state, count)

    return Arm(run, rewind, around, functools.partial(_follow, model, state, first), facts={"rows": rows})


def _follow(model: Any, state: decode.State, first: Any, tokens: list[int]) -> Any:
    import torch

    found = []
    for token in tokens:
        state.token = torch.full_like(first, token)
        found.append(decode.forward(model, state)[0, -1].float().cpu())
    decode.back(state, len(tokens))
    state.token = first
    return torch.stack(found)


def depth(subject: Subject, share: float) -> Arm:
    """Leave out the upper layers."""
    return eager(subject, around=functools.partial(patches.shallow, subject.model, share))


def width(subject: Subject, times: int) -> Arm:
    """Take the steps of a twin of another width: a public model of that shape where there is one, else the same layers
    `times` as wide (0: so narrow that nothing is left but the host's work)."""
    spec = patches.wider(subject.loaded, times)
    other = models.load(spec, subject.device, subject.dtype)
    arm = eager(subject, model=other.model)
    facts = {"spec": spec, "shape": patches.shape_facts(other.model)}
    return Arm(arm.run, arm.rewind, arm.around, facts=facts)


def dtype(subject: Subject, dtype: str) -> Arm:
    """Take the steps with the weights in another dtype."""
    return eager(subject, model=models.load(subject.loaded.spec, subject.device, dtype).model)


def attention(subject: Subject, backend: str) -> Arm:
    """Force one path of scaled_dot_product_attention."""
    return eager(subject, around=functools.partial(patches.attention, backend))


def patched(subject: Subject, **what: bool) -> Arm:
    """Change modules of the model while the clock runs; see patches.changed."""
    return eager(subject, around=patches.changed(subject.model, **what))


def host_delay(subject: Subject, dose: float) -> Arm:
    """Let the host spin `dose` microseconds after each layer."""

    def spin(*_: Any) -> None:
        end = time.perf_counter() + dose / 1e6
        while time.perf_counter() < end:
            pass

    return eager(subject, around=functools.partial(patches.hooked, subject.model, spin))


def device_delay(subject: Subject, dose: float) -> Arm:
    """Let the device spin `dose` microseconds after each layer."""
    import torch

    cycles = max(1, round(dose * patches.cycles_a_us(subject.device)))
    spin = functools.partial(torch.cuda._sleep, cycles)
    arm = eager(subject, around=functools.partial(patches.hooked, subject.model, lambda *_: spin()))
    arm.facts["cycles"] = cycles
    return arm


def one_core(subject: Subject) -> Arm:
    """Keep the process on one core."""
    return eager(subject, around=patches.one_core)


def threads(subject: Subject, threads: int) -> Arm:
    """Compute with so many threads."""
    return eager(subject, around=functools.partial(patches.threads, threads))


def tunable(subject: Subject) -> Arm:
    """Let torch choose each product's kernel by trying them (TunableOp)."""
    return eager(subject, around=patches.tunable)


# ---- generate()


def generate_(subject: Subject) -> Arm:
    """Take the steps by generate(); ms a step from the stamps of its tokens, as for the hand-written loop."""
    prompt = prompts(subject)[0]

    def run(count: int) -> float:
        stamps = generate.generation(subject.loaded, subject.device, prompt, count + 1)["token_stamps_s"]
        return 1000 * (stamps[-1] - stamps[0]) / count

    return Arm(run)


def whole_text(subject: Subject, guess: int = 0) -> Arm:
    """Write a text by generate() and take the whole time; `guess` tokens a step are copied from the prompt and checked.

    The prompt asks for a summary, so that some of the answer stands in it.
    """
    import torch

    ids = torch.tensor([text_ids(subject)], device=subject.device)
    extra = {"prompt_lookup_num_tokens": guess} if guess else {}

    def run(count: int) -> float:
        timing.synchronise(subject.device)
        began = time.perf_counter()
        config = generate._greedy(count)
        subject.model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, **extra)
        timing.synchronise(subject.device)
        return 1000 * (time.perf_counter() - began) / count

    return Arm(run)


def text_ids(subject: Subject) -> list[int]:
    """Return the token ids of the prompt that asks for a summary."""
    return models.prompt_ids(subject.loaded, models.PROMPTS["summarization"])


# ---- steps at fixed addresses


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


def lean_(subject: Subject, graph: bool = False, compiled: str = "") -> Arm:
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
    return graph.replay


# ---- first visits


def visits(subject: Subject, start: int, blocks: int, steps: int, cudnn: bool = True) -> Iterator[tuple[float, float]]:
    """Yield (second visit, first visit) in ms a step, over lengths that this process has never seen."""
    with contextlib.nullcontext() if cudnn else patches.no_cudnn_attention():
        logits, state = decode.prefill(subject.model, *decode.padded(prompts(subject, 1, start), subject.device))
        for _ in range(blocks):
            decode.choose(state, logits)
            first_token, times = state.token, []
            for _ in range(2):
                timing.synchronise(subject.device)
                began = time.perf_counter()
                decode.steps(subject.model, state, steps)
                times.append(1000 * (time.perf_counter() - began) / steps)
                decode.back(state, steps)
                state.token = first_token
            yield times[1], times[0]
            for _ in range(steps):  # on to lengths that are fresh again
                logits = decode.forward(subject.model, state)
                decode.choose(state, logits)


_MAKERS: dict[str, Callable[..., Arm]] = {
    "eager": eager, "depth": depth, "width": width, "dtype": dtype, "attention": attention, "patched": patched,
    "host_delay": host_delay, "device_delay": device_delay, "one_core": one_core, "threads": threads,
    "tunable": tunable, "generate": generate_, "whole_text": whole_text, "prompt_lookup": whole_text,
    "static": static, "lean": lean_,
}  # fmt: skip
