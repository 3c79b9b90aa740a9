"""Every operator of PyTorch's own OpInfo database, with its own sample inputs, against the CPU in float64."""

from __future__ import annotations

from typing import Any

from rocmlab.results import Run


def study(run: Run, device: str, dtypes: tuple[str, ...], *, limit_s: float, budget_s: float) -> int:
    raise NotImplementedError
