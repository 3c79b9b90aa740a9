"""What may explain a difference between two runs: the device, the system, torch, the driver? Pure.

Only what was recorded counts. More than one difference means that no single one may be named as the cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rocmlab import machines, words
from rocmlab.findings import Finding, finding
from rocmlab.sides import Side

# What may explain a difference beside the device, and how it is called.
FACTORS = {
    "os": "system", "torch_version": "torch", "hip_version": "ROCm", "cuda_version": "CUDA", "driver": "driver",
    "transformers_version": "transformers", "python_version": "Python", "cpu": "CPU", "variables": "variables",
    "model_revision": "model_revision", "attention_backend": "attention",
}  # fmt: skip


def system_of(text: Any) -> str | None:
    """Return Windows, WSL, macOS or Linux for what a system calls itself; None for anything else."""
    said = str(text or "").lower()
    names = {"microsoft-standard": "WSL", "wsl": "WSL", "windows": "Windows", "darwin": "macOS", "macos": "macOS"}
    names |= {"linux": "Linux", "ubuntu": "Linux", "debian": "Linux", "fedora": "Linux", "arch": "Linux"}
    return next((name for key, name in names.items() if key in said), None)


def factor(side: Side, key: str) -> Any:
    """Return one factor in the form that is compared: the kind of system, Python without its patch level."""
    value = side.factors.get(key)
    if key == "os":
        return system_of(value) or value
    return ".".join(str(value).split(".")[:2]) if key == "python_version" and value else value


def explaining(one: Side, other: Side) -> tuple[list[str], list[str]]:
    """Return (factors that differ, factors that one or both do not state), the device among them, by their keys."""
    apart = machines.differ(one.machine, other.machine)
    found = ["device"] if apart or one.subject_arm != other.subject_arm else []
    unknown = ["device"] if apart is None and not found else []
    needed = ["os", "torch_version", *(["driver"] if "gpu" in (one.subject_arm, other.subject_arm) else [])]
    for key in FACTORS:
        a, b = factor(one, key), factor(other, key)
        if a is None and b is None:  # a build is either for ROCm or for CUDA, and not every record has the others
            unknown += [key] if key in needed else []
        elif a is None or b is None:
            runtime = key in ("hip_version", "cuda_version") and _runtimes(one, other)
            (found if runtime else unknown).append(key)
        elif a != b:
            found.append(key)
    return found, unknown


def _runtimes(one: Side, other: Side) -> bool:
    """Tell whether both sides are known by their torch, so that a missing ROCm or CUDA is none and not unknown."""
    return all(side.factors.get("torch_version") for side in (one, other))


def confounded(one: Side, other: Side) -> list[Finding]:
    """Say what may explain a difference: more than one thing, exactly one, or what cannot be told."""
    found, unknown = explaining(one, other)
    given: dict[str, Any] = {"one": one.label, "other": other.label}
    lead = _lead(found)
    if len(found) > 1:
        rest = [key for key in found if key != lead]
        return [finding("CONFOUNDED", lead=_said(lead, one, other), others=joined(map(called, rest)), **given)]
    if unknown:
        names = joined(map(called, unknown))
        return [finding("FACTORS_UNKNOWN", others=names, **given)]
    if not found:
        return [finding("SAME_CONDITIONS", **given)]
    return [finding("ONE_DIFFERENCE", lead=_said(lead, one, other), **given)]


def _lead(found: list[str]) -> str:
    """Return what a reader would take for the cause: another card, else another system, else the first."""
    return next((key for key in ("device", "os") if key in found), found[0] if found else "")


def _said(key: str, one: Side, other: Side) -> dict[str, str]:
    if key != "os":
        return called(key)
    kinds = [str(factor(side, "os")) for side in (one, other)]
    name = next((kind for kind in kinds if kind != "Linux"), kinds[0])
    return {"en": name, "zh": name}


def called(key: str) -> dict[str, str]:
    """Return the name of a factor in both languages."""
    name = FACTORS.get(key, key)
    return words.both(f"factor_{name}") if name in ("device", "system", "driver", "variables", "model_revision") else (
        {"en": name, "zh": name}
    )  # fmt: skip


def joined(names: Iterable[dict[str, str]]) -> dict[str, str]:
    """Return "a, b and c" in both languages."""
    every = list(names)
    said = {lang: list(dict.fromkeys(one[lang] for one in every)) for lang in words.LANGUAGES}
    en = said["en"]
    return {"en": " and ".join([", ".join(en[:-1]), en[-1]] if len(en) > 1 else en), "zh": "、".join(said["zh"])}
