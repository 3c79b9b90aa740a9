"""Has somebody met this before? A small dated table of known problems, matched by what a failed operator said."""

from __future__ import annotations

import re
from typing import Any

from rocmlab import packaged


def table() -> dict[str, dict[str, Any]]:
    """Return `{name: {signature, operators?, hip?, seen, issue, evidence, en, zh}}`."""
    return packaged.read("problems.yaml")


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
