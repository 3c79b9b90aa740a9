"""Which machines are the same, and which only have the same name? Told by gfx target, memory and PCI id. Pure.

A marketing name stands for several chips ("AMD Radeon(TM) Graphics") and one chip has several names, so a name alone
neither joins nor parts two machines.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from rocmlab import archs
from rocmlab.findings import Finding, finding
from rocmlab.rates import is_number

# Of the memory: drivers hold back some MiB, Windows and Linux not the same amount. No two cards differ by so little.
MEMORY_SLACK = 0.03
FIELDS = ("arch", "memory_bytes", "pci_id")


@dataclass(frozen=True)
class Machine:
    """The device of one machine; None is unknown. `arch` is a gfx target, `sm_NN`, or "cpu"."""

    label: str
    name: str | None = None
    arch: str | None = None
    memory_bytes: int | None = None
    pci_id: str | None = None

    @property
    def said(self) -> str:
        """Return "laptop-1 (gfx1035, 2 GiB)": what tells it apart, never the marketing name."""
        return f"{self.label} ({', '.join(filter(None, (self.arch or '?', gib(self.memory_bytes), self.pci_id)))})"


def gib(memory_bytes: int | None) -> str:
    """Return "2 GiB", "" where it is unknown."""
    return f"{memory_bytes / 2**30:.3g} GiB" if memory_bytes else ""


def of_device(label: str, device: Any, pci_id: str | None = None) -> Machine:
    """Return the machine of one torch device (name, gcnArchName or major and minor, total_memory)."""
    device = device if isinstance(device, dict) else {}
    name, memory = device.get("name"), device.get("total_memory")
    memory = int(memory) if is_number(memory) and 0 < memory < 1 << 60 else None
    pci = pci_id or device.get("pci_id")
    return Machine(
        label, " ".join(str(name).split()) if name else None, arch_of(device), memory, str(pci).lower() if pci else None
    )


def arch_of(device: dict[str, Any]) -> str | None:
    """Return the target of a device without its features (gfx90a:xnack- is gfx90a), or sm_NN; None when unknown."""
    raw = device.get("gcnArchName") or device.get("arch")
    if isinstance(raw, str) and raw.strip():
        return archs.parse(raw).base or raw.strip().lower().split(":")[0]
    major, minor = device.get("major"), device.get("minor")
    return f"sm_{major}{minor}" if isinstance(major, int) and isinstance(minor, int) else None


def differ(one: Machine, other: Machine) -> bool | None:
    """Tell whether two machines have different devices; None when what is known of both cannot tell."""
    pairs = [(getattr(one, key), getattr(other, key)) for key in FIELDS]
    known = [(a, b) for a, b in pairs if a and b]
    for a, b in known:
        if abs(a - b) > MEMORY_SLACK * max(a, b) if isinstance(a, int) else a != b:
            return True
    # The PCI id only parts: few sources give it.
    return False if all(a and b for a, b in pairs[:2]) else None


def kinds(found: list[Machine]) -> int | None:
    """Return how many different devices there are; None when some pair cannot be told apart."""
    apart: list[Machine] = []
    for machine in found:
        answers = [differ(machine, one) for one in apart]
        if False in answers:
            continue
        if None in answers:
            return None
        apart.append(machine)
    return len(apart)


def judge(found: list[Machine]) -> list[Finding]:
    """Return the names that stand for different devices, and pairs of one name that nothing known tells apart."""
    said = []
    cards = [one for one in found if one.name and one.arch != "cpu"]
    for name in dict.fromkeys(one.name for one in cards):
        mine = [one for one in cards if one.name == name]
        answers = [differ(a, b) for a, b in itertools.combinations(mine, 2)]
        who = "; ".join(one.said for one in mine)
        if True in answers:
            said.append(finding("SAME_NAME_DIFFERENT_GPU", name=name, who=who))
        elif None in answers:
            said.append(finding("MACHINES_UNKNOWN", name=name, who=who))
    return said


def read(record: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]], list[Finding], str]:
    """Return (numbers, items, findings, all of them in words) of a list of machines (rocmlab-machines-1)."""
    given = record.get("machines")
    rows = [row for row in given if isinstance(row, dict)] if isinstance(given, list) else []
    found = [of_device(str(row.get("machine") or f"#{n}"), row.get("device")) for n, row in enumerate(rows, 1)]
    cards = [one for one in found if one.name or one.arch]
    count = kinds(cards)
    numbers: dict[str, Any] = {"machines": len(found), "names": len({one.name for one in cards if one.name})}
    numbers["gpus"] = count
    if count is None:
        numbers["gpus_reason"] = "target or memory of some is not given, so they cannot be told apart"
    items = [{"machine": m.label, "name": m.name, "arch": m.arch, "memory_gib": memory_gib(m)} for m in found]
    return numbers, items, judge(found), "; ".join(one.said for one in found)


def memory_gib(machine: Machine) -> float | None:
    """Return a device's memory in GiB, to three decimals."""
    return round(machine.memory_bytes / 2**30, 3) if machine.memory_bytes else None
