"""Which pieces of a damaged trace can still be used?

`pieces(data)` cuts the bytes of a trace into one piece an event, without decoding them, also when the file is cut or
is no valid JSON any more; `mended(piece)` repairs one event that does not decode. Nothing here raises for bad content.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import re
import zlib
from dataclasses import dataclass, field
from typing import Any

import msgspec

GZIP = b"\x1f\x8b"
BLOCK_BYTES = 1 << 24

EVENTS_KEY = re.compile(rb'(?<!\\)"traceEvents"\s*:')
# An event starts an object that follows "[" or ","; objects inside an event follow ":" instead.
EVENT_START = re.compile(rb'(?<=[\[,])[ \t\r\n]*(?=\{[ \t\r\n]*")')
LIST_END = re.compile(rb"\}\s*\](?:[^\[\]{}]*\})?\s*$")
CONTROL = re.compile(r"[\x00-\x1f\x7f]")
NOT_JSON = re.compile(r"(?<=[:\[,])(\s*)-?(?:NaN|Infinity|nan|inf)\b")
ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')
# A name ends at the quote that is followed by the next key or by the end of the object.
NAME = re.compile(r'("name"\s*:\s*")(.*?)(?="\s*(?:,\s*"[\w ]{1,24}"\s*:|\}))', re.DOTALL)
BARE_QUOTE = re.compile(r'(?<!\\)"')
LOST_BACKSLASH = str.maketrans({"\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"})
PATH_LIKE = re.compile(r"\.pyc?\(\d+\)")


class Document(msgspec.Struct, gc=False):
    """The outer object of a trace; its events stay undecoded."""

    traceEvents: list[msgspec.Raw]
    deviceProperties: Any = None


@dataclass
class Pieces:
    """Undecoded events, the header that was readable, and whether the file ends before its own end."""

    events: list[Any]
    listed: bool = False
    truncated: bool = False
    salvaged: bool = False
    devices: list[dict[str, Any]] = field(default_factory=list)


def unpacked(data: bytes) -> tuple[bytes, bool]:
    """Return (bytes, cut) of a gzip file or plain bytes; a damaged or cut gzip file gives what came before."""
    cut = False
    if data.startswith(GZIP):
        data, cut = _inflated(data)
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        data = data.decode("utf-16", errors="replace").encode()
    return data.removeprefix(codecs.BOM_UTF8), cut


def _inflated(data: bytes) -> tuple[bytes, bool]:
    blocks: list[bytes] = []
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        try:
            while block := file.read1(BLOCK_BYTES):
                blocks.append(block)
        except (EOFError, OSError, zlib.error):
            return b"".join(blocks), True
    return b"".join(blocks), False


def pieces(data: bytes) -> Pieces:
    """Cut a trace into its events: `{"traceEvents": [...]}` or a bare list, valid or not."""
    listed = data.lstrip()[:1] == b"["
    try:
        if listed:
            return Pieces(msgspec.json.decode(data, type=list[msgspec.Raw]), listed=True)
        document = msgspec.json.decode(data, type=Document)
        devices = document.deviceProperties if isinstance(document.deviceProperties, list) else []
        return Pieces(document.traceEvents, devices=[d for d in devices if isinstance(d, dict)])
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return _salvaged(data, listed)


def _salvaged(data: bytes, listed: bool) -> Pieces:
    """Cut at what looks like the start of an event; what follows the last one tells whether the file was cut."""
    found = EVENTS_KEY.search(data)
    begin = 0 if listed or not found else found.end()
    starts = list(EVENT_START.finditer(data, begin))
    if not starts:
        return Pieces([], listed=listed, truncated=not LIST_END.search(data[-BLOCK_BYTES:]), salvaged=True)
    view = memoryview(data)
    # Each piece ends before the comma in front of the next one.
    ends = [match.start() - 1 for match in starts[1:]]
    events: list[Any] = [view[a.end() : end] for a, end in zip(starts, ends, strict=False)]
    last, closed = _last(data[starts[-1].end() :])
    return Pieces([*events, *last], listed=listed, truncated=not closed, salvaged=True)


def _last(tail: bytes) -> tuple[list[bytes], bool]:
    """Return (the last event, unless it was cut, as a list; whether the list of events is closed after it)."""
    text = _cleaned(tail.decode("utf-8", errors="replace"))
    try:
        _, end = json.JSONDecoder().raw_decode(text)
        return [text[:end].encode()], text[end:].lstrip().startswith("]")
    except (ValueError, RecursionError):
        closed = LIST_END.search(tail)
        return ([tail[: closed.start() + 1]], True) if closed else ([], False)


def mended(piece: bytes) -> Any:
    """Return the decoded object of a piece that is no valid JSON, or None when it cannot be repaired."""
    text = _cleaned(bytes(piece).decode("utf-8", errors="replace"))
    for closing in ("", "}", "}}"):  # a brace may be among the lost bytes
        try:
            found, _ = json.JSONDecoder().raw_decode(text + closing)
        except (ValueError, RecursionError):
            continue
        return found if isinstance(found, dict) else None
    return None


def _cleaned(text: str) -> str:
    """Make text JSON again: control bytes, names with bare quotes or single backslashes, NaN."""
    text = CONTROL.sub(" ", text)
    text = NAME.sub(lambda match: match[1] + _name(match[2]), text)
    text = ESCAPE.sub(lambda match: match[0] if match[1] else r"\\", text)
    return NOT_JSON.sub(r"\1null", text)


def _name(raw: str) -> str:
    if any(match[1] is None for match in ESCAPE.finditer(raw)):
        # This writer escapes nothing: every backslash stands for itself, also one that happens to precede an n.
        raw = raw.replace('\\"', '"').replace("\\", "\\\\")
    return BARE_QUOTE.sub(r"\"", raw)


def unescaped(name: str) -> str:
    r"""Give a Windows path the backslashes back that a writer left single: `a<newline>ew.py(4)` is `a\new.py(4)`."""
    if not any(character in name for character in "\n\t\r\b\f") or not PATH_LIKE.search(name):
        return name
    return name.translate(LOST_BACKSLASH)
