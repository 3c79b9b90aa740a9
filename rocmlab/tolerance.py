"""How far from the reference may a right result lie? The one rule by which all operators are judged.

An element may differ from the float64 reference by

    SLACK x (steps x eps(precision) + sqrt(terms) x eps(float32)) x (|reference| + rms(reference))

The first part is the rounding of results that are stored `steps` times in `precision`; the second the rounding of a sum
of `terms` products held in float32, which grows with the square root of their number (N. J. Higham and T. Mary, "A New
Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41(5), 2019). eps is the distance from 1 to the
next number (torch.finfo). SLACK 4 was chosen on a CPU and an H200 so that no right operator comes near it; a wrong
kernel misses by orders of magnitude. Inputs are rounded to the dtype before, so that they are no source of error.
"""

from __future__ import annotations

import math
import sys
from typing import Any

EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "tf32": 2.0**-10,  # TensorFloat-32: float32 with the fraction of float16, inside matrix units
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
}
SLACK = 4.0
RMS_SLACK, RMS_LEAST = 2.0, 16  # with fewer elements than this an average says no more than each element
# Below this a result may be flushed to zero: the smallest normal number, for float16 a few of its smallest steps.
FLOOR = {"float32": 2.0**-126, "tf32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-22}


def relative(precision: str, terms: int, steps: int) -> float:
    """Return the tolerance relative to |element| + rms of all elements."""
    stored = steps * EPSILON.get(precision, EPSILON["float32"])
    summed = EPSILON["float64" if precision == "float64" else "float32"] * math.sqrt(terms)
    return SLACK * (stored + summed)


def relative_rms(precision: str, terms: int, steps: int) -> float:
    """Return what the rms of all errors may be, relative to the rms of all elements."""
    stored = math.sqrt(steps) * EPSILON.get(precision, EPSILON["float32"])
    summed = EPSILON["float64" if precision == "float64" else "float32"] * math.sqrt(terms)
    return RMS_SLACK * (stored + summed)


def compare(
    got: Any, wanted: Any, precision: str, terms: int = 1, steps: int = 1, atol: float | None = None
) -> dict[str, Any]:
    """Compare a result with its float64 reference (tensors of one shape, any device).

    Returns max_abs_err, the worst ratio of error (of an element, or of all on average) to its tolerance, counts of
    elements not finite where the reference is, and of those outside the tolerance. Integer and boolean results must be
    equal.
    """
    import torch

    if tuple(got.shape) != tuple(wanted.shape):
        return {"shape": list(got.shape), "shape_expected": list(wanted.shape), "over_tolerance": None}
    if got.is_complex() or wanted.is_complex():
        got, wanted = torch.view_as_real(got.resolve_conj()), torch.view_as_real(wanted.resolve_conj())
    exact = not got.is_floating_point()
    got, wanted = got.detach().to("cpu", torch.float64), wanted.detach().to("cpu", torch.float64)
    lost = 0
    if not all(math.isfinite(float(part.sum())) for part in (got, wanted)):
        got, wanted, lost = _finite_part(got, wanted)
    share = 0.0 if exact else relative(precision, terms, steps)
    floor = 0.0 if exact else FLOOR.get(precision, 0.0)
    count = max(got.numel(), 1)
    rms = float(torch.linalg.vector_norm(wanted)) / math.sqrt(count)
    error = torch.sub(got, wanted).abs_()
    largest = float(error.max()) if error.numel() else 0.0
    total = float(torch.linalg.vector_norm(error))
    allowed = wanted.abs().mul_(share).add_(share * rms + floor if atol is None else atol)
    ratio = error.div_(allowed).nan_to_num_(nan=0.0)  # 0 / 0: no error where none is allowed
    worst = float(ratio.max()) if ratio.numel() else 0.0
    outside = int((ratio > 1).sum()) if worst > 1 else 0
    if not exact and atol is None and got.numel() >= RMS_LEAST:
        most = relative_rms(precision, terms, steps) * rms + floor
        average = total / math.sqrt(count) / most if most else 0.0
        worst = max(worst, average)
        outside = outside or (int((torch.sub(got, wanted).abs_() > most).sum()) if average > 1 else 0)
    return {
        "elements": got.numel(),
        "not_finite": lost,
        "outside": outside,
        "max_abs_err": largest,
        "reference_rms": rms,
        "over_tolerance": worst if worst < sys.float_info.max else None,
    }


def _finite_part(got: Any, wanted: Any) -> tuple[Any, Any, int]:
    """Return both where both are finite, and how many elements are lost: not finite where the reference is, or another
    infinity (or NaN) than the reference's."""
    import torch

    good = torch.isfinite(got)
    same = (got == wanted) | (torch.isnan(got) & torch.isnan(wanted))
    both = good & torch.isfinite(wanted)
    return got[both], wanted[both], int((~both & ~same).sum())
