"""What is known about this gfx target, by whom, since when? Unknown = None, never a guess.

`parse("gfx90a:sramecc+:xnack-")` reads a name, `identify("AMD Radeon RX 6650 XT")` finds the target of a card whatever
an override makes it report, `product(arch, name)` gives its peaks, `install(arch, system)` the command for its torch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from rocmlab import packaged

# Forms of a name as LLVM and the tools write it: gfx1032, gfx90a:xnack-, gfx11-generic, amdgcn-amd-amdhsa--gfx1032.
NAME = re.compile(r"(?:amdgcn-amd-amdhsa--)?(gfx(?:\d{1,2}(?:-\d)?-generic|[0-9a-f]{3,4}))((?::[a-z]+[+-])*)")
WORD = re.compile(r"[a-z0-9]+")
# Words that make another product of the one before: an RX 6600 LE is not an RX 6600.
SUFFIXES = {"xt", "xtx", "gre", "le", "lp", "m", "s", "mobile", "duo", "dual"}
# Graphics of AMD older than gfx900, by product and by chip: no published ROCm build of torch carries code for them.
BEFORE_ROCM = re.compile(
    r"\bR[579] (?:M?\d{3}|Fury|Nano|Graphics)|\bHD \d{4}|Radeon (?:Fury|Nano|Pro Duo|X\d{3,4})|\bInstinct MI[68]\b|"
    r"\b(?:Fire(?:Pro|GL|MV)|Rage|ES1000)\b|\bRX ?(?:4[5-8]\d|5[3-9]\d)[DX]?\b|\bWX ?(?:[2-57]1[0-7]0|3200)\b|"
    r"Radeon (?:Pro )?(?:4[56][05]|5[2-8][05]|6[2-4]0)X?\b|\bgfx[678]\d{2}\b|"
    r"\b(?:Ellesmere|Baffin|Lexa|Polaris|Fiji|Tonga|Antigua|Hawaii|Grenada|Tahiti|Pitcairn|Curacao|Bonaire|Oland|"
    r"Cape Verde|Hainan|Topaz|Iceland|Carrizo|Stoney|Wani|Kaveri|Kabini|Mullins|Spectre|Cedar|Caicos|Turks|Barts|"
    r"Cayman|Redwood|Juniper|Cypress|RV\d{3}|RS\d{3})\b",
    re.IGNORECASE,
)
NOISE = {"amd", "ati", "tm", "r", "graphics", "series", "gpu"}


@dataclass(frozen=True)
class Name:
    """A target name taken apart: base and family are None for a form that is not known."""

    base: str | None
    features: dict[str, bool] = field(default_factory=dict)
    family: str | None = None


def facts() -> dict[str, Any]:
    """Return the whole of archs.yaml: indexes, lists, sources, bases, targets."""
    return packaged.read("archs.yaml")


def target(arch: str | None) -> dict[str, Any] | None:
    """Return what is known about one target, or None."""
    return facts()["targets"].get(arch)


def parse(raw: str | None) -> Name:
    """Take a target name apart; a form or number that nobody has defined gives `Name(None)`."""
    match = NAME.fullmatch((raw or "").strip().lower())
    if not match:
        return Name(None)
    base = match.group(1)
    generic = base.endswith("-generic")
    if not generic and base not in facts()["targets"] and base not in facts()["other_targets"]:
        return Name(None)
    features = {one[:-1]: one.endswith("+") for one in match.group(2).split(":") if one}
    return Name(base, features, "generic" if generic else family(base))


def family(arch: str | None) -> str | None:
    """Return RDNA2, RDNA3.5, CDNA3 or GCN5 (GCN without its minor version); None when it is not known."""
    found = target(arch)
    if not found:
        return None
    name = found["generation"].replace(" ", "")
    return name.split(".")[0] if name.startswith("GCN") else name


def kin(one: str | None, other: str | None) -> bool | None:
    """Tell whether two targets run each other's code in practice (one LLVM generic target); None when not known."""
    first, second = target(one), target(other)
    if not first or not second:
        return None
    if first["generic"] and second["generic"]:
        return first["generic"] == second["generic"]
    return first["generation"] == second["generation"]


def covers(built: list[str], arch: str) -> bool:
    """Tell whether a list of targets (torch's arch list) names this one, itself or by its generic target."""
    bases = {parse(one).base for one in built}
    generic = (target(arch) or {}).get("generic")
    return arch in bases or (generic is not None and generic in bases)


def nearest(built: list[str], arch: str) -> str | None:
    """Return the target in a list that is of the same instruction set family, or None."""
    near = [base for base in (parse(one).base for one in built) if base and base != arch and kin(base, arch)]
    return min(near, default=None)


def override_value(arch: str) -> str:
    """Return the number that HSA_OVERRIDE_GFX_VERSION takes for a target: gfx1030 -> 10.3.0, gfx90a -> 9.0.10."""
    digits = arch.removeprefix("gfx")
    return f"{int(digits[:-2])}.{int(digits[-2], 16)}.{int(digits[-1], 16)}"


