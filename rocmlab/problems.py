"""Has somebody met this before? A small dated table of known problems, matched by what a failed operator said."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import Any

import yaml


@functools.cache
def table() -> dict[str, dict[str, Any]]:
    """Return `{name: {signature, operators?, hip?, seen, issue, evidence, en, zh}}`."""
    return yaml.safe_load(resources.files("rocmlab").joinpath("problems.yaml").read_text(encoding="utf-8"))


def match(op: str, texts: list[str], *, hip: bool) -> str | None:
    """Return the name of the first problem whose signature stands in one of the texts, None where none does.

    `operators` limits a problem to operators whose name holds one of those words, `hip` to ROCm builds.
    """
    said = "\n".join(texts)
    for name, entry in table().items():
        if entry.get("hip") and not hip:
            continue
        if entry.get("operators") and not re.search(entry["operators"], op):
            continue
        if re.search(entry["signature"], said):
            return name
    return None
