"""How fast does this device multiply matrices, by dtype? Square products, measured as large as time and memory allow.

`measure(run, head, device, chosen)` appends one line a dtype and size to the table `gemm_rate`, inside a child process
of notebook 06. What the rates mean is said by gemm_judges.py.
"""

from __future__ import annotations

from typing import Any

from rocmlab import clock, timing
from rocmlab.results import Run

SCHEMA = "rocmlab-gemm-rate-1"
DTYPES = ("float32", "float16", "bfloat16")
SIZES = {"cpu": (256, 512, 1024, 2048), "gpu": (1024, 2048, 4096, 8192)}
CALL_MOST_S = 0.25  # no larger size is tried where one call of it would take longer than this
DTYPE_MOST_S = 2.0  # no larger size is begun after this
BLOCK_MS = 4.0
SAMPLES, FEWEST = 8, 3


def measure(run: Run, head: dict[str, Any], device: str, chosen: clock.Choice) -> None:
    """Measure every dtype over growing sizes; a dtype or size that fails is a row with its error."""
    for dtype in DTYPES:
        spent, known_s = 0.0, None
        for size in SIZES["cpu" if device == "cpu" else "gpu"]:
            if spent > DTYPE_MOST_S or (known_s is not None and 8 * known_s > CALL_MOST_S):
                break
            row = one(device, dtype, size, chosen)
            run.append("gemm_rate", head | {"schema": SCHEMA, **row})
            if row.get("error"):
                break
            known_s = min(row["samples_ms"]) / 1000
            spent += row["spent_s"]


def one(device: str, dtype: str, size: int, chosen: clock.Choice) -> dict[str, Any]:
    """Multiply two normal matrices of size x size; samples in ms a product, the same product again and again.

    `is_bf16_supported` is torch's own word, None on the CPU; float32 stays float32 unless TF32 was switched on, which
    `tf32` says.
    """
    import torch

    row: dict[str, Any] = {"dtype": dtype, **dict.fromkeys("mnk", size), "flops": 2 * size**3, "clock": chosen.clock}
    row |= {"bytes": 3 * size * size * getattr(torch, dtype).itemsize, "samples_ms": []}
    if device != "cpu":
        row |= {"is_bf16_supported": torch.cuda.is_bf16_supported(), "tf32": torch.backends.cuda.matmul.allow_tf32}
    try:
        where, kind = torch.device(device), getattr(torch, dtype)
        left, right = (torch.randn(size, size, device=where).to(kind) for _ in range(2))
        if device == "cpu":  # as a linear layer lays its weight out: a CPU's float16 is six times slower the other way
            right = right.t()
        out = torch.empty_like(left)
        row |= sampled(lambda: torch.mm(left, right, out=out), device, chosen)
    except RuntimeError as error:
        row["error"] = str(error)[:500]
        timing.release(device)
    return row


def sampled(call: Any, device: str, chosen: clock.Choice) -> dict[str, Any]:
    """Return samples in ms of one call: blocks long enough for the clock, fewer of them where a call is slow."""
    warm = clock.warm(call, device, blocks=4, limit_s=1.0)
    once = min(warm)
    calls = max(1, min(500, round(max(BLOCK_MS, 2 * chosen.smallest_ms) / once)))
    count = SAMPLES if once * calls < 1000 * CALL_MOST_S / 2 else FEWEST
    samples = [clock.each(call, calls, device, chosen.clock) for _ in range(count)]
    spent = (sum(warm) + sum(samples) * calls) / 1000
    return {"samples_ms": samples, "calls": calls, "spent_s": spent}