def from_override(value: str | None) -> str | None:
    """Return the target that a value of HSA_OVERRIDE_GFX_VERSION stands for, None for a malformed one."""
    match = re.fullmatch(r"\s*(\d{1,2})\.(\d{1,2})\.(\d{1,2})\s*", value or "")
    if not match or int(match.group(2)) > 15 or int(match.group(3)) > 15:
        return None
    major, minor, step = (int(part) for part in match.groups())
    return f"gfx{major}{minor:x}{step:x}"


def from_kfd(version: int) -> str | None:
    """Return gfx1032 for KFD's gfx_target_version 100302, None for 0 (a processor)."""
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}" if version else None


# ---- which card is it


def identify(name: str | None, pci_id: str | None = None) -> str | None:
    """Return the target of a card by its PCI id (1002:73ff), else by its marketing name; None when not known."""
    by_id = {one: arch for arch, known in facts()["targets"].items() for one in known["pci_ids"]}
    if pci_id and pci_id.lower() in by_id:
        return by_id[pci_id.lower()]
    for word in re.findall(r"\bgfx[0-9a-f]+\b", name or ""):
        if parse(word).base:
            return word
    found = {arch for one in _alternatives(name or "") for arch in [_longest(one)] if arch}
    return found.pop() if len(found) == 1 else None


def before_rocm(name: str) -> bool:
    """Tell whether a name is of a card too old for any ROCm build of torch; False for one that is simply not known."""
    known = identify(name)
    return known not in facts()["targets"] and bool(BEFORE_ROCM.search(name))


def _alternatives(name: str) -> list[str]:
    """Split what drivers write for a shared id, "Navi 23 [Radeon RX 6600/6600 XT/6600M]", into whole names."""
    inner = re.search(r"\[(.*(?:Radeon|Instinct).*)\]", name)
    parts = (inner.group(1) if inner else name).split("/")
    first = re.match(r"(.*?)(?=\b[A-Za-z]?\d)", parts[0])
    prefix = first.group(1) if first else ""
    return [part if re.search(r"Radeon|Instinct", part) else prefix + part for part in (p.strip() for p in parts)]


def words(name: str) -> list[str]:
    """Return a product name as words without brand, marks and memory size."""
    text = re.sub(r"\(.*?\)|\b\d+\s?GB\b", " ", name, flags=re.IGNORECASE)
    return [word for word in WORD.findall(text.lower()) if word not in NOISE]


def _longest(name: str) -> str | None:
    card = words(name)
    known = ((words(one), arch) for arch, facts_ in facts()["targets"].items() for one in facts_["names"])
    fits = [(len(wanted), arch) for wanted, arch in known if _stands_in(wanted, card)]
    return max(fits, default=(0, None))[1]


def _stands_in(wanted: list[str], card: list[str]) -> bool:
    for start in range(len(card) - len(wanted) + 1):
        end = start + len(wanted)
        if wanted and card[start:end] == wanted and (end == len(card) or card[end] not in SUFFIXES):
            return True
    return False


def product(arch: str | None, name: str | None, memory_bytes: int | None = None) -> dict[str, Any] | None:
    """Return peaks and sizes of one card (see `products` in archs.yaml); None when it is not exactly known.

    Two cards that differ only in memory are told apart by `memory_bytes`.
    """
    found = target(arch)
    fits = [one for one in (found or {}).get("products", []) if words(one["name"]) == words(name or "")]
    if len(fits) > 1 and memory_bytes:
        fits = [one for one in fits if abs((one["memory_gb"] or 0) - memory_bytes / 2**30) < 1]
    return fits[0] if len(fits) == 1 else None


def integrated(device: dict[str, Any], arch: str | None) -> bool:
    """Tell whether a device shares the processor's memory: by torch's own word, else by its target."""
    said = device.get("is_integrated")
    return bool(said) if said is not None else (target(arch) or {}).get("kind") == "integrated"


# ---- who supports it


def listed(arch: str, system: str, name: str | None = None) -> tuple[bool | None, str]:
    """Return (is it on AMD's newest list for this system, that list in words); None when the target is not known.

    `system`: Linux, Windows or WSL. A list that names single products is read by product for discrete cards.
    """
    key = {"Windows": "amd_windows_7_14", "WSL": "amd_wsl_7_14"}.get(system, "amd_linux_7_14")
    found, where = target(arch), facts()["lists"][key]
    said = f"{where['what']}, {where['date']}"
    if not found:
        return None, said
    named = found["support"]["named"]
    if found["support"][key] and named and found["kind"] == "discrete" and product(arch, name):
        short = words(name or "")
        return any(short[-len(words(one)) :] == words(one) for one in named), said
    return found["support"][key], said


def install(arch: str | None, system: str) -> str | None:
    """Return the command that installs a ROCm build of torch for a target, None when no published build is known.

    Without a target the command fetches the kernels of every target of the index (about 10 GB); a target that exists
    but is in no list of builds gets none.
    """
    found, indexes = target(arch), facts()["indexes"]
    if arch and not found:
        return None
    if not found:
        index, package = indexes["amd"], indexes["amd"]["every_card"]
    else:
        known = found["install"]
        if not known or ("windows" if system == "Windows" else "linux") not in known["systems"]:
            return None
        index, package = indexes[known["index"]], known["package"]
    return f'python -m pip install --index-url {index["url"]} "{package}"'
