"""How the page says it: headings, labels and numbers, in two languages.

`word("why_slow", "zh")` looks up `words.yaml`; `number(33.204, "ms")` gives "33.2 ms", `number(None)` an en dash.
What was *found* is said by `findings.py`; here are only the words around it.
"""

from __future__ import annotations

import math
import re
from typing import Any

from rocmlab import packaged
from rocmlab.findings import LANGUAGES

__all__ = ["LANGUAGES", "both", "caption", "number", "pick", "seconds", "unit_of", "word"]

NONE = "–"
GIB, MIB, KIB = 2**30, 2**20, 2**10

# The unit at the end of a column name, longest first, as it is written beside a number.
UNITS = {
    "tok_per_s": "tok/s",
    "tok_s": "tok/s",
    "images_s": "images/s",
    "tflop_s": "TFLOP/s",
    "tflops": "TFLOP/s",
    "gb_s": "GB/s",
    "gbs": "GB/s",
    "bytes": "B",
    "ratio": "×",
    "tokens": "tokens",
    "logits": "logits",
    "mhz": "MHz",
    "gib": "GiB",
    "mib": "MiB",
    "pct": "%",
    "gb": "GB",
    "mb": "MB",
    "ms": "ms",
    "us": "µs",
    "ns": "ns",
    "s": "s",
    "w": "W",
    "c": "°C",
}
CLOSE = {"%", "×"}  # units that stand without a space


def table() -> dict[str, dict[str, str]]:
    """Return `{key: {"en": ..., "zh": ...}}`."""
    return packaged.read("words.yaml")


def word(key: str, lang: str, **values: Any) -> str:
    """Return one wording. Raises KeyError for an unknown key or a missing placeholder."""
    return table()[key][lang].format(**values)


def both(key: str, **values: Any) -> dict[str, str]:
    """Return one wording in every language."""
    return {lang: word(key, lang, **values) for lang in LANGUAGES}


def pick(text: Any, lang: str) -> str:
    """Return the right language of `{"en": ..., "zh": ...}`; anything else as text."""
    return str(text.get(lang, text.get("en", ""))) if isinstance(text, dict) else "" if text is None else str(text)


def number(value: Any, unit: str = "") -> str:
    """Write a number: floats with three significant digits, counts exactly, thousands separated, unknown as a dash.

    Bytes ("B") become KiB, MiB or GiB (2^30). A dash never carries a unit, so that it cannot be read as a zero.
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NONE
    if unit == "B":
        value, unit = _bytes(value)
    digits = f"{value:,}" if isinstance(value, int) else _three_digits(float(value))
    return f"{digits}{'' if unit in CLOSE or not unit else ' '}{unit}"


def _three_digits(value: float) -> str:
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(float(f"{value:.2e}"))))  # after rounding: 999.6 is 1,000
    if exponent < -3 or exponent > 8:
        return f"{value:.2e}"
    return f"{round(value, 2 - exponent):,.{max(0, 2 - exponent)}f}"


def _bytes(value: float) -> tuple[float, str]:
    for size, unit in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value) >= size:
            return value / size, unit
    return value, "B"


def seconds(value: float | None, lang: str = "en") -> str:
    """Write a duration as a person says it: "48 s", "12 min 5 s"."""
    if value is None:
        return NONE
    whole = round(value)
    if whole < 60:
        return number(float(value), "s") if value < 9.95 else f"{whole} s"
    return word("minutes_seconds", lang, minutes=whole // 60, seconds=whole % 60)


def unit_of(column: str) -> tuple[str, str]:
    """Split a column name: "decode_tok_s" -> ("decode", "tok/s"), "prompt" -> ("prompt", "")."""
    for ending, unit in UNITS.items():
        if column.lower() == ending and "_" in ending:
            return "", unit  # "gb_s": the unit is the name
        if column.lower().endswith(f"_{ending}"):
            return caption(column[: -len(ending) - 1]), unit
    return caption(column), ""


def caption(name: str) -> str:
    """Write a name for a reader: underscores as spaces, the field's abbreviations in capitals."""
    return re.sub(r"\b(cpu|gpu|ttft|tpot|itl|mbu|mfu|gemm|kv)\b", lambda m: m[0].upper(), name.replace("_", " "))
