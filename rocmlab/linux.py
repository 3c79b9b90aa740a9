"""What Linux lists about GPUs: PCI bus, KFD topology, device nodes, groups, kernel modules, Secure Boot.

No driver has to work for this. Every collector takes the root of the file system, so that tests use made-up trees.
"""

from __future__ import annotations

import errno
import getpass
import os
import re
import stat
from pathlib import Path
from typing import Any

from rocmlab import archs, windows
from rocmlab.readers import inventories

VENDORS = {"1002": "AMD", "10de": "NVIDIA", "8086": "Intel"}
# Display controllers, and processing accelerators (0x12), which is what some Instinct cards say they are.
GPU_CLASSES = ("0x03", "0x12")
ROOT = Path("/")


def read(path: Path) -> str:
    """Return a small text file stripped, "" when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def describe(root: Path = ROOT) -> dict[str, Any]:
    """Return what Linux lists: PCI devices, KFD topology, device nodes, groups, kernel modules, Secure Boot."""
    wsl = "microsoft" in read(root / "proc/version").lower()
    gpus = pci_gpus(root) or nvidia_gpus(root)
    if wsl and not gpus:
        gpus = windows.gpus_from_wsl()
    return {
        "system_gpus": [gpu["name"] for gpu in gpus],
        "gpus": gpus,
        "linux": {
            "kernel": read(root / "proc/sys/kernel/osrelease") or None,
            "wsl": wsl,
            "container": container(root),
            "dev_nodes": device_nodes(root),
            "user_groups": user_groups(),
            "open_kfd": open_result(root / "dev/kfd"),
            "amdgpu_module_loaded": (root / "sys/module/amdgpu").is_dir(),
            "secure_boot": secure_boot(root),
            "kfd_nodes": kfd_nodes(root),
            "library_path": os.environ.get("LD_LIBRARY_PATH"),
        },
        "driver": {
            "amdgpu": read(root / "sys/module/amdgpu/version") or None,
            "nvidia": nvidia_driver(root),
        },
    }


def pci_gpus(root: Path = ROOT) -> list[dict[str, Any]]:
    """Return one row a PCI display or accelerator device of a GPU maker."""
    found = []
    for folder in sorted((root / "sys/bus/pci/devices").glob("*")):
        vendor = read(folder / "vendor").removeprefix("0x")
        if read(folder / "class").startswith(GPU_CLASSES) and vendor in VENDORS:
            found.append(_pci_gpu(folder, vendor, root))
    return found


def _pci_gpu(folder: Path, vendor: str, root: Path) -> dict[str, Any]:
    device, revision = (read(folder / part).removeprefix("0x") for part in ("device", "revision"))
    pci_id, driver = f"{vendor}:{device}", folder / "driver"
    name = gpu_name(folder.name, pci_id, revision, root)
    links = ("current_link_width", "max_link_width", "current_link_speed", "max_link_speed")
    memory, used = (_whole(read(folder / part)) for part in ("mem_info_vram_total", "mem_info_vram_used"))
    return {
        "name": name,
        "vendor": VENDORS[vendor],
        "pci_id": pci_id,
        "bus": folder.name,
        "arch": archs.identify(name, pci_id),
        "driver": driver.resolve().name if driver.exists() else None,
        "link": {part: read(folder / part) or None for part in links},
        "performance_level": read(folder / "power_dpm_force_performance_level") or None,
        "memory_bytes": memory,
        "memory_used_bytes": used,
    }


def _whole(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def gpu_name(bus: str, pci_id: str, revision: str, root: Path = ROOT) -> str:
    """Return the best name that the system has for a PCI device; vendor and ids where it has none."""
    vendor, device = pci_id.split(":")
    model = re.search(
        r"^Model:\s*(.+?)\s*$", read(root / "proc/driver/nvidia/gpus" / bus / "information"), re.MULTILINE
    )
    if model:
        return model.group(1)
    for folder in ("usr/share/libdrm", "opt/amdgpu/share/libdrm"):
        exact = re.search(
            rf"^{device},\s*{revision},\s*(.+?)\s*$", read(root / folder / "amdgpu.ids"), re.MULTILINE | re.IGNORECASE
        )
        if vendor == "1002" and exact:
            return exact.group(1)
    known = [one for one in archs.facts()["targets"].values() if pci_id in one["pci_ids"]]
    listed = _pci_ids_name(vendor, device, root) or (known[0]["chip"] if known else "")
    return f"{VENDORS[vendor]} {listed or pci_id}"


def _pci_ids_name(vendor: str, device: str, root: Path) -> str:
    for place in ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids"):
        text = read(root / place)
        start = re.search(rf"^{vendor}  .*\n", text, re.MULTILINE)
        if start:
            block = re.split(r"^(?=[0-9a-f]{4} )", text[start.end() :], maxsplit=1, flags=re.MULTILINE)[0]
            found = re.search(rf"^\t{device}  (.+)$", block, re.MULTILINE)
            return found.group(1) if found else ""
    return ""


def nvidia_gpus(root: Path = ROOT) -> list[dict[str, Any]]:
    """Return what NVIDIA's driver lists by itself: in a container the PCI bus may not be visible."""
    found = []
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        model = re.search(r"^Model:\s*(.+?)\s*$", read(path), re.MULTILINE)
        name = model.group(1) if model else "NVIDIA GPU"
        found.append({"name": name, "vendor": "NVIDIA", "pci_id": None, "bus": path.parent.name, "arch": None})
    return found


