"""Switch a library's log on, do a piece of work in a child process, and keep what was logged.

`listen(run, "onednn", work)` sets the variables before the child starts, as the libraries demand, and reads its output.
One child a kind of log; a child without any log measures how much the logs slow the work down. Logged and clean runs
are never mixed. `python -m rocmlab.logbook FOLDER` collects the raw logs of this machine without a notebook.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmlab import isolate, libraries, library_judges, models, results, timing
from rocmlab.libraries import Log
from rocmlab.readers import logs
from rocmlab.results import Run

LIMIT_BYTES = 64 << 20  # of one stream; a child that writes more is ended, what it wrote so far is read
FULL_EXIT = 86
CLEAN = "clean"
WARM_STEPS = 2

# What each log needs to be set, by back end of torch. All write to stdout or stderr, where the marks of the work are.
KINDS: dict[str, dict[str, dict[str, str]]] = {
    "cpu": {
        "onednn": {"ONEDNN_VERBOSE": "1", "DNNL_VERBOSE": "1"},
        "mkl": {"MKL_VERBOSE": "1"},
    },
    "hip": {
        "rocblas": {"ROCBLAS_LAYER": "10"},  # 2 bench, 8 which back end
        "hipblaslt": {"HIPBLASLT_LOG_MASK": "32"},
        "miopen": {
            "MIOPEN_ENABLE_LOGGING_CMD": "1",
            "MIOPEN_ENABLE_LOGGING_CMD_FIND": "1",
            "MIOPEN_LOG_LEVEL": "6",
        },
        "runtime": {"AMD_LOG_LEVEL": "3", "AMD_LOG_MASK": "129"},  # 1 API calls, 128 kernels by name
    },
    "cuda": {
        "cublas": {"CUBLAS_LOGINFO_DBG": "1", "CUBLAS_LOGDEST_DBG": "stdout"},
        "cublaslt": {"CUBLASLT_LOG_LEVEL": "2"},
        "cudnn": {
            "CUDNN_LOGLEVEL_DBG": "3",
            "CUDNN_LOGDEST_DBG": "stdout",
            "CUDNN_FRONTEND_LOG_INFO": "1",
            "CUDNN_FRONTEND_LOG_FILE": "stdout",
        },
    },
}


@dataclass(frozen=True)
class Listened:
    """One child: how it ended, what its work returned, and what its streams hold."""

    kind: str
    status: str
    words: str
    seconds: float
    result: dict[str, Any] | None
    log: Log
    file: str
    bytes: int


def backend(device: str) -> str:
    """Return cpu, hip or cuda: whose logs can exist for work on this device. Imports torch, touches no GPU."""
    if device == "cpu":
        return "cpu"
    import torch

    return "hip" if torch.version.hip else "cuda"


def listen(run: Run, kind: str, variables: dict[str, str], work: dict[str, Any], *, limit_s: float) -> Listened:
    """Do `work` (arguments of `labour`) in a child with these variables set; never raises for what the child does."""
    with tempfile.TemporaryDirectory(prefix="rocmlab-log-", ignore_cleanup_errors=True) as folder:
        streams = Path(folder)
        outcome = isolate.call("rocmlab.logbook:labour", work, limit_s=limit_s, env=variables, streams=streams)
        status, words = outcome.status, outcome.words
        if outcome.exit_code == FULL_EXIT:
            status, words = "LOG_FULL", f"ended: its log grew over {LIMIT_BYTES >> 20} MB"
        size = sum((streams / name).stat().st_size for name in ("stdout", "stderr"))
        target = run.path / "logs" / f"{run.notebook}-{kind}.log"
        keep(streams, target)
        return Listened(
            kind, status, words, outcome.seconds, outcome.result, logs.parse(target), f"logs/{target.name}", size
        )


def keep(streams: Path, target: Path) -> None:
    """Write both streams of a child into one log, stdout first, without names of people and machines."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", encoding="utf-8", newline="\n") as file:
        for name in ("stdout", "stderr"):
            for block in _blocks(logs.lines(streams / name)):
                file.write("\n".join(results.redact(block)) + "\n")
            file.write(f"{logs.MARK}end of {name}\n")


def _blocks(lines: Iterator[str], size: int = 4096) -> Iterator[list[str]]:
    block: list[str] = []
    for line in lines:
        block.append(line)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block


def study(run: Run, device: str, work: dict[str, Any], *, limit_s: float) -> list[Listened]:
    """Run the clean child and one child a kind of log; record how each ended and what it logged."""
    kinds = {CLEAN: dict[str, str](), **KINDS[backend(device)]}
    found = []
    for kind, variables in kinds.items():
        one = listen(run, kind, variables, {**work, "device": device}, limit_s=limit_s)
        found.append(one)
        record(run, one, variables, found[0])
    return found


