"""Where sensors of a GPU are read: files of the amdgpu driver, amd-smi, rocm-smi, nvidia-smi, Windows' counters.

Each source is a function without arguments that returns fields of `sensors.FIELDS`; a field it does not know is absent.
`sysfs` takes the root of the file system, so that tests use made-up trees.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from rocmlab import isolate, timing, tools, windows
from rocmlab.linux import ROOT, read
from rocmlab.readers import decode, nvidia_smi, smi

Read = Callable[[], dict[str, Any]]
LIMIT_S = 5
COMMANDS = {
    "amd-smi": ["amd-smi", "metric", "--usage", "--power", "--clock", "--temperature", "--mem-usage", "--json"],
    "rocm-smi": [
        *("rocm-smi", "--showtemp", "--showpower", "--showmaxpower", "--showclocks", "--showuse"),
        *("--showmeminfo", "vram", "gtt", "--showbus", "--json"),
    ],
    "nvidia-smi": tools.COMMANDS["nvidia-smi"],
}
# The class names do not depend on the language of Windows, as the names of counters do.
QUERY = (
    "$a = Get-CimInstance Win32_PerfFormattedData_GPUPerformanceCounters_GPUAdapterMemory;"
    "@{adapters=@($a | Select-Object Name,DedicatedUsage,SharedUsage)} | ConvertTo-Json -Depth 4 -Compress"
)


# ---- the machine itself


class Host:
    """Reads processor and memory by psutil; spilled is what lies in swap."""

    def __init__(self) -> None:
        psutil.cpu_percent()  # the share counts from here on
        self._asked = time.monotonic()

    def read(self) -> dict[str, Any]:
        memory, frequency = psutil.virtual_memory(), psutil.cpu_freq() if hasattr(psutil, "cpu_freq") else None
        began, self._asked = self._asked, time.monotonic()
        used = psutil.cpu_percent()
        return {
            # Windows tells the nominal clock here, whatever the processor does.
            "sclk_mhz": frequency.current if frequency and os.name != "nt" else None,
            "temp_c": _processor_c(),
            "use_percent": used if self._asked - began > 0.1 else None,  # ticks of 10 ms: less says nothing
            "memory_used_bytes": memory.total - memory.available,
            "memory_total_bytes": memory.total,
            "spilled_bytes": psutil.swap_memory().used,
        }


def own_core(root: Path = ROOT) -> dict[str, Any]:
    """Return {host_mhz, host_max_mhz} of the core that this process runs on, as Linux's cpufreq tells them; elsewhere,
    and in most virtual machines, null with the reason."""
    folder = root / f"sys/devices/system/cpu/cpu{timing.core()}/cpufreq"
    found: dict[str, Any] = {}
    for key, name in (("host_mhz", "scaling_cur_freq"), ("host_max_mhz", "cpuinfo_max_freq")):
        found[key] = _either(folder, (name,), 1e3) or None  # in kHz
        if found[key] is None:
            found[f"{key}_reason"] = "the system does not tell the clock of a core"
    return found


def _processor_c() -> float | None:
    ask = getattr(psutil, "sensors_temperatures", None)
    found = ask() if ask else {}
    for chip in ("k10temp", "zenpower", "coretemp", "cpu_thermal", "acpitz"):
        if found.get(chip):
            return found[chip][0].current
    return None


# ---- amdgpu's files on Linux


def sysfs(bus: str | None, root: Path = ROOT) -> Read | None:
    """Return the reader of one card's files, by PCI address or, without one, of the only card; None without any."""
    devices = root / "sys/bus/pci/devices"
    cards = [path.parent for path in sorted(devices.glob("*/mem_info_vram_total"))]
    mine = [card for card in cards if card.name == bus] if bus else cards
    if len(mine) != 1:
        return None
    hwmon = next(iter(sorted((mine[0] / "hwmon").glob("hwmon*"))), None)
    return lambda: card_files(mine[0], hwmon)


