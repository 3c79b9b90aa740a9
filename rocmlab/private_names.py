"""Names of people and machines: where a text gives one away, and how a known one is found again in any writing. Pure.

`given_away(text)` finds them in home folders, variables, prompts and system logs. A name that is a word of our own
texts is taken out where it stands as a name only: "mark" or "the" taken out everywhere would ruin the text.
"""

from __future__ import annotations

import functools
import html
import re
import unicodedata
from importlib import resources
from urllib.parse import quote, quote_plus, unquote

# Slashes of both kinds, doubled by JSON, or as an address in the web writes them.
_SLASH = r"(?:[\\/]|%2F|%5C){1,8}"
_LETTER = r"(?:[^\\/\s\"'`:;,<>|*?()\[\]{}&%]|%(?!2F|5C|22|27)[0-9A-F]{2})"
# Windows' folders may hold blanks. Every length is bounded, so that a line of megabytes takes no hours.
_WORDS = rf"{_LETTER}{{1,64}}(?:[ ']{_LETTER}{{1,64}}){{0,4}}(?={_SLASH})|{_LETTER}{{1,64}}"
HOMES = re.compile(
    rf"(?i)(?:(?:(?<![a-z0-9])[a-z](?::|%3A)|[\\/]mnt[\\/][a-z]|(?<![\w/])/[a-z]){_SLASH}"
    rf"(?:users|documents(?: |%20)and(?: |%20)settings){_SLASH}({_WORDS})"
    rf"|{_SLASH}(?:home|users|run[\\/]media|media){_SLASH}({_LETTER}{{1,64}}))"
)
_MONTH = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
# Each with what must be in a text, in small letters, before it is worth a search: a trace has many megabytes.
TOLD = tuple(
    (hint, re.compile(pattern))
    for hint, pattern in (
        (
            "user|host|logname|computername|nodename",
            r"(?i)(?<![\w-])(?:user|username|logname|user_?name|host|hostname|host_?name|computername|userdomain|"
            r"pbs_o_host|slurmd_nodename|sudo_user)[\"']?[ \t]*[=:][ \t]*[\"']?([\w.-]{1,64})",
        ),
        ("@", r"(?<![\w.@/-])([\w.-]{1,64})@[\w.-]{1,64}:[~/]\S{0,200}[$#]"),  # a prompt
        ("@", r"(?<![\w.@/-])[\w.-]{1,64}@([\w.-]{1,64}):[~/]\S{0,200}[$#]"),
        ("linux ", r"(?<![A-Za-z])Linux ([\w.-]{1,64}) \d+\.\d+[\w.+-]{0,60} #\d+"),  # uname -a
        (
            "kernel:|systemd|]: ",
            rf"(?:{_MONTH})\s{{1,2}}\d{{1,2}} \d\d:\d\d:\d\d ([\w.-]{{1,64}}) [\w./-]{{1,64}}(?:\[\d+\])?:",
        ),  # the system's log
        (
            "kernel:|systemd|]: ",
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:?\d\d ([\w.-]{1,64}) [\w./-]{1,64}(?:\[\d+\])?:",
        ),
        ("\\\\", r"(?<=[\s\"'=])(?:\\\\){1,2}([\w-]{1,64})(?:\\){1,2}[\w$-]{1,64}\\"),  # a server's share
        (":x:", r"(?<![\w.-])([\w.-]{1,64}):x:\d+:\d+:"),  # /etc/passwd
    )
)
# A variable of the system holds a name whatever the name is.
ASSIGNED = re.compile(
    r"(?<![\w-])((?:USER|USERNAME|LOGNAME|SUDO_USER|HOSTNAME|COMPUTERNAME|USERDOMAIN|PBS_O_HOST|SLURMD_NODENAME)"
    r"(?:\\?[\"']\s*[:,]\s*\\?[\"']|=[\"']?))[\w.-]+"
)
KEYS = re.compile(r"(?i)(?:user_?name|logname|host_?name|computer_?name|user_?domain|node_?name)")
DEFAULT_HOSTS = re.compile(
    r"(?<![\w-])(?:(?:DESKTOP|LAPTOP|WIN)-[A-Z0-9]{6,12}|ip(?:-\d{1,3}){4}|[\w-]{1,40}-MacBook(?:-\w{1,20}){0,4})(?![\w-])"
)
# Words that stand where names may stand and are none.
NO_NAMES = {
    "user", "users", "root", "public", "default", "admin", "administrator", "runner", "ubuntu", "debian", "fedora",
    "test", "home", "localhost", "shared", "none", "null", "true", "false", "unknown", "host", "cpu", "gpu",
    "cuda", "hip", "device", "python", "torch", "all", "linux", "windows", "model", "driver", "name", "hidden",
    "username", "hostname", "time", "amd", "system", "auto", "local", "self", "jovyan", "jupyter", "vscode",
    "radeon", "ryzen", "nvidia", "geforce", "intel", "xeon", "epyc", "rocm", "workspace", "wsl",
}  # fmt: skip
NO_NAME = re.compile(r"[\d.]+|(?:gfx|sm_|navi)\w+|\w+\.(?:so|dll|py|exe)")
LONG = 5  # letters of a name that is also looked for inside "name-desktop", "name_models" and "names"


