"""The catalogue: which operators are tried, in which dtypes, with which inputs. Data and small functions only.

`CHECKS` is a list of check.Check by family. Another catalogue is any "module:NAME" that holds such a list.
"""

from __future__ import annotations

import functools
import importlib

from rocmlab.operators import elements, machinery, models, products, training
from rocmlab.operators.check import FLOATS, Check

__all__ = ["CHECKS", "CURATED", "FLOATS", "load"]

CURATED = "rocmlab.operators:CHECKS"
CHECKS: list[Check] = [*elements.CHECKS, *products.CHECKS, *models.CHECKS, *training.CHECKS, *machinery.CHECKS]


@functools.cache
def load(catalogue: str = CURATED) -> dict[str, Check]:
    """Return `{name: check}` of a catalogue, in its order. Raises ValueError when a name stands twice."""
    module, _, name = catalogue.partition(":")
    checks = getattr(importlib.import_module(module), name)
    found = {check.name: check for check in checks}
    if len(found) != len(checks):
        raise ValueError(f"{catalogue}: a name stands twice")
    return found
