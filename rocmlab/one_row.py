"""Does the product of one row with a weight use more than one core of this CPU, and what would mend it?

`measure(run, head, model, room)` times the model's largest such product in turns: with one thread and with all, and by
other ways to the same numbers; a square product of many rows shows whether a second core was to be had at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from rocmlab.results import Run

SCHEMA = "rocmlab-one-row-1"
ROUNDS = 10
SQUARE = 768  # of the control: a product in cache that every core can share
LARGEST = 512 << 20  # bytes of a weight; a larger head leaves no room for its copies
HALVED = ("bfloat16", "float16")  # ways that read half the bytes of float32
AS_IT_IS, CONTROL = "as_it_is", "many_rows"
OTHER_WAYS = ("two_rows", "bfloat16", "float16", "transposed", "onednn")


def measure(run: Run, head: dict[str, Any], model: Any, room: int) -> None:
    """Append one row a way and number of threads, all arms taking turns; a way that fails has its reason.

    A layer's largest product goes to a table of its own, "one_row_layer": another shape gains another share by a way.
    """
    import torch

    threads = torch.get_num_threads()
    both = [(way, count) for way in (AS_IT_IS, CONTROL) for count in (1, threads)]
    largest, layers = chosen(model), chosen(model, head=False)
    _product(run, "one_row", head, *largest, room, both)
    if layers[0] != largest[0]:
        _product(run, "one_row_layer", head, *layers, room, [(AS_IT_IS, threads)])


def _product(
    run: Run, table: str, head: dict[str, Any], name: str, module: Any, room: int, arms: list[tuple[str, int]]
) -> None:
    """Time these arms and every other way of one product; append the rows."""
    import torch

    weight = module.weight.detach()
    size = weight.numel() * weight.element_size()
    copies = [weight] + [weight.clone() for _ in range(max(1, -(-room // size)) - 1)]
    row: dict[str, Any] = {"schema": SCHEMA, "name": name, "copies": len(copies)}
    row["shape"] = {"rows": 1, "in": weight.shape[1], "out": weight.shape[0]}
    row |= {"clock": "perf_counter", "evidence_grade": "D"}
    threads = torch.get_num_threads()
    calls, failed = _ways(copies)
    arms = arms + [(way, threads) for way in calls if way not in (AS_IT_IS, CONTROL)]
    samples = _in_turns(calls, list(dict.fromkeys(arms)))
    torch.set_num_threads(threads)
    for (way, count), each in samples.items():
        moved = None if way == CONTROL else size // 2 if way in HALVED else size
        marks = {"way": way, "threads": count, "all_threads": threads, "bytes": moved, "samples_ms": each}
        run.append(table, head | row | marks)
    for way, reason in failed.items():
        run.append(table, head | row | {"way": way, "samples_ms": [], "reason": reason})


def chosen(model: Any, head: bool = True) -> tuple[str, Any]:
    """Return (name, module) of the product with the largest weight that leaves room for copies; without the `head`,
    of a layer's."""
    import torch

    named = {"lm_head": model.get_output_embeddings()} if head else {}
    named |= {path.rsplit(".")[-1]: one for path, one in model.model.layers[0].named_modules()
              if isinstance(one, torch.nn.Linear)}  # fmt: skip
    sizes = {name: one.weight.numel() * one.weight.element_size() for name, one in named.items()}
    fits = [name for name, size in sizes.items() if size <= LARGEST] or list(sizes)
    name = max(fits, key=lambda one: sizes[one])
    return name, named[name]


def _ways(copies: list[Any]) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """Return (calls by way, reasons of ways that this torch or CPU does not have)."""
    import torch

    linear = torch.nn.functional.linear
    x = torch.randn(1, copies[0].shape[1], dtype=copies[0].dtype)
    square = torch.randn(SQUARE, SQUARE)
    makers: dict[str, Callable[[], Callable[[Any], Any]]] = {
        AS_IT_IS: lambda: lambda weight: linear(x, weight),
        CONTROL: lambda: lambda _: square @ square,
        "two_rows": lambda: lambda weight: linear(x.expand(2, -1), weight),
        "bfloat16": lambda: lambda weight: linear(x.bfloat16(), weight),
        "float16": lambda: lambda weight: linear(x.half(), weight),
        "transposed": lambda: lambda weight: x @ weight,
        "onednn": lambda: lambda weight: torch._C._nn.mkldnn_linear(x.to_mkldnn(), weight, None),
    }
    stored = {
        "bfloat16": lambda weight: weight.bfloat16(),
        "float16": lambda weight: weight.half(),
        "transposed": lambda weight: weight.t().contiguous(),
        "onednn": lambda weight: weight.to_mkldnn(),
    }
    calls: dict[str, Callable[[], Any]] = {}
    failed: dict[str, str] = {}
    shared = [0]  # ways over the same weights go round together: else one finds in a cache what the other has just read
    for way, make in makers.items():
        try:
            kept = [stored[way](weight) for weight in copies] if way in stored else copies
            calls[way] = _rotating(make(), kept, [0] if way in stored else shared)
            calls[way]()
        except (RuntimeError, AttributeError) as error:
            calls.pop(way, None)
            failed[way] = str(error)[:300]
    return calls, failed


def _rotating(call: Callable[[Any], Any], weights: list[Any], place: list[int]) -> Callable[[], Any]:
    def once() -> Any:
        place[0] = (place[0] + 1) % len(weights)
        return call(weights[place[0]])

    return once


def _in_turns(calls: dict[str, Callable[[], Any]], arms: list[tuple[str, int]]) -> dict[tuple[str, int], list[float]]:
    """Time every arm once a round, in ms; the order is turned round at every round, and each arm is warmed first."""
    import torch

    samples: dict[tuple[str, int], list[float]] = {arm: [] for arm in arms}
    for turn in range(ROUNDS):
        for way, threads in arms if turn % 2 == 0 else arms[::-1]:
            torch.set_num_threads(threads)
            calls[way]()
            began = time.perf_counter()
            calls[way]()
            samples[way, threads].append(1000 * (time.perf_counter() - began))
    return samples