def card_files(card: Path, hwmon: Path | None) -> dict[str, Any]:
    """Return what amdgpu writes: hwmon in millidegrees, microwatts and hertz, memory in bytes, use in percent."""
    found: dict[str, Any] = {
        "use_percent": _number(card / "gpu_busy_percent"),
        "memory_used_bytes": _number(card / "mem_info_vram_used"),
        "memory_total_bytes": _number(card / "mem_info_vram_total"),
        "spilled_bytes": _number(card / "mem_info_gtt_used"),
        "sclk_mhz": current_level(read(card / "pp_dpm_sclk")),
        "sclk_max_mhz": highest_level(read(card / "pp_dpm_sclk")),
        "mclk_mhz": current_level(read(card / "pp_dpm_mclk")),
        "mclk_max_mhz": highest_level(read(card / "pp_dpm_mclk")),
    }
    if hwmon is None:
        return found
    found["power_w"] = _either(hwmon, ("power1_average", "power1_input"), 1e6)
    found["power_cap_w"] = _either(hwmon, ("power1_cap",), 1e6)
    labels = {read(path): path.name.removesuffix("_label") for path in hwmon.glob("*_label")}
    for key, label, scale in (("temp_c", "edge", 1e3), ("temp_hotspot_c", "junction", 1e3), ("sclk_mhz", "sclk", 1e6),
                              ("mclk_mhz", "mclk", 1e6)):  # fmt: skip
        value = _either(hwmon, (f"{labels[label]}_input",), scale) if label in labels else None
        found[key] = value if value is not None else found.get(key)
    if found["temp_c"] is None and "edge" not in labels:
        found["temp_c"] = _either(hwmon, ("temp1_input",), 1e3) or found["temp_hotspot_c"]
    return found


def current_level(text: str) -> float | None:
    """Return the MHz of the line with the asterisk: `1: 2580Mhz *`."""
    match = re.search(r"^\s*\S+:\s*(\d+)\s*mhz\s*\*", text, re.MULTILINE | re.IGNORECASE)
    return float(match[1]) if match else None


def highest_level(text: str) -> float | None:
    """Return the highest MHz of a list of levels; None where it holds fewer than two: one level is only the present."""
    found = {float(mhz) for mhz in re.findall(r"^\s*\d+:\s*(\d+)\s*mhz", text, re.MULTILINE | re.IGNORECASE)}
    return max(found) if len(found) > 1 else None


def _number(path: Path) -> float | None:
    text = read(path)
    return float(text) if re.fullmatch(r"\d{1,18}", text) else None


def _either(folder: Path, names: tuple[str, ...], scale: float) -> float | None:
    for name in names:
        value = _number(folder / name)
        if value is not None:
            return value / scale
    return None


# ---- programs


def programs(vendor: str | None, bus: str | None) -> list[tuple[str, Read | None]]:
    """Return the programs that may be asked about a card of this vendor, in the order of preference."""
    names = ("amd-smi", "rocm-smi") if vendor == "AMD" else ("nvidia-smi",)
    found: list[tuple[str, Read | None]] = [(name, _program(name, bus)) for name in names]
    return [*found, ("Windows counters", lambda: adapters(windows.powershell(QUERY)))] if os.name == "nt" else found


def _program(name: str, bus: str | None) -> Read | None:
    path = tools.where(name)
    return (lambda: card_of(name, _output([path, *COMMANDS[name][1:]]), bus)) if path else None


def _output(command: list[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="rocmlab-", ignore_cleanup_errors=True) as folder:
        code = isolate.run(command, limit_s=LIMIT_S, env=isolate.child_environment(), folder=Path(folder))[0]
        return decode(Path(folder, "stdout").read_bytes()) if code == 0 else ""


def card_of(name: str, text: str, bus: str | None) -> dict[str, Any]:
    """Return the row of one card from a program's text: by PCI address where it prints one, else the only one."""
    if not text.strip():
        return {}
    cards = nvidia_smi.parse(text) if name == "nvidia-smi" else smi.parse(text)["gpus"]
    mine = [card for card in cards if bus and str(card.get("bus") or "").lower() == bus.lower()]
    if not mine and not any(bus and card.get("bus") for card in cards):  # one that prints another address is another
        mine = cards
    return mine[0] if len(mine) == 1 else {}


def adapters(answer: dict[str, Any]) -> dict[str, Any]:
    """Return memory used and shared from Windows' counters, of the adapter that uses most; {} without any."""
    listed = answer.get("adapters")
    rows = [one for one in listed or [] if isinstance(one, dict) and smi.number(one.get("DedicatedUsage")) is not None]
    if not rows:
        return {}
    mine = max(rows, key=lambda one: smi.number(one["DedicatedUsage"]) or 0)
    used, shared = (smi.number(mine.get(key)) for key in ("DedicatedUsage", "SharedUsage"))
    return {"memory_used_bytes": used, "spilled_bytes": shared}
