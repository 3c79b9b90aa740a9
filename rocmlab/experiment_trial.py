"""One experiment inside a worker: the step as it is and the step with one change, in turns, and what the change costs.

`begin` loads the model once, `facts` counts what a prediction needs, `trial` measures. Nothing is judged here.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from rocmlab import arms, decode, lean, models, patches, random_weights, sensors, timing
from rocmlab.arms import Arm, Subject

BLOCKS = 6  # of each arm, in turns: the fewest that give an interval
BLOCK_MS = 100.0  # of one block, between the least and the most steps
LEAST, MOST = 2, 32
FORCED = 8  # tokens of the text that logits are compared over
NO_WORK = ("empty", "new_empty", "detach", "_unsafe_view", "_reshape_alias")  # dispatched, and nothing is launched
TEXT_TOKENS = 32  # of a text whose repeats are counted, or that generate() writes whole

_now: dict[str, Any] = {}


def begin(model: str, device: str, dtype: str) -> None:
    """Load the model under study; called first in every worker."""
    timing.use(device)
    _now.clear()
    _now["subject"] = Subject(models.load(model, device, dtype), device, dtype)


# ---- facts


def facts(counted: dict[str, tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return what is known before anything is timed: shape, libraries, and the operators of a step with each change."""
    import torch

    subject: Subject = _now["subject"]
    loaded = subject.loaded
    found = patches.shape_facts(loaded.model) | {
        "device": subject.device,
        "dtype": subject.dtype,
        "context": subject.context,
        "model": loaded.name,
        "model_spec": loaded.spec,
        "model_hash": loaded.model_hash,
        "real_text": loaded.real_text,
        "known_layers": lean.known(loaded.model),
        "hip": torch.version.hip,
        "triton": _has_triton(),
        "threads": torch.get_num_threads(),
        "load": timing.load(),
    }
    found["widths"] = {times: _twin_facts(loaded, times) for times in (2, 4)}
    found["counts"] = {name: _count(subject, *how) for name, how in {"eager": ("eager", {}), **counted}.items()}
    if loaded.real_text:
        found |= {"text_prompt": arms.text_ids(subject), "text_written": _written(subject)}
    return found


def _has_triton() -> bool:
    try:
        from torch.utils._triton import has_triton

        return bool(has_triton())
    except (ImportError, RuntimeError, AssertionError):
        return False


def _twin_facts(loaded: models.Loaded, times: int) -> dict[str, Any]:
    """Return the shape of a wider twin without making it: on the meta device, where weights take no memory."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    values = dict(random_weights.PRESETS[patches.wider(loaded, times).partition(":")[2]])
    values.pop("rope_theta", None)
    with torch.device("meta"):
        twin = AutoModelForCausalLM.from_config(AutoConfig.for_model(**values), dtype=loaded.model.dtype)
    found = patches.shape_facts(twin)
    count = sum(one.numel() for one in {id(p): p for p in twin.parameters()}.values())
    return found | {"weight_bytes": count * loaded.model.dtype.itemsize}


def _count(subject: Subject, name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Count one step: kinds of operator as torch dispatches them; views launch nothing. An arm that fails says why."""
    import torch

    try:
        with torch.no_grad():  # operators arrive here in parts; in inference mode some would come whole
            arm = arms.make(subject, name, given)
            few, many = (_seen(arm, steps) for steps in (1, 3))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    finally:
        timing.release(subject.device)
    return {kind: (many[kind] - few[kind]) / 2 for kind in many}


def _seen(arm: Arm, steps: int) -> dict[str, int]:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    found = {"ops": 0, "launches": 0, "products": 0, "calls": 0}

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.overloadpacket.__name__
            found["ops"] += 1
            found["launches"] += not (_is_view(func) or name.startswith(NO_WORK))
            found["products"] += name in ("mm", "addmm", "bmm", "baddbmm", "linear")
            return func(*args, **(kwargs or {}))

    def called(*_: Any) -> None:
        found["calls"] += 1

    handle = torch.nn.modules.module.register_module_forward_pre_hook(called)
    try:
        with arm.around(), Seen():
            arm.run(steps)
            arm.rewind(steps)
    finally:
        handle.remove()
    return found


def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    return any(one.alias_info is not None and not one.alias_info.is_write for one in returns)


def _written(subject: Subject) -> list[int]:
    """Return a greedy text after the prompt that asks for a summary."""
    return decode.write(subject.model, subject.device, [arms.text_ids(subject)], TEXT_TOKENS)["token_ids"][0]


# ---- trial


def trial(arm: str, given: dict[str, Any], remedy: bool) -> dict[str, Any]:
    """Measure the step as it is and with the change, in turns (ABBA); return raw blocks in ms a step, and the costs.

    `remedy`: also compare the logits with float32, both made to follow the same tokens.
    """
    import torch

    subject: Subject = _now["subject"]
    timing.release(subject.device)  # a trial that did not fit leaves memory behind, which would keep this one out too
    with torch.inference_mode():
        if arm == "first_visit":
            return _first_visits(subject, given)
        held = _held(subject.device)
        began = time.perf_counter()
        changed = arms.make(subject, arm, given)
        took = time.perf_counter() - began
        usual = arms.make(subject, "whole_text" if arm == "prompt_lookup" else "eager", {})
        found = _in_turns(subject, usual, changed, TEXT_TOKENS if arm == "prompt_lookup" else None)
        found |= {"made_s": round(took, 2), "facts": changed.facts, "tokens_per_step": changed.tokens}
        found["sensor"] = sensors.reading(subject.device)  # no clock runs here
        found["memory_gib"] = _more_gib(subject.device, held)
        if remedy and changed.force is not None:
            found |= _compared(subject, usual, changed)
    del changed, usual
    timing.release(subject.device)
    return found


