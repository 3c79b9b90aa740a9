"""How each arm of an experiment takes its decode steps: the loop as it is, and the loop with one thing changed.

`make(subject, name, given)` returns an Arm. `run(n)` takes n steps, `rewind(n)` goes back, `around()` is entered before
the clock starts, so that both arms share one model and can take turns. Inside a worker.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

from rocmlab import decode, fixed_arms, generate, models, patches, timing, twin
from rocmlab.arm import Arm, Subject, prompts
from rocmlab.prompts import PROMPTS, prompt_ids

MOST_DELAY_MS = 300.0  # of all layers together: Windows resets a driver that is silent for two seconds


def make(subject: Subject, name: str, given: dict[str, Any]) -> Arm:
    """Return the arm of this name (a function below)."""
    return _MAKERS[name](subject, **given)


# ---- the usual loop


def eager(
    subject: Subject, rows: int = 1, context: int | None = None, model: Any = None,
    around: Callable[[], Any] = contextlib.nullcontext,
) -> Arm:  # fmt: skip
    """Take steps by the hand-written loop, every token brought to the host."""
    model = model or subject.model
    with around():
        logits, state = decode.prefill(model, *decode.padded(prompts(subject, rows, context, model), subject.device))
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
    kept = max(1, int(share * subject.model.config.num_hidden_layers))
    return eager(subject, around=functools.partial(twin.shallow, subject.model, kept))


def width(subject: Subject, times: int) -> Arm:
    """Take the steps of a twin of another width: a public model of that shape where there is one, else the same layers
    `times` as wide (0: so narrow that nothing is left but the host's work)."""
    spec = patches.wider(subject.loaded, times) if times else "tiny width"
    if times:
        other = models.load(spec, subject.device, subject.dtype).model
    else:
        other = twin.make(subject.model, subject.device, subject.dtype)
    arm = eager(subject, model=other)
    facts = {"spec": spec, "shape": patches.shape_facts(other)}
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
    """Let the host spin after each layer, `dose` of the usual step in all."""
    now, told = _share(subject, dose)

    def spin(*_: Any) -> None:
        end = time.perf_counter() + now["us"] / 1e6
        while time.perf_counter() < end:
            pass

    arm = eager(subject, around=functools.partial(patches.hooked, subject.model, spin))
    arm.dose = told
    return arm


def _share(subject: Subject, dose: float) -> tuple[dict[str, float], Callable[[float], float]]:
    """Return a place that holds the delay a layer in us, and what keeps it `dose` of the usual step: that step drifts
    within seconds on some machines, and a delay of fixed length would be another share of each block."""
    layers, now = subject.model.config.num_hidden_layers, {"us": 0.0}

    def told(step_ms: float) -> float:
        injected_ms = min(dose * step_ms, MOST_DELAY_MS)
        now["us"] = 1000 * injected_ms / layers
        return injected_ms

    return now, told


def device_delay(subject: Subject, dose: float) -> Arm:
    """Let the device spin after each layer, `dose` of the usual step in all."""
    import torch

    now, told = _share(subject, dose)
    rate = patches.cycles_a_us(subject.device)

    def spin(*_: Any) -> None:
        torch.cuda._sleep(max(1, round(now["us"] * rate)))

    arm = eager(subject, around=functools.partial(patches.hooked, subject.model, spin))
    arm.dose = told
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

    def run(count: int) -> float:
        timing.synchronise(subject.device)
        began = time.perf_counter()
        config = generate.greedy(count)
        config.prompt_lookup_num_tokens = guess or None
        subject.model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        timing.synchronise(subject.device)
        return 1000 * (time.perf_counter() - began) / count

    return Arm(run)


def text_ids(subject: Subject) -> list[int]:
    """Return the token ids of the prompt that asks for a summary."""
    return prompt_ids(subject.loaded, PROMPTS["summarization"])


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
    "static": fixed_arms.static, "lean": fixed_arms.lean_step,
}  # fmt: skip
