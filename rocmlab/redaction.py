"""What must not travel with a run: tokens, serial numbers, hardware addresses, and the names of people and machines.

`SECRETS` are patterns that `results.redact` applies to every string as it is written. `Redactor` reads a folder's texts
first, to learn the names that stand in home paths and variables, and then takes those out everywhere; for bundles.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from typing import Any

from rocmlab import private_names

HIDDEN, TOKEN, MAC, SERIAL, MAIL, ADDRESS, NAME = (
    "<hidden>", "<token>", "<mac>", "<serial>", "<mail>", "<address>", "<name>",
)  # fmt: skip

Pattern = tuple[re.Pattern[str], str]

# Keys whose value is private whatever it looks like; `token` alone is a word of language models.
PRIVATE_KEY = (
    r"[\w.-]{0,60}(?:passw(?:or)?d|secret|api[_-]?key|access[_-]?key|private[_-]?key|(?:api|auth|access|refresh|bearer|"
    r"session|bot|jupyter|modelscope|github|gh|hf|hub|gitlab|wandb|openai|anthropic)[_-]?token|"
    r"hugging[_-]?face[_-]?hub[_-]?token|authorization|cookie)[\w.-]*"
)
SERIAL_KEY = r"(?:\w{1,30}[_ -])?(?:serial(?:[_ -]?(?:number|num|no))?|unique[_ -]?id|uuid|guid|machine[_ -]?id)"
_VALUE = r"[^\s\"'`,;&<>\\]"

_BYTE = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_FOUR = rf"(?!127\.|0\.0\.0\.0){_BYTE}(?:\.{_BYTE}){{3}}(?![\w.]*\d)"
# A version may look like an address (nvidia-curand 10.3.9.90): four numbers count where nothing else can be meant.
_ADDRESSES = (
    rf"(?<![\w.])(?=192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.){_FOUR}",
    rf"(?i)(?:(?<=://)|(?<=@)|(?<=\binet )|(?<=\bip )|(?<=\bip[:=])|(?<=\bssh )|(?<=addr:)|(?<=address: )){_FOUR}",
    rf"(?<![\w.]){_FOUR}(?=:\d{{2,5}}(?!\d)|/\d{{1,2}}(?![\w.]))",
    r"(?i)(?<![\w:.])fe80:(?::[0-9a-f]{1,4}){1,7}",
    r"(?i)(?<![\w:.])(?:f[cd][0-9a-f]{2}|[23][0-9a-f]{3})"
    r"(?:(?::[0-9a-f]{1,4}){7}|(?::[0-9a-f]{1,4}){1,6}::[0-9a-f:]*)(?![\w:])",
)

SECRETS: tuple[Pattern, ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), TOKEN),
    (re.compile(r"(?<![A-Za-z0-9])(?:hf|gh[pousr]|glpat|xox[abeprs]|npm|pypi|dckr_pat)[_-][\w-]{16,}"), TOKEN),
    (re.compile(r"(?<![A-Za-z0-9])github_pat_\w{20,}"), TOKEN),
    (re.compile(r"(?<![A-Za-z0-9])sk-[\w-]{20,}"), TOKEN),
    (re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA|AIDA|AROA)[0-9A-Z]{16}(?![0-9A-Za-z])"), TOKEN),
    (re.compile(r"(?<![A-Za-z0-9])AIza[\w-]{35}"), TOKEN),
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+"), TOKEN),  # a JSON web token
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/-]{12,}=*"), rf"\1 {TOKEN}"),
    (re.compile(r"(?i)(?<![\w+.-])([a-z][\w+.-]{0,30}://)[^\s/:@\"'<>\\]{1,80}:[^\s/@\"'<>\\]{1,200}@"),
     rf"\1{HIDDEN}@"),
    (re.compile(rf"(?i)(?<![\w-])({PRIVATE_KEY})([\"']?\s*[=:]\s*[\"']?)(?!<)(?!null|none\b|true\b|false\b){_VALUE}{{3,}}"),
     rf"\1\2{HIDDEN}"),
    (re.compile(rf"(?i)(?<![\w-])({SERIAL_KEY})([\"']?\s*[=:]\s*[\"']?| is )(?=[\w:.-]*\d)[\w:.-]{{6,}}"),
     rf"\1\2{SERIAL}"),
    (re.compile(r"(?<![\w-])(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){2,}[0-9a-fA-F-]*"), SERIAL),
    (re.compile(r"(?<![0-9A-Fa-f:-])[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:-])"), MAC),
    (re.compile(r"(?<![0-9A-Fa-f:-])[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){6}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:-])"), MAC),
    (re.compile(r"(?i)([?&#]token=)[\w.-]{12,}"), rf"\1{TOKEN}"),  # of a notebook server
    (re.compile(r"\bS-1-5-21(?:-\d+){3,4}"), SERIAL),  # an account of Windows
    (re.compile(r"(:x:\d+:\d+:)[^:\n]+(?=:)"), rf"\1{NAME}"),  # /etc/passwd
    (re.compile(r"(?<![\w.+-])[\w.+-]{1,64}(?:@|%40)(?:[\w-]{1,63}\.){1,6}"
                r"(?:com|org|net|edu|gov|info|xyz|dev|local|lan|[a-z]{2})(?![\w(])"), MAIL),
    *((re.compile(one), ADDRESS) for one in _ADDRESSES),
)  # fmt: skip
_KEY = re.compile(rf"(?i){PRIVATE_KEY}")
_SERIAL_KEY = re.compile(rf"(?i){SERIAL_KEY}")

# In base64, in one line or in lines, whose ends JSON writes as an escape.
PICTURE = re.compile(r"(?:iVBORw0KGgo|/9j/|R0lGOD)[A-Za-z0-9+/]{40,}(?:(?:\\n|\n)[A-Za-z0-9+/]{2,})*={0,2}(?:\\n|\n)?")
# What a picture needs to be seen; all else may hold a text.
CHUNKS = {b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"bKGD", b"pHYs", b"gAMA", b"cHRM", b"sRGB", b"sBIT"}
MARKS = {"n": "\x01", "r": "\x02", "t": "\x03"}
SHORT = 2000  # characters of a text that is worth remembering
PNG_HEAD = b"\x89PNG\r\n\x1a\n"


def private(key: Any, value: Any) -> str | None:
    """Return what stands in place of a value whose key says that it is private; None for any other."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 99_999:
        value = str(value)
    if not isinstance(value, str) or len(value) < 2:
        return None
    if private_names.KEYS.fullmatch(str(key)):
        return None if value.lower() in private_names.NO_NAMES else NAME
    if _KEY.fullmatch(str(key)) and len(value) > 2:
        return HIDDEN
    return SERIAL if _SERIAL_KEY.fullmatch(str(key)) and re.search(r"\d", value) and len(value) >= 6 else None