def _held(device: str) -> int | None:
    """Start a new peak, and return the bytes held on the device now; None on a CPU, which keeps no such count."""
    if device == "cpu":
        return None
    import torch

    torch.cuda.reset_peak_memory_stats(torch.device(device))
    return torch.cuda.memory_allocated(torch.device(device))


def _more_gib(device: str, held: int | None) -> float | None:
    """Return by how much memory rose above what was held, at most, in GiB."""
    if held is None:
        return None
    import torch

    return (torch.cuda.max_memory_allocated(torch.device(device)) - held) / 2**30


def _in_turns(subject: Subject, usual: Arm, changed: Arm, steps: int | None) -> dict[str, Any]:
    """Warm both arms, then take blocks in turns, the order turned round at each; a block is as long as it needs.

    An arm that injects a share of the usual step is told that step before each of its blocks.
    """
    both = {"baseline": usual, "changed": changed}
    counts, dose = {}, changed.dose
    warm: dict[str, float] = {}
    for name, one in both.items():
        if dose and name == "changed":
            dose(warm["baseline"])
        _block(subject, one, steps or LEAST)
        once = _block(subject, one, steps or LEAST)
        counts[name] = steps or max(LEAST, min(MOST, round(BLOCK_MS / max(once, 0.01))))
        warm[name] = _block(subject, one, counts[name])  # every context of a block has been visited from here on
    samples: dict[str, list[float]] = {name: [] for name in both}
    injected = []
    with timing.OtherWork() as others:
        for number in range(BLOCKS):
            for name in list(both) if number % 2 == 0 else list(both)[::-1]:
                if dose and name == "changed":
                    injected.append(dose(samples["baseline"][-1]))
                samples[name].append(_block(subject, both[name], counts[name]))
    found = {
        **{f"{name}_samples_ms": values for name, values in samples.items()},
        "steps": counts,
        "others_cpu_pct": others.pct,
    }
    return found | ({"injected_ms": injected} if injected else {})


def _block(subject: Subject, arm: Arm, count: int) -> float:
    """Take `count` steps; return ms a step."""
    with arm.around():
        timing.synchronise(subject.device)
        began = time.perf_counter()
        own = arm.run(count)
        timing.synchronise(subject.device)
        took = 1000 * (time.perf_counter() - began) / count
        arm.rewind(count)
    return took if own is None else own


def _first_visits(subject: Subject, given: dict[str, Any]) -> dict[str, Any]:
    pairs = list(arms.visits(subject, blocks=BLOCKS, steps=4, **given))
    second, first = ([pair[place] for pair in pairs] for place in (0, 1))
    return {
        "baseline_samples_ms": second,
        "changed_samples_ms": first,
        "steps": {"baseline": 4, "changed": 4},
        "tokens_per_step": 1.0,
    }


# ---- what a change does to the numbers


def _compared(subject: Subject, usual: Arm, changed: Arm) -> dict[str, Any]:
    """Return the errors of the logits, or why there are none: a float32 model that does not fit beside the subject must
    not cost the times that were measured."""
    try:
        return _logits(subject, usual, changed)
    except (RuntimeError, MemoryError) as error:
        if not decode.is_out_of_memory(error):
            raise
        return {"logits_reason": f"the float32 model does not fit beside it: {error}"[:300]}


def _logits(subject: Subject, usual: Arm, changed: Arm) -> dict[str, Any]:
    """Return the largest error of the logits against float32 with and without the change, over one text."""
    tokens = arms.prompts(subject, 1, FORCED)[0]
    wanted = _reference(subject, tokens)
    found: dict[str, Any] = {"logits_max_abs": float(wanted.abs().max()), "logits_tokens": len(tokens)}
    for name, one in (("logits_error_baseline", usual), ("logits_error", changed)):
        if one.force is not None:
            with one.around():
                found[name] = float((one.force(tokens) - wanted).abs().max())
    return found


def _reference(subject: Subject, tokens: list[int]) -> Any:
    """Return the float32 model's logits of the text; the model is dropped again, so a worker makes it once."""
    if "reference" not in _now:
        with _float32(subject) as model:
            arm = arms.eager(subject, model=model)
            assert arm.force is not None
            _now["reference"] = arm.force(tokens)
    return _now["reference"]


@contextlib.contextmanager
def _float32(subject: Subject) -> Iterator[Any]:
    """Give a float32 model on the subject's device, computing in full float32."""
    import torch

    if subject.dtype == "float32":
        yield subject.model
        return
    loaded = models.load(subject.loaded.spec, subject.device, "float32")
    torch.set_float32_matmul_precision("highest")
    try:
        yield loaded.model
    finally:
        del loaded
        timing.release(subject.device)
