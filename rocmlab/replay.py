"""A decode step as a graph that the device replays by itself: its time without the host.

The step is the same, except for what a graph needs: a cache of fixed size, a mask over all of it, and about 0.7 us a
node that replaying takes. Its logits are compared with the eager step's, so that a graph that computes something else
is not timed as the step.
"""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rocmlab import decode, timing

REPLAYS = 8  # a sample: as many positions are free in the cache
ALIGNED = 16  # positions: fused attention pads a mask of another length at every call
WARM = 3  # runs before a capture, as torch asks for, on a stream of their own
TOLERANCE = {"float32": 1e-3, "float16": 2e-2, "bfloat16": 1e-1}  # of the largest logit: another order of sums
GET_NODES = {  # the driver or runtime that holds the graph, by build
    "cuda": (("libcuda.so.1", "nvcuda.dll"), "cuGraphGetNodes"),
    "hip": (("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "amdhip64_7.dll", "amdhip64_6.dll"),
            "hipGraphGetNodes"),
}  # fmt: skip


@dataclass
class Captured:
    """A captured piece of work; `reset` takes the cache back to where the capture began.

    `work` is kept because a graph holds addresses only: what the work reads must not be freed while it is replayed.
    """

    graph: Any
    reset: Callable[[], None]
    logits: Any
    work: Callable[[], Any]


def capture(work: Callable[[], Any], reset: Callable[[], None] = lambda: None) -> Captured:
    """Warm work up on a side stream and capture it as a graph; what it returns is kept as `logits`."""
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            work()
    torch.cuda.current_stream().wait_stream(side)
    reset()
    try:
        graph = torch.cuda.CUDAGraph(keep_graph=True)  # lets the nodes be counted
    except TypeError:
        graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            out = work()
    except BaseException:
        torch.cuda.set_stream(torch.cuda.default_stream())  # a capture that fails leaves its own one current
        raise
    return Captured(graph, reset, out, work)


@dataclass
class Static:
    """A decode step over a cache of fixed size: `work()` takes it and returns its logits, `reset()` goes back."""

    work: Callable[[], Any]
    reset: Callable[[], None]


def static(model: Any, device: str, context: int, token: Any) -> Static:
    """Prefill a static cache with the prompts that a rig has, and return the step behind it, of the same `token`.

    The token, (rows, 1), is given: among hundreds of rows this prefill would choose another one where two are near.
    """
    import torch
    from transformers import StaticCache

    room = -(-(context + REPLAYS + WARM + 1) // ALIGNED) * ALIGNED
    names = inspect.signature(model.forward).parameters
    cache = StaticCache(config=model.config, max_cache_len=room)
    past = {"cache" if "cache" in names else "past_key_values": cache, "use_cache": True}
    prompts = decode.random_prompts(model.config.vocab_size, [context] * len(token), seed=context)
    ids = torch.tensor(prompts, device=device)
    places = torch.arange(context, device=device)
    seen = torch.arange(room, device=device)[None, :] <= places[:, None]
    _step(model, past, ids, places[None], _mask(model, seen[None, None]))
    place = torch.full((1, 1), context, device=device)
    mask = _mask(model, torch.arange(room, device=device)[None, None, None, :] <= context)

    def work() -> Any:
        logits = _step(model, past, token, place, mask)
        logits[:, -1].argmax(-1, keepdim=True)
        return logits

    def reset() -> None:
        for layer in cache.layers:
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length.fill_(context)  # type: ignore[union-attr]

    return Static(work, reset)


def _step(model: Any, past: dict[str, Any], ids: Any, positions: Any, mask: Any) -> Any:
    extra = {"cache_position": positions[0]} if "cache_position" in inspect.signature(model.forward).parameters else {}
    return model(ids, attention_mask=mask, position_ids=positions, logits_to_keep=1, **past, **extra).logits


def _mask(model: Any, seen: Any) -> Any:
    """Return a mask as the attention implementation takes it: true and false, or added to the scores."""
    import torch

    if getattr(model.config, "_attn_implementation", "sdpa") != "eager":
        return seen
    return torch.zeros_like(seen, dtype=model.dtype).masked_fill_(~seen, torch.finfo(model.dtype).min)


def time_a_replay(made: Captured, device: str, count: int = REPLAYS) -> float:
    """Return the time of one replay in ms, from several between two waits."""
    from rocmlab import clock

    def replays() -> None:
        for _ in range(count):
            made.graph.replay()

    ms = clock.timed(replays, device) / count
    made.reset()
    timing.synchronise(device)
    return ms


def error(made: Captured, device: str, expected: Any) -> float:
    """Return the largest difference between the graph's logits and the eager ones, over the largest logit."""
    made.graph.replay()
    timing.synchronise(device)
    found = made.logits.float()
    made.reset()
    return float((found - expected.float()).abs().max() / expected.float().abs().max().clamp(min=1e-6))


def nodes(made: Captured) -> int | None:
    """Return how many nodes a graph has, None where this build or driver does not tell."""
    import torch

    if not hasattr(made.graph, "raw_cuda_graph"):
        return None
    libraries, name = GET_NODES["hip" if torch.version.hip else "cuda"]
    for library in libraries:
        try:
            ask = getattr(ctypes.CDLL(library), name)
            count = ctypes.c_size_t()
            if ask(ctypes.c_void_p(made.graph.raw_cuda_graph()), None, ctypes.byref(count)) == 0:
                return count.value
        except (OSError, AttributeError, RuntimeError):
            continue
    return None