@functools.cache
def vocabulary() -> frozenset[str]:
    """Return the words, in small letters, that this package itself writes: its sentences, keys and names of records."""
    tables = [one for one in resources.files("rocmlab").iterdir() if one.name.endswith((".yaml", ".py", ".j2"))]
    others = ("archs.yaml", "private_names.py")  # with names of cards, of months
    texts = [one.read_text(encoding="utf-8") for one in tables if one.name not in others]
    forms = (r"[A-Za-z]{2,}", r"[A-Za-z][\w-]+")  # a word, and a key of several
    return frozenset(word.lower() for text in texts for form in forms for word in re.findall(form, text))


def ordinary(name: str) -> bool:
    """Tell whether a name is no secret, or would ruin a text if it were taken out everywhere."""
    name = name.lower()
    short = len(name) < (3 if name.isascii() else 2)
    return short or name in NO_NAMES or NO_NAME.fullmatch(name) is not None or name in vocabulary()


def given_away(text: str) -> set[str]:
    """Return the names in a text's home folders, variables, prompts and logs; each whole and in its parts."""
    small = text.lower()
    found = {one for pair in HOMES.findall(text) for one in pair if one}
    for hint, pattern in TOLD:
        if any(one in small for one in hint.split("|")):
            found.update(pattern.findall(text))
    whole = {unicodedata.normalize("NFC", unquote(one)).strip("<>.- ") for one in found}
    parts = {part for one in whole for part in re.split(r"[ .']", one)}
    return {one for one in whole | parts if not ordinary(one)}


def without_homes(text: str) -> str:
    """Return a text with <user> in place of every home folder's name, and <name> as the value of a variable."""
    return ASSIGNED.sub(r"\1<name>", HOMES.sub(_unnamed, text))


def _unnamed(match: re.Match[str]) -> str:
    begin = match.start(match.lastindex or 0)
    return match.group()[: begin - match.start()] + "<user>"


def pattern(names: set[str]) -> re.Pattern[str]:
    """Return what finds the names again, the longest first: also in small letters, in an address, escaped."""
    return re.compile("|".join(_one(name) for name in sorted(names, key=lambda one: (-len(one), one))), re.IGNORECASE)


def _one(name: str) -> str:
    forms = {name, unicodedata.normalize("NFD", name), quote(name), quote_plus(name), html.escape(name)}
    forms |= {name.encode("unicode_escape").decode("ascii"), name.replace("'", "&#39;")}
    any_form = "|".join(re.escape(one) for one in sorted(forms, key=lambda one: (-len(one), one)))
    if not name.isascii():
        return f"(?:{any_form})"  # Chinese has no blanks between words
    begin, end = (r"A-Za-z0-9", r"(?:'?s)?(?![A-Za-z0-9])") if len(name) >= LONG else (r"\w-", r"(?![\w-])")
    return rf"(?:(?<![{begin}])|(?<=%[0-9A-F]{{2}})|(?<=\\[nrt]))(?:{any_form}){end}"
