"""A library switched off, or exchanged for another, while an operator is tried again: library at fault, or card?"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


def said(library: str | None, device: str) -> str | None:
    """Return in words what switching off does here, None where it does nothing."""
    with switched(library, True, device) as words:
        return words


@contextlib.contextmanager
def switched(library: str | None, off: bool, device: str) -> Iterator[str | None]:
    """Switch a library off (or, for BLAS, to the other one) while inside; yields what was done, in words."""
    import torch

    if not off or library is None:
        yield None
        return
    on_gpu = device != "cpu"
    if library == "dnn" or not on_gpu:
        backend: Any = torch.backends.cudnn if on_gpu else torch.backends.mkldnn
        name = "oneDNN" if not on_gpu else "MIOpen" if torch.version.hip else "cuDNN"
        was = backend.enabled
        backend.enabled = False  # the attribute, because flags() would change the precision as well
        try:
            yield f"{name} off" if backend.is_available() else None
        finally:
            backend.enabled = was
    else:
        before = torch.backends.cuda.preferred_blas_library()
        other = "cublas" if "lt" in str(before).lower() else "cublaslt"
        after = torch.backends.cuda.preferred_blas_library(other)
        try:
            name = str(after).rsplit(".", 1)[-1]
            yield f"{name} instead of {str(before).rsplit('.', 1)[-1]}" if after != before else None
        finally:
            torch.backends.cuda.preferred_blas_library(before)
