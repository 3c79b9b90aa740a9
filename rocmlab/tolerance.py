"""How far from the reference may a right result lie? The one rule by which all operators are judged.

An element may differ from the float64 reference by

    SLACK x steps x eps(precision) x (|reference| + rms(reference))  +  SLACK x eps(float32) x sqrt(terms) x rms(reference)

The first part is the rounding of results that are stored `steps` times in `precision`; the second the rounding of a sum
of `terms` products held in float32, which grows with the square root of their number (N. J. Higham and T. Mary, "A New
Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019). eps is the distance from 1 to the
next number (torch.finfo). SLACK 4 was chosen on a CPU and an H200 so that no right operator comes near it; a wrong
kernel misses by orders of magnitude. Inputs are rounded to the dtype before, so that they are no source of error.
"""

from __future__ import annotations

import math
from typing import Any

EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "tf32": 2.0**-10,  # TensorFloat-32: float32 with the fraction of float16, inside matrix units
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}
SLACK = 4.0


def parts(precision: str, terms: int, steps: int) -> tuple[float, float]:
    """Return (relative to each element, relative to the root mean square of all)."""
    stored = SLACK * steps * EPSILON.get(precision, EPSILON["float32"])
    summed = SLACK * EPSILON["float64" if precision == "float64" else "float32"] * math.sqrt(terms)
    return stored, stored + summed


def compare(
    got: Any, wanted: Any, precision: str, terms: int = 1, steps: int = 1, atol: float | None = None
) -> dict[str, Any]:
    """Compare a result with its float64 reference (tensors of one shape, any device).

    Returns max_abs_err, the worst ratio of error to tolerance, counts of elements not finite where the reference is,
    and of those outside the tolerance. Integer and boolean results must be equal.
    """
    import torch

    if tuple(got.shape) != tuple(wanted.shape):
        return {"shape": list(got.shape), "shape_expected": list(wanted.shape), "over_tolerance": None}
    if got.is_complex() or wanted.is_complex():
        got, wanted = torch.view_as_real(got.resolve_conj()), torch.view_as_real(wanted.resolve_conj())
    exact = not got.is_floating_point()
    got, wanted = got.detach().to("cpu", torch.float64), wanted.detach().to("cpu", torch.float64)
    finite = torch.isfinite(wanted)
    bad = finite & ~torch.isfinite(got)
    both = finite & torch.isfinite(got)
    error = torch.where(both, (got - wanted).abs(), torch.zeros_like(got))
    same = finite | (got == wanted) | (torch.isnan(got) & torch.isnan(wanted))
    size = torch.where(finite, wanted.abs(), torch.zeros_like(wanted))
    relative, absolute = (0.0, 0.0) if exact else parts(precision, terms, steps)
    rms = math.sqrt(float((size**2).mean())) if size.numel() else 0.0
    allowed = relative * size + (absolute * rms if atol is None else atol)
    outside = (error > allowed) | ~same
    ratio = torch.where(error > 0, error / allowed, torch.zeros_like(error))
    worst = float(ratio.max()) if ratio.numel() else 0.0
    return {
        "elements": got.numel(),
        "not_finite": int(bad.sum()),
        "outside": int((outside & ~bad).sum()),
        "max_abs_err": float(error.max()) if error.numel() else 0.0,
        "reference_rms": rms,
        "over_tolerance": worst if math.isfinite(worst) else None,
    }
