"""What must not travel with a run: tokens, serial numbers, hardware addresses, and the names of people and machines.

`SECRETS` are patterns that `results.redact` applies to every string as it is written. `Redactor` reads a folder's texts
first, to learn the names that stand in home paths and variables, and then takes those out everywhere; for bundles.
"""

from __future__ import annotations

import base64
import functools
import json
import re
import struct
from importlib import resources
from typing import Any

HIDDEN, TOKEN, MAC, SERIAL, MAIL = "<hidden>", "<token>", "<mac>", "<serial>", "<mail>"

Pattern = tuple[re.Pattern[str], str]

# Keys whose value is private whatever it looks like; `token` alone is a word of language models.
PRIVATE_KEY = (
    r"[\w.-]*(?:passw(?:or)?d|secret|api[_-]?key|access[_-]?key|private[_-]?key|(?:auth|access|refresh|bearer|github|gh|"
    r"hf|hub|gitlab|wandb|openai|anthropic)[_-]?token|hugging[_-]?face[_-]?hub[_-]?token|authorization|cookie)[\w.-]*"
)
SERIAL_KEY = r"(?:\w+[_ -])?(?:serial(?:[_ -]?(?:number|num|no))?|unique[_ -]?id|uuid|guid|machine[_ -]?id)"
_VALUE = r"[^\s\"'`,;&<>\\]"

SECRETS: tuple[Pattern, ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), TOKEN),
    (re.compile(r"(?<![A-Za-z0-9])(?:hf|gh[pousr]|glpat|xox[abeprs]|npm|pypi|dckr_pat)[_-][\w-]{16,}"), TOKEN),
    (re.compile(r"(?<![A-Za-z0-9])github_pat_\w{20,}"), TOKEN),
    (re.compile(r"(?<![A-Za-z0-9])sk-[\w-]{20,}"), TOKEN),
    (re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA|AIDA|AROA)[0-9A-Z]{16}(?![0-9A-Za-z])"), TOKEN),
    (re.compile(r"(?<![A-Za-z0-9])AIza[\w-]{35}"), TOKEN),
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+"), TOKEN),  # a JSON web token
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/-]{12,}=*"), rf"\1 {TOKEN}"),
    (re.compile(r"(?i)([a-z][\w+.-]*://)[^\s/:@\"'<>\\]+:[^\s/@\"'<>\\]+@"), rf"\1{HIDDEN}@"),
    (re.compile(rf"(?i)(?<![\w-])({PRIVATE_KEY})([\"']?\s*[=:]\s*[\"']?)(?!<)(?!null|none\b|true\b|false\b){_VALUE}{{3,}}"),
     rf"\1\2{HIDDEN}"),
    (re.compile(rf"(?i)(?<![\w-])({SERIAL_KEY})([\"']?\s*[=:]\s*[\"']?)(?=[\w:.-]*\d)[\w:.-]{{6,}}"), rf"\1\2{SERIAL}"),
    (re.compile(r"(?<![\w-])(?:GPU|MIG)-[0-9a-fA-F]{8}(?:-?[0-9a-fA-F]{4}){2,}[0-9a-fA-F-]*"), SERIAL),
    (re.compile(r"(?<![0-9A-Fa-f:-])[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:-])"), MAC),
    (re.compile(r"(?<![0-9A-Fa-f:-])[0-9A-Fa-f]{2}([:-])(?:[0-9A-Fa-f]{2}\1){6}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:-])"), MAC),
    (re.compile(r"(?<![\w.+-])[\w.+-]+@(?:[\w-]+\.)+(?:com|org|net|edu|gov|io|dev|cn|de|uk|fr|jp|eu|local)\b"), MAIL),
)  # fmt: skip
_KEY = re.compile(rf"(?i){PRIVATE_KEY}")
_SERIAL_KEY = re.compile(rf"(?i){SERIAL_KEY}")

# Where a text gives a name away: home folders, and variables that hold a user or a host.
_NAME = r"[^\\/\s\"'`:;,<>|*?()]+"
HOMES = re.compile(r"(?i)(?:[a-z]:[\\/]+(?:users|documents and settings)[\\/]+|/home/|/Users/|/mnt/[a-z]/users/)"
                   rf"({_NAME}(?: {_NAME})?(?=[\\/])|{_NAME})")  # fmt: skip
