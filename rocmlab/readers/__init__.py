"""What does this piece of evidence say? Every kind of foreign text is read here, recognised by its content.

`answer(Path("rocblas.log"))` gives the object that `rocmlab read --json` prints. A reader module has two functions:
`recognise(evidence) -> bool`, cheap and never raising, and `read(evidence) -> Reading`.
"""

from __future__ import annotations

import codecs
import errno
import functools
import importlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocmlab import findings, words
from rocmlab.findings import Finding, finding

# In the order in which they are asked; each has recognise() and read(). Cheap and certain ones first.
MODULES = (
    "bundles",
    "traces",
    "probes",
    "key_averages",
    "rocprof",
    "tools",
    "notebooks",
    "gemm_rates",
    "llama_bench",
    "measurements",
    "applications",
    "records",
    "logs",
    "timers",
    "kernel_names",
    "unknown",
)

HEAD_BYTES = 1 << 16
MOST_SAID = 8  # findings in words; a whole run has dozens, and all of them are in the JSON


class WindowError(ValueError):
    """The window asked for is none, or is not in this trace: an error of the question, not of the file."""


@dataclass
class Reading:
    """What a reader found: a kind, flat numbers with the unit in the key, findings, and a headline only said. What a
    run answers to the three questions (`answers`) is said before its findings."""

    kind: str
    schema: str | None = None
    numbers: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    headline: Finding | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    answers: list[Finding] = field(default_factory=list)


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
        if self.path.exists() and not self.path.is_file():
            raise OSError(errno.EINVAL, "neither a file nor a folder; write it into a file first")
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
        if decode(self.head[:64]).lstrip()[:1] not in ("{", "["):
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
    """Decode text as tools really write it: UTF-8, UTF-16 (PowerShell; cmd /u leaves out the mark), else GBK.

    Never raises.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16", errors="replace")
    if data.startswith(codecs.BOM_UTF8):
        return data.decode("utf-8-sig", errors="replace")
    ends = data[:200:2], data[1:200:2]
    for order, (zeros, letters) in {"utf-16-le": ends[::-1], "utf-16-be": ends}.items():
        if zeros and zeros.count(0) > 0.9 * len(zeros) and letters.count(0) == 0:
            return data.decode(order, errors="replace")
    for encoding in ("utf-8", "gbk"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("utf-8", errors="replace")


def read(path: Path, window: str = "auto") -> Reading:
    """Read one file or run folder, a trace in the window asked for. Damaged content never raises.

    A reader that fails gives a Reading of kind unknown that says so, so that one file never stops the others. Raises
    OSError when the file cannot be opened, WindowError when the window is none or not in this trace.
    """
    evidence = Evidence(path, window)
    if not path.is_dir():
        evidence.head  # noqa: B018 (a file that cannot be opened is no reader's fault)
    for name in MODULES:
        module = importlib.import_module(f"rocmlab.readers.{name}")
        try:
            if module.recognise(evidence):
                return module.read(evidence)
        except WindowError:
            raise
        except Exception as error:  # whatever a damaged file makes a reader do
            return failed(path.name, words.both(f"looks_{name}"), error)
    raise AssertionError("the reader of unknown content recognises everything")


def failed(file: str, looks: str | dict[str, str], error: Exception) -> Reading:
    """Return the reading of a file that one of the readers took, and then could not read."""
    said = f"{type(error).__name__}: {str(error)[:200]}".removesuffix(": ")
    return Reading("unknown", findings=[finding("READER_FAILED", file=file, looks=looks, error=said)])


def answer(path: Path, lang: str = "en", window: str = "auto") -> dict[str, Any]:
    """Return `{file, schema, kind, verdict, status, sentence, numbers, advice, findings}` for one file."""
    reading = read(path, window)
    try:
        return _said(path, reading, lang)
    except Exception as error:  # a sentence lacks a number, or cannot hold one of its type
        return _said(path, failed(path.name, reading.kind, error), lang)


def _said(path: Path, reading: Reading, lang: str) -> dict[str, Any]:
    ordered = findings.worst_first(reading.findings)
    code, status = findings.verdict(ordered)
    answered = {one["code"] for one in reading.answers}
    others = [one for one in ordered if one["code"] not in answered] if reading.answers else ordered
    spoken = ([reading.headline] if reading.headline else []) + reading.answers + others[:MOST_SAID]
    if others[MOST_SAID:]:
        spoken.append(finding("MORE_FINDINGS", numbers={"more": len(others) - MOST_SAID}))
    sentence, advice = findings.paragraph(spoken, lang)
    told = {
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
    return _finite(told)


def _finite(value: Any) -> Any:
    """Return the same without NaN and Infinity, which JSON does not know: null, in an object with its reason."""
    if isinstance(value, dict):
        odd = {f"{key}_reason": "not a finite number" for key, item in value.items() if _is_odd(item)}
        return {key: _finite(item) for key, item in value.items()} | odd
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if _is_odd(value) else value


def _is_odd(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
