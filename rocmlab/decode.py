"""One text or a batch, token by token: prefill and decode written out by hand, with a stamp for every token.

`write(model, device, prompts, tokens)` is the whole of it. A stamp is taken when the tokens' numbers are on the host,
as generate() needs them too. Prompts of unequal length are padded on the left: a decoder-only model continues the last
column, so that column must hold the last token of every prompt.
"""

from __future__ import annotations

import hashlib
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rocmlab import timing
from rocmlab.readers.errors import sizes

SCHEMA = "rocmlab-generation-1"
STOP_RULE = "end token off, min = max new tokens, greedy"
CLOCK = "perf_counter"


@dataclass
class State:
    """A batch between two steps: token (rows, 1), the cache by its keyword; mask and positions where padded."""

    token: Any
    past: dict[str, Any]
    mask: Any
    positions: Any


def random_prompts(vocabulary: int, lengths: list[int], seed: int = 0) -> list[list[int]]:
    """Return seeded random token ids: speed does not depend on what a text says."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, vocabulary, (length,), generator=generator).tolist() for length in lengths]


def padded(prompts: list[list[int]], device: str) -> tuple[Any, Any]:
    """Return (ids, mask) of shape (rows, longest), padded on the left; mask is None where nothing is padded.

    Without a mask the attention may take the path that one text alone would take.
    """
    import torch

    longest = max(len(one) for one in prompts)
    ids = torch.tensor([[0] * (longest - len(one)) + one for one in prompts], device=device)
    if all(len(one) == longest for one in prompts):
        return ids, None
    mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts], device=device)
    return ids, mask


def empty(model: Any) -> dict[str, Any]:
    """Return an empty cache under the keyword that this transformers knows: past_key_values became cache in 5.x."""
    from transformers import DynamicCache

    names = inspect.signature(model.forward).parameters
    return {"cache" if "cache" in names else "past_key_values": DynamicCache(config=model.config)}


def prefill(model: Any, ids: Any, mask: Any) -> tuple[Any, State]:
    """Run the model over the prompts; return (logits of the last column, state without a token)."""
    positions = None if mask is None else (mask.cumsum(-1) - 1).clamp(min=0)
    past = empty(model)
    out = model(ids, attention_mask=mask, position_ids=positions, use_cache=True, logits_to_keep=1, **past)
    return out.logits, State(None, past, mask, None if positions is None else positions[:, -1:])


def forward(model: Any, state: State) -> Any:
    """Run one decode step over every row; return its logits. The cache grows by one position."""
    import torch

    if state.mask is not None:
        state.mask = torch.cat([state.mask, state.mask.new_ones(len(state.mask), 1)], dim=-1)
        state.positions = state.positions + 1
    extra = {"attention_mask": state.mask, "position_ids": state.positions, **state.past}
    out = model(state.token, use_cache=True, logits_to_keep=1, **extra)
    return out.logits


def choose(state: State, logits: Any) -> None:
    """Take the best token of every row (greedy), still on the device."""
    state.token = logits[:, -1].argmax(-1, keepdim=True)


def on_host(state: State) -> list[int]:
    """Bring the newest token of every row to the host; this waits for the device."""
    return [row[0] for row in state.token.tolist()]


def back(state: State, count: int) -> None:
    """Forget the last `count` positions, so that the same steps can be taken again."""
    for cache in state.past.values():
        cache.crop(-count)
    if state.mask is not None:
        state.mask, state.positions = state.mask[:, :-count], state.positions - count


def steps(
    model: Any, state: State, count: int, work: Callable[[], Any] | None = None, stamp: bool = True
) -> list[float]:
    """Take `count` decode steps; return the time (perf_counter, s) after each: with a stamp, of its tokens on the host.

    Without stamps nothing waits, so the times are those at which each step was queued. `work` queues something between
    the model and its token.
    """
    times = []
    for _ in range(count):
        logits = forward(model, state)
        if work is not None:
            work()
        choose(state, logits)
        if stamp:
            on_host(state)
        times.append(time.perf_counter())
    return times


def write(model: Any, device: str, prompts: list[list[int]], tokens: int, end: int | None = None) -> dict[str, Any]:
    """Write up to `tokens` tokens after each prompt; return a rocmlab-generation-1 record (times in s from the start).

    Prefill ends when the logits are there, the first token when its number is on the host. With an `end` token a row
    stops counting after it, and the loop stops when every row has: `row_tokens` are the real counts.
    """
    import torch

    ids, mask = padded(prompts, device)
    timing.synchronise(device)
    with torch.inference_mode():
        began = time.perf_counter()
        logits, state = prefill(model, ids, mask)
        timing.synchronise(device)
        filled = time.perf_counter()
        choose(state, logits)
        columns = [on_host(state)]
        stamps = [time.perf_counter()]
        while len(columns) < tokens and not ended(columns, end):
            choose(state, forward(model, state))
            columns.append(on_host(state))
            stamps.append(time.perf_counter())
    seconds = [round(stamp - began, 7) for stamp in stamps]
    counts = row_tokens(columns, end)
    return {
        "schema": SCHEMA,
        "batch": len(prompts),
        "prompt_tokens": max(len(one) for one in prompts),
        "real_prompt_tokens": sum(len(one) for one in prompts),
        "padded": mask is not None,
        "prompt_hash": hashlib.sha256(repr(prompts).encode()).hexdigest()[:16],
        "max_new_tokens": tokens,
        "new_tokens": max(counts),
        "row_tokens": counts,
        "stop": "length" if end is None or len(columns) == tokens else "eos",
        "t_start_s": 0.0,
        "t_prefill_s": round(filled - began, 7),
        "t_first_token_s": seconds[0],
        "t_end_s": seconds[-1],
        "token_stamps_s": seconds,
        "token_ids": [list(row) for row in zip(*columns, strict=True)],
        "synchronized": True,
    }


def ended(columns: list[list[int]], end: int | None) -> bool:
    """Tell whether every row has written the end token."""
    return end is not None and all(end in row for row in zip(*columns, strict=True))


def row_tokens(columns: list[list[int]], end: int | None) -> list[int]:
    """Return how many tokens each row really wrote: those after its end token are padding."""
    rows = [list(row) for row in zip(*columns, strict=True)]
    return [row.index(end) + 1 if end is not None and end in row else len(row) for row in rows]


# ---- memory


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an exception says that memory is short: in the words of HIP, CUDA, the CPU, or of a library that
    found no room for its workspace (CUBLAS_STATUS_ALLOC_FAILED, miopenStatusAllocFailed)."""
    said = str(error).lower().replace("_", "")
    every = ("out of memory", "not enough memory", "can't allocate memory", "allocfailed")
    return any(words in said for words in every)


def memory_state(device: str, error: BaseException) -> dict[str, Any]:
    """Return what an out-of-memory message and the device say: GiB asked, free, held, reserved but unused; null: not
    said."""
    found = sizes(str(error))
    if device != "cpu":
        import torch

        free, total = torch.cuda.mem_get_info(torch.device(device))
        held, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
        now = {"free_gib": free, "total_gib": total, "allocated_gib": held, "reserved_unused_gib": reserved - held}
        found |= {key: value / 2**30 for key, value in now.items() if found.get(key) is None}
    return found
