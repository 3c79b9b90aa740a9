"""Compare what `rocmlab read` answers with what a case is known to be (format: README.md of the further cases)."""

import json
from pathlib import Path
from typing import Any

from rocmlab import readers


def answer(folder: Path, content: Any, name: str = "evidence.txt", lang: str = "en") -> dict[str, Any]:
    """Write a piece of evidence (bytes, a text, or a record to be written as JSON) and return what is answered."""
    path = folder / name
    if not isinstance(content, bytes):
        content = (content if isinstance(content, str) else json.dumps(content)).encode()
    path.write_bytes(content)
    return readers.answer(path, lang)


def expected(shared: Path, owners: str, how: str = "read") -> dict[str, dict[str, Any]]:
    """Return the entries of one owner letter or several."""
    entries = json.loads((shared / "cases" / "expected.json").read_text(encoding="utf-8"))
    return {name: entry for name, entry in entries.items() if entry["owner"] in owners and entry["how"] == how}


def differences(path: Path, entry: dict[str, Any]) -> list[str]:
    """Return what in the answer for a file differs from the entry; [] when all is right."""
    answer = readers.answer(path)
    found = [
        f"{key}: {answer[key]!r}, expected {entry[key]!r}"
        for key in ("kind", "verdict", "status")
        if answer[key] != entry[key]
    ]
    codes = [one["code"] for one in answer["findings"]]
    allowed = [one["code"] for one in answer["findings"] if one["status"] != "ok" or one["code"] in entry["findings"]]
    if allowed != entry["findings"]:
        found.append(f"findings: {codes}, expected {entry['findings']}")
    for key, number in entry.get("numbers", {}).items():
        found += _number(answer["numbers"], key, number, entry.get("tolerance", {}).get(key))
    said = f"{answer['sentence']} {answer['advice']}".lower()
    for must in entry.get("must_say", []):
        options = must if isinstance(must, list) else [must]
        if not any(option in said for option in options):
            found.append(f"does not say {must!r}: {said!r}")
    found += [f"says {no!r}: {said!r}" for no in entry.get("must_not_say", []) if no in said]
    return found


def _number(numbers: dict[str, Any], key: str, wanted: Any, tolerance: float | None) -> list[str]:
    if key not in numbers:
        return [f"number {key} is missing"]
    given = numbers[key]
    if wanted is None:
        reason = numbers.get(f"{key}_reason")
        return [] if given is None and reason else [f"{key}: {given!r} with reason {reason!r}, expected null and why"]
    if given is None:
        return [f"{key}: null, expected {wanted}"]
    if isinstance(wanted, float) or tolerance is not None:
        digits = len(str(wanted).partition(".")[2])
        near = tolerance if tolerance is not None else 0.5 * 10**-digits
        return [] if abs(given - wanted) <= near + 1e-12 else [f"{key}: {given}, expected {wanted} within {near}"]
    return [] if given == wanted else [f"{key}: {given!r}, expected {wanted!r}"]