def nvidia_driver(root: Path = ROOT) -> str | None:
    found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", read(root / "proc/driver/nvidia/version"))
    return found.group(1) if found else None


def kfd_nodes(root: Path = ROOT) -> list[dict[str, Any]]:
    """Return the GPU nodes of the KFD topology: node number, arch before any override, units, PCI id, memory."""
    found = []
    for folder in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*"), key=lambda path: path.name.zfill(4)):
        facts = inventories.kfd_properties(read(folder / "properties"))
        if not facts.get("gfx_target_version"):
            continue
        banks = [inventories.kfd_properties(read(path)) for path in (folder / "mem_banks").glob("*/properties")]
        found.append(
            {
                "node": int(folder.name),
                "arch": archs.from_kfd(facts["gfx_target_version"]),
                "pci_id": f"{facts.get('vendor_id', 0):04x}:{facts.get('device_id', 0):04x}",
                "memory_bytes": max((bank.get("size_in_bytes", 0) for bank in banks), default=None),
            }
        )
    return found


def device_nodes(root: Path = ROOT) -> dict[str, dict[str, str]]:
    """Return mode, owner and group of the nodes through which a GPU is reached; absent nodes are left out."""
    paths = [root / "dev/kfd", root / "dev/dxg", *sorted((root / "dev/dri").glob("renderD*"))]
    found = {}
    for path in paths:
        try:
            facts = path.stat()
        except OSError:
            continue
        name = "/" + path.relative_to(root).as_posix()
        found[name] = {
            "mode": stat.filemode(facts.st_mode),
            "owner": _name_of("pwd", facts.st_uid),
            "group": _name_of("grp", facts.st_gid),
        }
    return found


def _name_of(database: str, number: int) -> str:
    """Return "root" or "user" for an owner (a user name is nobody's business), the name of a group."""
    if database == "pwd":
        return "root" if number == 0 else "user"
    try:
        import grp

        return grp.getgrgid(number).gr_name
    except (ImportError, KeyError):
        return str(number)


def user_groups() -> list[str]:
    """Return the groups of this process by name; the user's own private group is left out."""
    if not hasattr(os, "getgroups"):
        return []
    names = {_name_of("grp", number) for number in {*os.getgroups(), os.getgid()}}
    return sorted(names - {getpass.getuser()} if os.getuid() else names)


def open_result(path: Path) -> str | None:
    """Return "ok", the error name such as EACCES, or None where the node does not exist."""
    try:
        os.close(os.open(path, os.O_RDWR))
    except FileNotFoundError:
        return None
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error.errno))
    return "ok"


def secure_boot(root: Path = ROOT) -> bool | None:
    """Return the state of Secure Boot from the EFI variable, None where there is none."""
    for path in (root / "sys/firmware/efi/efivars").glob("SecureBoot-*"):
        try:
            return path.read_bytes()[-1:] == b"\x01"
        except OSError:
            return None
    return None


def container(root: Path = ROOT) -> bool:
    """Tell whether this is a container, where device nodes exist only if they were passed in."""
    marks = any((root / mark).exists() for mark in (".dockerenv", "run/.containerenv"))
    return marks or "container=" in read(root / "proc/1/environ").replace("\0", "\n")
