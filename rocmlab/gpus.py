"""Which GPUs are here, whoever says so: the system's list, torch's devices, and what each really is. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from rocmlab import archs, variables
from rocmlab.shape import tidy

__all__ = ["arch_of", "cards", "integrated", "launches", "main_card", "real_arch", "subject", "system", "tidy"]

AMD = "AMD"
AMD_NAME = re.compile(r"\bAMD\b|\bATI\b|Radeon|Instinct|FirePro", re.IGNORECASE)
NVIDIA_NAME = re.compile(r"NVIDIA|GeForce|Quadro|\bTesla\b", re.IGNORECASE)
# Names that only graphics inside a processor have; 780M and 8060S are in the table of targets.
INSIDE = re.compile(r"^(AMD )?Radeon(\(TM\))?( R\d| Vega \d+| RX Vega \d+)? Graphics$|^AMD Custom GPU", re.IGNORECASE)


@dataclass(frozen=True)
class Card:
    """One GPU that the operating system lists; arch is None where neither name nor PCI id tells it."""

    name: str
    amd: bool
    arch: str | None
    integrated: bool


def system(probe: dict[str, Any]) -> str:
    """Return Windows, WSL or Linux; another name as it stands."""
    name = probe.get("platform") or ""
    return "WSL" if "microsoft" in name.lower() else name.split("-")[0] or "unknown"


def arch_of(device: dict[str, Any]) -> str:
    """Return gfx1032 for an AMD device (features such as :xnack- dropped), sm_90 for an NVIDIA one.

    An AMD device is never known by major and minor: (11, 5) is no CUDA capability.
    """
    raw = str(device.get("gcnArchName") or "")
    base = archs.parse(raw).base or (raw.split(":")[0] if raw.startswith("gfx") else "")
    # CUDA builds fill the same field with the card's name.
    return base or f"sm_{device.get('major')}{device.get('minor')}"


def cards(probe: dict[str, Any]) -> list[Card]:
    """Return the AMD and NVIDIA GPUs that the system lists, by name and, where known, PCI id.

    Cards too old for any ROCm build are left out. Where the list names no AMD card (WSL without Windows' tools, a
    container), the driver's own GPU nodes or rocminfo's agents stand for it.
    """
    details, found = probe.get("gpus") or [], []
    for position, name in enumerate(probe.get("system_gpus") or []):
        pci_id = details[position].get("pci_id") if position < len(details) else None
        amd, nvidia = bool(AMD_NAME.search(name)), bool(NVIDIA_NAME.search(name))
        if nvidia or (amd and not archs.before_rocm(name)):
            arch = archs.identify(name, pci_id) if amd else None
            found.append(Card(name, amd and not nvidia, arch, _inside(name, arch)))
    return found if any(one.amd for one in found) else [*found, *_driven(probe)]


def _driven(probe: dict[str, Any]) -> list[Card]:
    """Return the AMD GPUs that the kernel driver or rocminfo shows; an override may make an agent's target a lie."""
    facts, env = probe.get("linux") or {}, probe.get("env") or {}
    nodes = [one.get("arch") for one in facts.get("kfd_nodes") or []]
    agents = [one.split(":")[0] for one in facts.get("rocminfo_agents") or [] if one.startswith("gfx")]
    honest = [None if variables.overridden(env, one) else one for one in agents if one != "gfx000"]
    shown = [archs.parse(one).base for one in nodes or honest if not archs.before_rocm(one or "")]
    return [Card(f"AMD GPU ({arch or 'target unknown'})", True, arch, _inside("", arch)) for arch in shown]


def _inside(name: str, arch: str | None) -> bool:
    return bool(INSIDE.search(name)) or (archs.target(arch) or {}).get("kind") == "integrated"


def main_card(probe: dict[str, Any]) -> Card | None:
    """Return the card a person means: a discrete one before graphics inside the processor."""
    return min(cards(probe), key=lambda card: card.integrated, default=None)


def real_arch(probe: dict[str, Any], device: dict[str, Any]) -> str | None:
    """Return a device's own target whatever it reports: by name, by PCI bus, or by being the only one."""
    known = archs.identify(device.get("name"))
    if known:
        return known
    amd = [gpu for gpu in probe.get("gpus") or [] if gpu.get("vendor") == AMD]
    bus = device.get("pci_bus_id")
    for gpu in amd:
        if bus is not None and re.match(rf"^[0-9a-f]+:{bus:02x}:", gpu.get("bus") or ""):
            return gpu.get("arch")
    listed = [card for card in cards(probe) if card.amd]
    alone = len(listed) == 1 and len(probe.get("devices") or []) == 1
    return listed[0].arch if alone else None


def launches(probe: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return what the launch gave, by device index."""
    found = probe.get("launch_probe") or {}
    each = found.get("per_device") or [{"index": 0, **found}]
    return {one["index"]: one for one in each if "ok" in one and one.get("index") is not None}


def integrated(device: dict[str, Any]) -> bool:
    """Tell whether a device is graphics inside the processor."""
    arch = archs.parse(device.get("gcnArchName")).base
    return archs.integrated(device, arch) or bool(INSIDE.search(device.get("name") or ""))


def subject(probe: dict[str, Any], arch: str = "auto") -> dict[str, Any]:
    """Choose the device under study: the best accelerator that passes its launch check, else the CPU.

    Best = of the asked target (as reported, or the card's own under an override), then discrete before integrated, then
    more memory. `why` says it in words; `memory_bytes` is the device's, or the machine's on the CPU.
    """
    probe = tidy(probe)
    passed = launches(probe)
    usable = [one for one in probe.get("devices") or [] if passed.get(one["index"], {}).get("ok")]
    matching = [one for one in usable if arch == "auto" or arch in (arch_of(one), real_arch(probe, one))]
    if not matching:
        why = "no accelerator passed its launch check" if not usable else f"no accelerator here is {arch}"
        host = probe.get("host") or {}
        name, memory = host.get("cpu") or "CPU", host.get("memory_bytes")
        return {"device": "cpu", "arch": "cpu", "name": name, "index": None, "memory_bytes": memory, "why": why}
    best = max(matching, key=lambda one: (not integrated(one), one.get("total_memory") or 0))
    return {
        "device": f"cuda:{best['index']}",
        "arch": arch_of(best),
        "name": best.get("name") or arch_of(best),
        "index": best["index"],
        "memory_bytes": best.get("total_memory"),
        "why": "passed its launch check",
    }
