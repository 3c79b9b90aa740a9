"""What was found, and how it is said: one table of codes, two languages.

A judge calls `finding("KERNELS_MISSING", arch="gfx1032", numbers={...})`; a page calls `say(finding, "zh")`.
The codes, their status, their sort and all wording live in `messages.yaml`, nowhere else.
"""

from __future__ import annotations

import math
import string
from typing import Any

from rocmlab import packaged

LANGUAGES = ("en", "zh")
ORDER = ("broken", "unknown", "warn", "ok")  # worst first
UNKNOWN = {"en": "unknown", "zh": "未知"}

Finding = dict[str, Any]


class _Nullable(string.Formatter):
    """Format what is no number, where one belongs, as the word "unknown", whatever its format specification says, and
    thousands as people write them: 1,460 and not 1.46e+03."""

    def __init__(self, lang: str) -> None:
        self.lang = lang

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None or (isinstance(value, float) and not math.isfinite(value)):
            return UNKNOWN[self.lang]
        try:
            said = format(value, format_spec)
            return f"{float(said):,.0f}" if "e+0" in said and format_spec.endswith("g") else said
        except (TypeError, ValueError, OverflowError):  # a list, a word or 10**400 from somebody's file
            return UNKNOWN[self.lang]


def messages() -> dict[str, dict[str, Any]]:
    """Return the table of codes: `{code: {status, sort, en: {sentence, advice}, zh: {...}, variants?}}`."""
    return packaged.read("messages.yaml")


def finding(code: str, *, numbers: dict[str, Any] | None = None, variant: str | None = None, **words: Any) -> Finding:
    """Make one finding.

    `numbers` go into the answer (flat, unit in the key, null plus `<key>_reason` where unknown); `words` fill
    placeholders only; one given as `{"en": ..., "zh": ...}` is said in the language of the sentence. `variant`
    picks another wording of the same code. NaN and infinities become null with a reason. Raises KeyError for an
    unknown code.
    """
    entry = messages()[code]
    return {
        "code": code,
        "status": entry["status"],
        "sort": entry["sort"],
        "numbers": finite(numbers or {}),
        "words": words,
        "variant": variant,
    }


def finite(numbers: dict[str, Any]) -> dict[str, Any]:
    """Return flat numbers with NaN and infinities as null, each with `<key>_reason`: JSON has neither."""
    found = dict(numbers)
    for key, value in numbers.items():
        if isinstance(value, float) and not math.isfinite(value):
            found |= {key: None, f"{key}_reason": f"came out as {value}, which is no number"}
    return found


def say(found: Finding, lang: str = "en") -> Finding:
    """Return `{code, status, sentence, numbers, advice}` in one language; advice is "" where there is none."""
    if "said" in found:  # read back from a findings.json: its words are not kept, only what was said
        return {**{key: found[key] for key in ("code", "status", "numbers")}, **found["said"][lang]}
    entry = messages()[found["code"]]
    if found.get("variant"):
        entry = entry["variants"][found["variant"]]
    given = {**found["numbers"], **found["words"]}
    values = {key: value.get(lang) if isinstance(value, dict) else value for key, value in given.items()}
    wording, formatter = entry[lang], _Nullable(lang)
    said = {part: formatter.vformat(wording.get(part) or "", (), values) for part in ("sentence", "advice")}
    return {"code": found["code"], "status": found["status"], "numbers": found["numbers"], **said}


def worst_first(found: list[Finding]) -> list[Finding]:
    """Sort findings broken, unknown, warn, ok; notes come after answers and faults of the same status."""
    return sorted(found, key=lambda f: (ORDER.index(f["status"]), f["sort"] == "note"))


def verdict(found: list[Finding]) -> tuple[str, str]:
    """Return (code, status) of the worst finding; an answer counts even when ok, a note or headline never does."""
    for one in worst_first(found):
        if one["sort"] == "answer" or (one["sort"] == "fault" and one["status"] != "ok"):
            return one["code"], one["status"]
    return "OK", "ok"


def paragraph(found: list[Finding], lang: str = "en") -> tuple[str, str]:
    """Return (sentence, advice) of several findings, in their order, each said once."""
    said = [say(one, lang) for one in found]
    joint = "" if lang == "zh" else " "
    return tuple(joint.join(dict.fromkeys(s[part] for s in said if s[part])) for part in ("sentence", "advice"))  # type: ignore[return-value]
