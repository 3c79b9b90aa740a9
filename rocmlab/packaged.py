"""The YAML files that the package brings along: words, findings, suspects, targets. Each is read once in a process."""

from __future__ import annotations

import functools
from importlib import resources
from typing import Any

import yaml

# Ten times as fast; a PyYAML that was built without libyaml lacks it. Every kernel and child of a report reads them.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def read(name: str) -> Any:
    """Return what a file such as "words.yaml" holds."""
    return yaml.load(resources.files("rocmlab").joinpath(name).read_text(encoding="utf-8"), Loader=LOADER)
