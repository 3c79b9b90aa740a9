"""What does this piece of evidence say? Every kind of foreign text is read here, recognised by its content.

`answer(Path("rocblas.log"))` gives the object that `rocmlab read --json` prints. A reader module has two functions:
`recognise(evidence) -> bool`, cheap and never raising, and `read(evidence) -> Reading`.
"""

from __future__ import annotations

import codecs
import functools
import importlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocmlab import findings
from rocmlab.findings import Finding

# In the order in which they are asked; each has recognise() and read(). Cheap and certain ones first.
MODULES = (
    "traces",
    "probes",
    "key_averages",
    "rocprof",
    "tools",
    "notebooks",
    "measurements",
    "applications",
    "records",
    "logs",
    "timers",
    "kernel_names",
    "unknown",
)

HEAD_BYTES = 1 << 16


@dataclass
class Reading:
    """What a reader found: a kind, flat numbers with the unit in the key, findings, and a headline only said."""

    kind: str
    schema: str | None = None
    numbers: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    headline: Finding | None = None
    extra: dict[str, Any] = field(default_factory=dict)


class Evidence:
    """One file (or run folder) to be recognised: bytes, text and JSON, each read at most once and only when asked."""

    def __init__(self, path: Path, window: str = "auto") -> None:
        self.path = path
        self.window = window  # which part of a trace to judge
        self.name = path.name

    @functools.cached_property
    def head(self) -> bytes:
        """The first 64 KiB, enough to recognise a kind without loading a large trace; b"" for a folder."""
        if self.path.is_dir():
            return b""
        with self.path.open("rb") as file:
            return file.read(HEAD_BYTES)

    @functools.cached_property
    def data(self) -> bytes:
        return b"" if self.path.is_dir() else self.path.read_bytes()

    @functools.cached_property
    def text(self) -> str:
        return decode(self.data)

    @functools.cached_property
    def json(self) -> Any:
        """The parsed JSON document (NaN and Infinity accepted), or None when it is not JSON."""
        if self.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
            return None
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    @property
    def schema(self) -> str | None:
        """The `schema` field of a JSON object, where there is one."""
        found = self.json.get("schema") if isinstance(self.json, dict) else None
        return found if isinstance(found, str) else None


def decode(data: bytes) -> str:
    """Decode text as tools really write it: UTF-8, UTF-16 with a mark (PowerShell), else GBK; never raises."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    for encoding in ("utf-8-sig", "gbk"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("utf-8", errors="replace")


def read(path: Path, window: str = "auto") -> Reading:
    """Read one file or run folder, a trace in the window asked for. Damaged content never raises.

    Raises OSError when it cannot be opened, ValueError when the window is none or not in this trace.
    """
    evidence = Evidence(path, window)
    for name in MODULES:
        module = importlib.import_module(f"rocmlab.readers.{name}")
        if module.recognise(evidence):
            return module.read(evidence)
    raise AssertionError("the reader of unknown content recognises everything")


def answer(path: Path, lang: str = "en", window: str = "auto") -> dict[str, Any]:
    """Return `{file, schema, kind, verdict, status, sentence, numbers, advice, findings}` for one file."""
    reading = read(path, window)
    ordered = findings.worst_first(reading.findings)
    code, status = findings.verdict(ordered)
    spoken = ([reading.headline] if reading.headline else []) + ordered
    sentence, advice = findings.paragraph(spoken, lang)
    return {
        "file": path.name,
        "schema": reading.schema,
        "kind": reading.kind,
        "verdict": code,
        "status": status,
        "sentence": sentence,
        "numbers": reading.numbers,
        "advice": advice,
        "findings": [findings.say(one, lang) for one in ordered],
        **reading.extra,
    }
