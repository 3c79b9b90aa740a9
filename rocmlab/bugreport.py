"""A text to paste where ROCm's maintainers ask for one: the versions they want first, then what was found. Pure.

`markdown(run, made)` needs a run folder and its sections and gives GitHub's Markdown; no name of a person or a machine
is in it. Always in English, because that is where it goes.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rocmlab import __version__, archs, factsheet, findings, gpus, quantities, results, variables, words
from rocmlab.sections import Section

FILE = "bug-report.md"
SHOWN = 8  # findings: the worst, as a maintainer has little time
UNKNOWN = "unknown"
ORDER = ("broken", "warn", "unknown")  # what was seen comes before what could not be told


def write(run: Path, made: Iterable[Section]) -> Path:
    """Write bug-report.md, with the findings of these sections, into a run folder and return its path."""
    path = run / FILE
    # A site would take <user> for a tag and drop it.
    results.write_text(path, results.redact(markdown(run, made)).replace("<", "&lt;"))
    return path


def markdown(run: Path, made: Iterable[Section]) -> str:
    """Return the report: versions as a table, what was found, and what to add by hand."""
    birth = results.birth(run)
    raw = quantities.probe_of(run, birth)
    probe = gpus.tidy(raw) | {"env": raw.get("env")}  # not recorded is unknown, and not the same as none
    rows = [(name, _cell(value)) for name, value in versions(birth, probe)]
    table = ["| what | value |", "| :--- | :--- |", *(f"| {name} | {value} |" for name, value in rows)]
    lines = ["### Versions", "", *table, "", "### What was found", "", *found(made), ""]
    lines += ["### What I did, and what I expected", "", "(to be filled in)", ""]
    lines.append(f"Collected by rocmlab {__version__}; method version {birth.get('method_version')}.")
    return "\n".join(lines) + "\n"


def versions(birth: dict[str, Any], probe: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return (name, value) of what a bug report must state; None is unknown, "" does not exist here."""
    subject, host, windows = (_dict(one) for one in (birth.get("subject"), probe.get("host"), probe.get("windows")))
    installed = _dict(probe.get("versions")) | _dict(birth.get("versions"))
    driver = windows.get("display_driver") or quantities.drivers_of(probe)
    sdk = {name: one for name, one in installed.items() if name.startswith("rocm")}
    torch = probe.get("torch_version")
    return [
        ("OS", " ".join(filter(None, (probe.get("platform"), windows.get("caption")))) or None),
        ("CPU", host.get("cpu")),
        ("GPU", ", ".join(devices(probe)) or ", ".join(map(str, probe.get("system_gpus") or [])) or "none seen"),
        ("gfx target", gfx(probe, subject)),
        ("driver", driver),
        ("ROCm/HIP of torch", probe.get("torch_version_hip") or ("not a ROCm build" if torch else None)),
        ("ROCm packages", ", ".join(f"{name} {one}" for name, one in sdk.items()) or "none installed with pip"),
        ("torch", torch),
        ("built for", ", ".join(map(str, probe.get("arch_list") or [])) or None),
        ("transformers", installed.get("transformers")),
        ("Python", probe.get("python") or installed.get("python")),
        ("overrides", overrides(probe)),
        ("other variables", others(probe)),
        ("launch of a small product", launch(probe)),
    ]


def devices(probe: dict[str, Any]) -> list[str]:
    """Return the devices that torch sees, with their memory."""
    found = []
    for one in probe.get("devices") or []:
        pci = next((gpu.get("pci_id") for gpu in probe.get("gpus") or [] if gpu.get("arch") == gpus.arch_of(one)), None)
        parts = (words.number(one.get("total_memory"), "B"), f"PCI {pci}" if pci else "")
        found.append(f"{one.get('name') or '?'} ({', '.join(filter(None, parts))})")
    return found


def gfx(probe: dict[str, Any], subject: dict[str, Any]) -> str | None:
    """Return the target as reported, with the card's own where an override makes it report another."""
    said = []
    for one in probe.get("devices") or []:
        arch, real = gpus.arch_of(one), gpus.real_arch(probe, one)
        said.append(f"{arch} (the card itself: {real})" if real and real != arch else str(arch))
    card = gpus.main_card(probe)
    return ", ".join(said) or (card.arch if card else None) or ("no GPU" if subject.get("arch") == "cpu" else None)


def overrides(probe: dict[str, Any]) -> str | None:
    """Return the variables that make a card report another target."""
    env = probe.get("env")
    if not isinstance(env, dict):
        return None
    value = variables.override_of(env)
    mine = {key: one for key, one in env.items() if key.startswith("HSA_OVERRIDE_GFX_VERSION")}
    target = f" = {archs.from_override(value)}" if value and archs.from_override(value) else ""
    return ", ".join(f"{key}={one}{target}" for key, one in mine.items()) or "none set"


def others(probe: dict[str, Any]) -> str | None:
    """Return the other recorded variables."""
    env = probe.get("env")
    if not isinstance(env, dict):
        return None
    return ", ".join(f"{k}={v}" for k, v in env.items() if not k.startswith("HSA_OVERRIDE_GFX_VERSION")) or "none set"


def launch(probe: dict[str, Any]) -> str:
    """Return how the first launch ended, from the facts that notebook 01 shows."""
    rows = factsheet.rows(probe)
    wanted = {words.word("fact_launch_of_none", "en")}
    wanted |= {words.word("fact_launch", "en", index=index) for index in range(16)}
    return "; ".join(words.pick(row["value"], "en") for row in rows if row["fact"]["en"] in wanted) or UNKNOWN


def found(made: Iterable[Section]) -> list[str]:
    """Return the worst findings of some sections as a list, each with its code; what went well is counted."""
    every = [one for section in made for one in section.findings]
    bad = [one for status in ORDER for one in findings.worst_first(every) if one["status"] == status]
    first = {one["code"]: one for one in reversed(bad)}  # a code that several notebooks found is said once
    said = [(one["code"], one["status"], findings.say(one)["sentence"]) for one in bad if first[one["code"]] is one]
    lines = [f"- **{code}** ({status}): {' '.join(text.split())}" for code, status, text in said]
    rest = len(lines) - SHOWN
    return [*lines[:SHOWN], *([f"- and {rest} more in the run"] if rest > 0 else [])] or ["- nothing wrong was found"]


def _cell(value: Any) -> str:
    return UNKNOWN if value is None else " ".join(str(value).split()).replace("|", "\\|") or "none"


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