NAMED = re.compile(
    r"(?i)(?<![\w-])(?:user|username|logname|user_?name|host|hostname|host_?name|computername|userdomain|"
    r"pbs_o_host|slurmd_nodename|sudo_user)[\"']?\s*[=:]\s*[\"']?([\w.-]{3,})"
)
DEFAULT_HOSTS = re.compile(r"(?<![\w-])(?:DESKTOP|LAPTOP|WIN)-[A-Z0-9]{6,12}(?![\w-])")
# Words that stand where names may stand and are none.
NO_NAMES = {
    "user", "users", "root", "public", "default", "admin", "administrator", "runner", "ubuntu", "debian",
    "test", "home", "localhost", "shared", "none", "null", "true", "false", "unknown", "host", "cpu", "gpu",
    "cuda", "hip", "device", "python", "torch", "all", "linux", "windows", "model", "driver", "name", "hidden",
    "username", "hostname", "time", "amd", "system", "auto", "local", "self",
}  # fmt: skip

# In base64, in one line or in lines, whose ends JSON writes as an escape.
PICTURE = re.compile(r"(?:iVBORw0KGgo|/9j/|R0lGOD)[A-Za-z0-9+/]{40,}(?:(?:\\n|\n)[A-Za-z0-9+/]{2,})*={0,2}(?:\\n|\n)?")
TEXT_CHUNKS = {b"tEXt", b"zTXt", b"iTXt", b"eXIf", b"tIME"}
MARKS = {"n": "\x01", "r": "\x02", "t": "\x03"}
SHORT = 2000  # characters of a text that is worth remembering
PNG_HEAD = b"\x89PNG\r\n\x1a\n"


@functools.cache
def vocabulary() -> frozenset[str]:
    """Return the words, in small letters, that this package itself writes."""
    tables = [one for one in resources.files("rocmlab").iterdir() if one.name.endswith(".yaml")]
    texts = [one.read_text(encoding="utf-8") for one in tables if one.name != "archs.yaml"]  # names of cards are there
    return frozenset(word.lower() for text in texts for word in re.findall(r"[A-Za-z][\w-]{2,}", text))


def private(key: Any, value: Any) -> str | None:
    """Return what stands in place of a value whose key says that it is private; None for any other."""
    if not isinstance(value, str) or len(value) < 3:
        return None
    if _KEY.fullmatch(str(key)):
        return HIDDEN
    return SERIAL if _SERIAL_KEY.fullmatch(str(key)) and re.search(r"\d", value) and len(value) >= 6 else None


def plain_png(data: bytes) -> bytes:
    """Return a PNG without its text, time and camera chunks; anything that is no whole PNG becomes b""."""
    if not data.startswith(PNG_HEAD):
        return b""
    kept, at = [PNG_HEAD], len(PNG_HEAD)
    while at + 12 <= len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, end = data[at + 4 : at + 8], at + 12 + length
        if end > len(data):
            return b""
        if kind not in TEXT_CHUNKS:
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
        self._known: dict[str, str] = {}  # a trace says the same a hundred thousand times

    def learn(self, text: str) -> None:
        """Note the names that a text gives away in home paths and variables.

        After "host:" there may also stand a sentence, so a word of our own prose is no name there.
        """
        prose = vocabulary()
        for found in (*HOMES.findall(text), *(one for one in NAMED.findall(text) if one.lower() not in prose)):
            name = found.strip("<>.- ")
            if len(name) > 2 and name.lower() not in NO_NAMES and not re.fullmatch(r"[\d.]+", name):
                self.names.add(name)
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
        text = HOMES.sub(lambda m: m.group()[: m.start(1) - m.start()] + "<user>", text)
        for pattern, mark in self.patterns:
            text = pattern.sub(mark, text)
        text = DEFAULT_HOSTS.sub("<host>", text)
        for name in sorted(self.names, key=len, reverse=True):
            text = re.sub(rf"(?i)(?<![\w-]){re.escape(name)}(?![\w-])", "<name>", text)
        return text

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
