"""A bare list of kernel names, one a line: whose kernels they are, going by the names. Without times or counts."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from rocmlab import kernels
from rocmlab.findings import finding
from rocmlab.readers import Evidence, Reading, decode

# How a name begins, whole or cut off by dots: an identifier, then nothing more or the signature of a template. What
# follows a tab is somebody's remark.
NAME = re.compile(r"(?:void )?[A-Za-z_~][\w:~]*(?:\.{2,3}\w*)*(?:[<(.\[].*)?$")
LEAST = 2  # one word may be anything
SHARE = 0.8  # of the lines: more strangers than that, and it is another kind of text
LONGEST = 100_000


def recognise(evidence: Evidence) -> bool:
    if not evidence.head or evidence.json is not None:
        return False
    named = names(decode(evidence.head))
    known = [one for one in named if library(one) != kernels.OTHER]
    return len(known) >= LEAST and len(known) >= SHARE * len(named)


def read(evidence: Evidence) -> Reading:
    """Count the names by library; what no scheme of names fits is shown by name."""
    found = names(evidence.text)[:LONGEST]
    counts = Counter(map(library, found))
    numbers: dict[str, Any] = {"kernel_names": len(found)}
    numbers |= {f"names_{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}": n for name, n in counts.most_common()}
    listed = ", ".join(f"{name} {n}" for name, n in counts.most_common())
    headline = finding("KERNEL_NAMES_READ", count=len(found), listed=listed)
    return Reading("tool_output", numbers=numbers, headline=headline)


def names(text: str) -> list[str]:
    """Return the names of a text, one a line, without remarks and comments."""
    lines = (line.split("\t")[0].strip() for line in text.splitlines() if not line.startswith("#"))
    return [line for line in lines if line]


def library(name: str) -> str:
    """Return the library of a name; a bare word counts as nobody's, for a list of words is no list of kernels."""
    if not NAME.match(name):
        return kernels.OTHER
    found = kernels.library(name)
    return kernels.OTHER if found == kernels.BARE and not name.startswith("triton_") else found