def record(run: Run, one: Listened, variables: dict[str, str], clean: Listened) -> None:
    """Append one row about the child, and its library calls as tidy rows."""
    ms, clean_ms = ((x.result or {}).get("step_ms", {}) for x in (one, clean))
    slow = {dtype: ms[dtype] / clean_ms[dtype] for dtype in ms if clean_ms.get(dtype) and one.kind != CLEAN}
    rows = [{"kind_of_log": one.kind, "file": one.file, **row} for row in libraries.rows(one.log)]
    run.append(
        "library_runs",
        {
            "kind": one.kind,
            "variables": variables,
            "status": one.status,
            "words": one.words,
            "seconds": round(one.seconds, 2),
            "file": one.file,
            "bytes": one.bytes,
            "numbers": libraries.numbers(one.log),
            "phases": dict(one.log.phases),
            "step_ms": ms,
            "slow_down": slow,
            "findings": library_judges.judge(one.log),
            "per_step": per_step(rows, one.result),
            "load": timing.load(),
            "work": one.result,
        },
    )
    if rows:
        run.append("library_calls", rows)


def per_step(rows: list[dict[str, Any]], done: dict[str, Any] | None) -> dict[str, dict[str, float]]:
    """Return launches, copies and waits of one decode step by dtype, where the runtime's log holds them; {} else."""
    found: dict[str, dict[str, float]] = {}
    for dtype in (done or {}).get("dtypes", []):
        here = [r for r in rows if r["phase"] == f"decode {dtype}" and r["library"] == "HIP runtime"]
        if here and done:
            kinds = {"launch": "launches", "copy": "copies", "sync": "synchronisations"}
            found[dtype] = {
                f"{name}_a_step": sum(r["calls"] for r in here if r["kind"] == kind) / done["steps"]
                for kind, name in kinds.items()
            }
    return found


# ---- in the child


def labour(
    model: str, device: str, dtypes: list[str], prompt_tokens: int = 37, steps: int = 3, limit_bytes: int = LIMIT_BYTES
) -> dict[str, Any]:
    """Do the work that the logs are to show, a mark before each part: prefill, decode steps, attention, a ResNet block,
    batch_norm. A part that fails is named in `errors`; the others are done all the same."""
    import torch

    threading.Thread(target=_watch, args=(limit_bytes,), daemon=True).start()
    found: dict[str, Any] = {"dtypes": dtypes, "steps": steps, "prompt_tokens": prompt_tokens, "errors": {}}
    found |= {"step_ms": {}, "torch": torch.__version__}
    torch.manual_seed(0)
    with torch.inference_mode():
        for dtype in dtypes:
            kind = getattr(torch, dtype)
            with _part(found, f"model {dtype}"):
                loaded = models.load(model, device, dtype)
                found |= describe(loaded.model) | {"model": loaded.name, "model_hash": loaded.model_hash}
                found["step_ms"][dtype] = decode(loaded.model, device, dtype, prompt_tokens, steps)
                del loaded
            for name, task in tasks(device, kind, found).items():
                with _part(found, f"{name} {dtype}"):
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
    """Prefill, then decode step by step; return the median milliseconds of the marked steps."""
    import torch

    ids = torch.randint(1, model.config.vocab_size - 1, (1, prompt_tokens), device=device)
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
        out = model(token, past_key_values=out.past_key_values, use_cache=True)
        timing.synchronise(device)
        if step >= WARM_STEPS:
            times.append((time.perf_counter() - began) * 1000)
    mark("warm", device)
    return statistics.median(times)


def tasks(device: str, dtype: Any, found: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return the parts beside the model, each a call without arguments."""
    import torch
    from torch import nn

    config = found.get("config", {})
    heads = config.get("num_attention_heads", 16)
    size = config.get("head_dim") or config.get("hidden_size", 1024) // heads
    query, cache = (torch.randn(1, heads, rows, size, device=device, dtype=dtype) for rows in (1, 64))
    image = torch.randn(2, 64, 28, 28, device=device, dtype=dtype)
    block = bottleneck().to(device=device, dtype=dtype).eval()
    norm = nn.BatchNorm2d(64).to(device=device, dtype=dtype).train()
    return {
        "attention": lambda: nn.functional.scaled_dot_product_attention(query, cache, cache),
        "resnet_block": lambda: torch.relu(block(image) + image),
        "batch_norm": lambda: norm(image),
    }


def bottleneck() -> Any:
    """Return the body of a ResNet bottleneck block: three convolutions, each with its batch_norm, back to 64 channels."""
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
        os.write(number, f"\n{logs.MARK}{name}\n".encode())


def _watch(limit_bytes: int) -> None:
    """End this process when one of its streams grows too large for a disk or a reader."""
    while True:
        time.sleep(0.1)
        if any(os.fstat(number).st_size > limit_bytes for number in (1, 2)):
            os._exit(FULL_EXIT)


def main(folder: str, model: str = "random:tiny", device: str = "auto", dtype: str = "float16") -> None:
    """Collect the logs of this machine in a folder: `python -m rocmlab.logbook FOLDER [MODEL] [DEVICE] [DTYPE]`."""
    import torch

    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    dtypes = ["float32", "bfloat16"] if device == "cpu" else [dtype]
    run = results.start("08", folder)
    for one in study(run, device, {"model": model, "dtypes": dtypes}, limit_s=300):
        errors = (one.result or {}).get("errors") or "-"
        print(f"{one.kind}: {one.status}, {one.words}, {one.bytes} bytes, errors: {errors}")
    print(f"logs and records are in {run.path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
