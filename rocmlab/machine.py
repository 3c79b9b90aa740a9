"""What does the operating system itself know about GPUs, driver, rights, power and room, whatever torch says?

`describe()` asks Linux, WSL or Windows and never needs a GPU driver to work; `device.snapshot()` runs it in a child
process with a limit. Every Linux collector takes the root of the file system, so that it is tested on made-up trees.
"""

from __future__ import annotations

import platform
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil

from rocmlab import linux, results, windows

ROOT = Path("/")
COMPILERS = ("cl", "g++", "clang++", "hipcc", "amdclang++")


def describe() -> dict[str, Any]:
    """Return system_gpus (names), gpus (details), linux or windows, driver, power, capacity, host and compilers."""
    on_windows = platform.system() == "Windows"
    found = windows.describe() if on_windows else linux.describe()
    return {
        **found,
        "host": host(),
        "power": {**power(), **found.get("power", {})},
        "capacity": capacity(),
        "compilers": {name: "present" if shutil.which(name) else None for name in COMPILERS},
    }


def host(root: Path = ROOT) -> dict[str, Any]:
    """Return processor name, cores and memory in bytes; what cannot be told is null."""
    model = re.search(r"^model name\s*:\s*(.+)$", linux.read(root / "proc/cpuinfo"), re.MULTILINE)
    return {
        "cpu": model.group(1).strip() if model else platform.processor() or None,
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }


def power(root: Path = ROOT) -> dict[str, Any]:
    """Return whether mains power is plugged (null: no battery here) and the power policy where the system has one."""
    battery = psutil.sensors_battery() if hasattr(psutil, "sensors_battery") else None
    return {
        "plugged": battery.power_plugged if battery else None,
        "governor": linux.read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or None,
        "governor_driver": linux.read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_driver") or None,
        "profile": linux.read(root / "sys/firmware/acpi/platform_profile") or None,
    }


def capacity() -> dict[str, int]:
    """Return free memory and the free disk space of the place where runs are kept, in bytes."""
    return {
        "memory_available_bytes": psutil.virtual_memory().available,
        "disk_free_bytes": shutil.disk_usage(results.home()).free,
    }


def environment_at_start(root: Path = ROOT) -> dict[str, str] | None:
    """Return the variables this process was started with; None where the system does not keep them (Windows)."""
    if sys.platform == "win32":
        return None
    try:
        text = (root / "proc/self/environ").read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return None
    return dict(part.split("=", 1) for part in text.split("\0") if "=" in part)
