"""The work that library logs are taken of, done in a child: prefill, decode, attention, convolution, batch_norm.

`labour(...)` writes a mark into both streams before each part, so that a log can be divided; it loads torch itself.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from rocmlab import models, timing
from rocmlab.readers.logs import MARK

LIMIT_BYTES = 64 << 20  # of one stream; a child that writes more ends itself, what it wrote so far is read
FULL_EXIT = 86
WARM_STEPS = 1


def labour(
    model: str, device: str, dtypes: list[str], prompt_tokens: int = 37, steps: int = 3, limit_bytes: int = LIMIT_BYTES
) -> dict[str, Any]:
    """Do the work that the logs are to show, a mark before each part: prefill, decode steps, attention, a ResNet block,
    batch_norm. A part that fails is named in `errors`; the others are done all the same."""
    import torch

    threading.Thread(target=watch, args=(limit_bytes,), daemon=True).start()
    found: dict[str, Any] = {"dtypes": dtypes, "steps": steps, "prompt_tokens": prompt_tokens, "errors": {}}
    found |= {"step_ms": {}, "torch": torch.__version__, "choices": {}}
    torch.manual_seed(0)
    model_of: dict[str, Any] = {}
    with torch.inference_mode():
        for dtype in dtypes:
            kind = getattr(torch, dtype)
            with _part(found, f"model {dtype}"):
                if not model_of:  # reading it takes as long as the work, so the next dtype converts it
                    loaded = models.load(model, device, dtype)
                    model_of["model"] = loaded.model
                    found |= describe(loaded.model) | {"model": loaded.name, "model_hash": loaded.model_hash}
                found["step_ms"][dtype] = decode(model_of["model"].to(kind), device, dtype, prompt_tokens, steps)
                if dtype == dtypes[-1]:
                    model_of.clear()
            for name, (task, choice) in tasks(device, kind, found).items():
                with _part(found, f"{name} {dtype}"):
                    found["choices"][f"{name} {dtype}"] = chosen(choice)
                    mark("warm", device)
                    task()
                    mark(f"{name} {dtype}", device)
                    task()
    mark("end", device)
    return found


def describe(model: Any) -> dict[str, Any]:
    """Return what reconciling needs: the config's sizes, and every linear module counted by its own shape."""
    import torch

    shapes: dict[str, int] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            key = f"{name.split('.')[-1]} {module.out_features} {module.in_features}"
            shapes[key] = shapes.get(key, 0) + 1
    config = {k: v for k, v in model.config.to_dict().items() if isinstance(v, (int, float, str, bool))}
    return {"config": config, "linears": shapes}


def decode(model: Any, device: str, dtype: str, prompt_tokens: int, steps: int) -> float:
    """Prefill, then decode step by step; return the median milliseconds of the marked steps.

    An accelerator does both once before they count, because its libraries look for kernels then; on a CPU only the
    first step is left out, as it is for the timing.
    """
    import torch

    # transformers renamed past_key_values to cache in 5.x; both have to work.
    name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    ids = torch.randint(1, model.config.vocab_size - 1, (1, prompt_tokens), device=device)
    if device != "cpu":
        mark("warm", device)
        model(ids, use_cache=True)
    mark(f"prefill {dtype}", device)
    out = model(ids, use_cache=True)
    mark("warm", device)
    times = []
    for step in range(WARM_STEPS + steps):
        token = out.logits[:, -1:].argmax(-1)
        mark(f"decode {dtype}" if step >= WARM_STEPS else "warm", device)
        began = time.perf_counter()
        out = model(token, use_cache=True, **{name: out[name]})
        timing.synchronise(device)
        if step >= WARM_STEPS:
            times.append((time.perf_counter() - began) * 1000)
    mark("warm", device)
    return statistics.median(times)


def tasks(device: str, dtype: Any, found: dict[str, Any]) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return the parts beside the model, each as two calls without arguments: the work, and torch's own choice of a
    back end for its attention or batch_norm.

    The block is converted whole, as for inference; batch_norm alone keeps float32 weights and statistics beside a
    smaller dtype, as mixed precision training does, because only then do cuDNN and MIOpen serve it.
    """
    import torch
    from torch import nn

    config = found.get("config", {})
    heads = config.get("num_attention_heads", 16)
    size = config.get("head_dim") or config.get("hidden_size", 1024) // heads
    query, cache = (torch.randn(1, heads, rows, size, device=device, dtype=dtype) for rows in (1, 64))
    image = torch.randn(2, 64, 28, 28, device=device, dtype=dtype)
    block = bottleneck().to(device=device, dtype=dtype).eval()
    norm = nn.BatchNorm2d(64).to(device=device).train()
    return {
        "attention": (
            lambda: nn.functional.scaled_dot_product_attention(query, cache, cache),
            lambda: torch._C._SDPBackend(torch._fused_sdp_choice(query, cache, cache)),
        ),
        "resnet_block": (lambda: torch.relu(block(image) + image), lambda: norm_backend(block[-1], image)),
        "batch_norm": (lambda: norm(image), lambda: norm_backend(norm, image)),
    }


def norm_backend(norm: Any, image: Any) -> Any:
    """Return torch's choice for a batch_norm module: Native, Cudnn or Miopen."""
    import torch

    weights = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    return torch._C._select_batch_norm_backend(image, *weights, norm.training, norm.eps)


def chosen(choice: Callable[[], Any]) -> str | None:
    """Return torch's choice by name; None where this torch does not offer the question, which is no public API."""
    try:
        return str(choice().name)
    except (AttributeError, TypeError, ValueError, RuntimeError):
        return None


def bottleneck() -> Any:
    """Return the body of a ResNet bottleneck block: three convolutions, each with its batch_norm, back to 64."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(64, 32, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 64, 1, bias=False), nn.BatchNorm2d(64),
    )  # fmt: skip


@contextlib.contextmanager
def _part(found: dict[str, Any], name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        found["errors"][name] = f"{type(error).__name__}: {error}".splitlines()[0][:300]


def mark(name: str, device: str) -> None:
    """Write a mark into both streams, after everything that the libraries still hold back."""
    timing.synchronise(device)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("ucrtbase" if sys.platform == "win32" else None)
        library.fflush(None)
    for number in (1, 2):
        os.write(number, f"\n{MARK}{name}\n".encode())


def watch(limit_bytes: int) -> None:
    """End this process when one of its streams grows too large for a disk or a reader."""
    while True:
        time.sleep(0.1)
        if any(os.fstat(number).st_size > limit_bytes for number in (1, 2)):
            os._exit(FULL_EXIT)