MARK = re.compile(r"<(hidden|token|mac|serial|mail|address|name|user|host)>")


def escaped(text: str) -> str:
    """Return a text for a page or a forum, in which our marks are no tags that a browser would drop."""
    return MARK.sub(r"&lt;\1&gt;", text)


def plain_png(data: bytes) -> bytes:
    """Return a PNG with what is needed to see it, without texts, time, camera; what is no whole PNG becomes b""."""
    if not data.startswith(PNG_HEAD):
        return b""
    kept, at = [PNG_HEAD], len(PNG_HEAD)
    while at + 12 <= len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, end = data[at + 4 : at + 8], at + 12 + length
        if end > len(data):
            return b""
        if kind in CHUNKS:
            kept.append(data[at:end])
        if kind == b"IEND":
            return b"".join(kept)  # what follows is no picture
        at = end
    return b""


def _picture(match: re.Match[str]) -> str:
    """Return a picture in base64 without its texts; what is no PNG stays as it is."""
    raw = match.group().replace("\\n", "").replace("\n", "")
    try:
        clean = plain_png(base64.b64decode(raw, validate=True))
    except ValueError:
        return match.group()
    return base64.b64encode(clean).decode("ascii") if clean else match.group()


class Redactor:
    """Takes names, tokens, serials and addresses out of texts; `learn` every text of a folder before `text` on any."""

    def __init__(self, patterns: list[Pattern]) -> None:
        self.patterns, self.names = patterns, set[str]()
        self._again: re.Pattern[str] | None = None
        self._known: dict[str, str] = {}  # a trace says the same a hundred thousand times

    def learn(self, text: str) -> None:
        """Note the names that a text gives away, apart from ordinary words."""
        new = private_names.given_away(text) - self.names
        if new:
            self.names |= new
            self._again = private_names.pattern(self.names)
            self._known.clear()

    def text(self, text: str) -> str:
        """Return a text without what is private; pictures in base64 only lose what is written into them."""
        if len(text) > SHORT:
            return self._long(text)
        if text not in self._known:
            self._known[text] = self._long(text)
        return self._known[text]

    def _long(self, text: str) -> str:
        done, at = [], 0
        for match in PICTURE.finditer(text):
            done += [self._plain(text[at : match.start()]), _picture(match)]
            at = match.end()
        return "".join([*done, self._plain(text[at:])])

    def _plain(self, text: str) -> str:
        text = private_names.without_homes(text)
        for pattern, mark in self.patterns:
            text = pattern.sub(mark, text)
        text = private_names.DEFAULT_HOSTS.sub("<host>", text)
        return self._again.sub(NAME, text) if self._again else text

    def json(self, value: Any) -> Any:
        """Return a JSON value without what is private, in its keys as well; values of private keys are hidden."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): private(key, item) or self.json(item) for key, item in value.items()}
        if not isinstance(value, list):
            return value
        if len(value) > 1 and all(isinstance(one, str) for one in value) and any(one.endswith("\n") for one in value):
            return self.text("".join(value)).splitlines(keepends=True)  # how a notebook keeps a text
        return [self.json(item) for item in value]

    def json_text(self, text: str, indent: int | None = None) -> str:
        """Return JSON text without what is private, with letters as themselves; what is no JSON is treated as text."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return self._cut(text)
        return json.dumps(self.json(value), ensure_ascii=False, indent=indent, allow_nan=True)

    def _cut(self, text: str) -> str:
        """Return JSON that was cut without what is private: escapes of line ends would hide where a word starts."""
        opened = re.sub(r"(?<!\\)\\([nrt])", lambda m: "\n" + MARKS[m[1]], text)
        return re.sub("\n([\x01-\x03])", lambda m: "\\" + "nrt"[ord(m[1]) - 1], self.text(opened))
