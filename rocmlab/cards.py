"""Which AMD cards does this machine have, and where does a torch for them come from? Standard library only.

`cards.seen()` asks the system, not a driver; `cards.advice(seen, archs)` says what to do when there is no torch.
`archs` is the content of `archs.yaml`.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

AMD = "1002"  # PCI vendor
POWERSHELL = "Get-CimInstance Win32_VideoController | ForEach-Object { $_.PNPDeviceID + ' | ' + $_.Name }"
SYSTEM = "windows" if os.name == "nt" else "linux"

Card = dict[str, str]


def seen(sysfs: Path = Path("/sys")) -> list[Card]:
    """Return the AMD cards as `{pci: "1002:73ef", arch, name}`; arch and name may be ""."""
    return from_windows(_ask_windows()) if SYSTEM == "windows" else from_linux(sysfs)


def from_linux(sysfs: Path) -> list[Card]:
    """Read PCI devices of vendor AMD (class 03 display, 12 accelerator) and the gfx targets that the driver states."""
    driver = {}
    for file in sorted(sysfs.glob("class/kfd/kfd/topology/nodes/*/properties")):
        facts = dict(re.findall(r"(?m)^(\w+) (\d+)$", _text(file)))
        number = int(facts.get("gfx_target_version", 0))
        if number:
            # 100302 is gfx1032, 90010 is gfx90a: minor and stepping are hexadecimal digits in the name.
            arch = f"gfx{number // 10000}{number // 100 % 100:x}{number % 100:x}"
            driver[f"{AMD}:{int(facts.get('device_id', 0)):04x}"] = arch
    found = []
    for device in sorted(sysfs.glob("bus/pci/devices/*")):
        if _text(device / "vendor") == f"0x{AMD}" and _text(device / "class")[:4] in ("0x03", "0x12"):
            pci = f"{AMD}:{_text(device / 'device')[2:].lower()}"
            found.append({"pci": pci, "arch": driver.get(pci, ""), "name": ""})
    listed = {card["pci"] for card in found}
    return found + [{"pci": pci, "arch": arch, "name": ""} for pci, arch in driver.items() if pci not in listed]


def from_windows(text: str) -> list[Card]:
    """Read lines such as `PCI\\VEN_1002&DEV_73EF&SUBSYS_... | AMD Radeon RX 6650 XT`."""
    lines = re.findall(rf"(?im)VEN_{AMD}&DEV_([0-9A-F]{{4}})[^|\n]*\|[ \t]*([^\r\n]*?)[ \t\r]*$", text)
    return [{"pci": f"{AMD}:{device.lower()}", "arch": "", "name": name} for device, name in lines]


def _ask_windows() -> str:
    try:
        command = ["powershell", "-NoProfile", "-NonInteractive", "-Command", POWERSHELL]
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=30)
        return done.stdout.decode("utf-8", errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def target(card: Card, archs: dict[str, Any]) -> str:
    """Return the gfx target of a card: as the driver states it, by PCI id, or by name; "" when it is not known."""
    targets = archs.get("targets", {})
    if card["arch"] in targets:
        return card["arch"]
    for arch, facts in targets.items():
        if card["pci"] in facts["pci_ids"]:
            return arch
    told = re.sub(r"\((tm|r)\)", "", card["name"].lower())
    known = [(name.lower(), arch) for arch, facts in targets.items() for name in facts["names"]]
    # The longest name that fits, so that an RX 6600 XT is not taken for an RX 6600.
    fitting = [(len(name), arch) for name, arch in known if re.search(rf"\b{re.escape(name)}(?!\w)", told)]
    return max(fitting)[1] if fitting else ""


def order(arch: str, archs: dict[str, Any], system: str = SYSTEM) -> tuple[str, str]:
    """Return (index URL, package) of a torch for this target, ("", "") where none is published.

    For a target that is not in the table it is the build for every card.
    """
    indexes, facts = archs.get("indexes", {}), archs.get("targets", {}).get(arch)
    if not facts:
        index = indexes.get("amd", {})
        return index.get("url", ""), index.get("every_card", "")
    wanted = facts["install"] or {"systems": []}
    return (indexes[wanted["index"]]["url"], wanted["package"]) if system in wanted["systems"] else ("", "")


def first(cards: list[Card], archs: dict[str, Any]) -> list[tuple[str, Card]]:
    """Return (target, card) pairs: known before unknown, and the graphics inside a processor last."""
    kinds = {arch: facts["kind"] for arch, facts in archs.get("targets", {}).items()}
    pairs = [(target(card, archs), card) for card in cards]
    return sorted(pairs, key=lambda pair: (kinds.get(pair[0]) == "integrated", not pair[0]))


def advice(cards: list[Card], archs: dict[str, Any], use: str, cpu: str, system: str = SYSTEM) -> str:
    """Say which cards were seen and how they get a torch; `use` (with {url}) and `cpu` are the commands to go on."""
    lines = ["an AMD card was seen, and there is no torch. One for it comes from an index of its own, so you decide."]
    pairs = first(cards, archs)
    for arch, card in pairs:
        facts = archs.get("targets", {}).get(arch, {})
        name = card["name"] or " / ".join(facts.get("names", [])[:4]) or "product not known here"
        lines.append(f"  seen: {name} ({card['pci']}), {arch or 'target not known here'}")
    arch = pairs[0][0]
    url, package = order(arch, archs, system)
    if url:
        family = f"{arch} (family {archs['targets'][arch]['family']})" if arch else "every AMD card, 10 GB"
        lines += [
            f"To use it, with AMD's or PyTorch's published build for {family}, into .venv:",
            f"  {use.format(url=url)}",
            "or by hand, in an environment of your own that is active when you come back:",
            f'  pip install --index-url {url} "{package}"',
        ]
    else:
        lines.append(f"No torch for it on {system.capitalize()} is known here; one that you build is found and used.")
    return "\n".join([*lines, "To measure the CPU only:", f"  {cpu}"])
