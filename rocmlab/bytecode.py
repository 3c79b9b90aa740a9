"""Where do child processes keep compiled modules, if Python is told to write none beside the sources?

Container images often set PYTHONDONTWRITEBYTECODE and bring a torch without compiled modules. Each child would compile
thousands of them again: about ten seconds a child with torch and transformers, longer than most of what it measures.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path

from rocmlab import bundled


@functools.cache
def variables() -> dict[str, str]:
    """Return variables by which children share compiled modules in the user's cache folder, where torch has none and
    none may be written beside it; {} everywhere else, and where that folder cannot be made."""
    found = importlib.util.find_spec("torch")
    if not sys.dont_write_bytecode or found is None or not found.origin:
        return {}
    if Path(importlib.util.cache_from_source(found.origin)).exists():
        return {}
    folder = bundled.cache() / "bytecode"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return {}
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder)}
