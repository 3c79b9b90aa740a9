"""What Windows knows about GPUs, driver, power and switches: one PowerShell answer and a few registry values.

The readers of those answers are pure and tested on samples; the asking itself is not run on Windows yet.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from rocmlab import archs

PCI = re.compile(r"VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})", re.IGNORECASE)
VENDORS = {"1002": "AMD", "10de": "NVIDIA", "8086": "Intel"}
LIMIT_S = 7  # below the limit of the child that asks, so that the registry still counts when PowerShell is slow
# CIM class names are the same in every language of Windows, the names of performance counters are not.
QUERY = """
$ErrorActionPreference = 'SilentlyContinue'
[Console]::OutputEncoding = [Text.Encoding]::UTF8
$video = @(Get-CimInstance Win32_VideoController |
  Select-Object Name, PNPDeviceID, DriverVersion, ConfigManagerErrorCode)
$link = @{}
foreach ($one in $video) {
  $values = @{}
  foreach ($key in 'CurrentLinkWidth', 'MaxLinkWidth', 'CurrentLinkSpeed', 'MaxLinkSpeed') {
    $values[$key] = (Get-PnpDeviceProperty -InstanceId $one.PNPDeviceID -KeyName "DEVPKEY_PciDevice_$key").Data
  }
  $link[$one.PNPDeviceID] = $values
}
@{
  video = $video
  link = $link
  memory = @(Get-CimInstance Win32_PerfFormattedData_GPUPerformanceCounters_GPUAdapterMemory |
    Select-Object Name, DedicatedUsage, SharedUsage)
  system = Get-CimInstance Win32_OperatingSystem | Select-Object Caption, BuildNumber
  runtimes = @(Get-Item "$env:SystemRoot\\System32\\amdhip64*.dll" |
    ForEach-Object { @{ name = $_.Name; version = $_.VersionInfo.FileVersion } })
} | ConvertTo-Json -Depth 4 -Compress
"""
HEADERS = "*/*/VC/Tools/MSVC/*/include/type_traits"
CONTROL = r"SYSTEM\CurrentControlSet\Control"
DISPLAY_CLASS = CONTROL + r"\Class\{4d36e968-e325-11ce-bfc1-08002be10318}"
# name here: (path under HKEY_LOCAL_MACHINE, value name). Sources: Microsoft's documentation of each switch.
REGISTRY = {
    "HwSchMode": (CONTROL + r"\GraphicsDrivers", "HwSchMode"),
    "TdrDelay": (CONTROL + r"\GraphicsDrivers", "TdrDelay"),
    "AllowDevelopmentWithoutDevLicense": (
        r"SOFTWARE\Microsoft\Windows\CurrentVersion\AppModelUnlock",
        "AllowDevelopmentWithoutDevLicense",
    ),
    "LongPathsEnabled": (CONTROL + r"\FileSystem", "LongPathsEnabled"),
    "UEFISecureBootEnabled": (CONTROL + r"\SecureBoot\State", "UEFISecureBootEnabled"),
    "VerifiedAndReputablePolicyState": (CONTROL + r"\CI\Policy", "VerifiedAndReputablePolicyState"),
    "ActivePowerScheme": (CONTROL + r"\Power\User\PowerSchemes", "ActivePowerScheme"),
    "ActiveOverlayAcPowerScheme": (CONTROL + r"\Power\User\PowerSchemes", "ActiveOverlayAcPowerScheme"),
    "VCRuntime": (r"SOFTWARE\Microsoft\VisualStudio\14.0\VC\Runtimes\X64", "Version"),
}
PLANS = {
    "a1841308-3541-4fab-bc81-f71556f20b4a": "power saver",
    "381b4222-f694-41f0-9685-ff5bb260df2e": "balanced",
    "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c": "high performance",
    "e9a42b02-d5df-448d-aa00-03f14749eb61": "ultimate performance",
    "961cc777-2547-4f9d-8174-7d86181b8a7a": "best power efficiency",
    "ded574b5-45a0-4f42-8737-46345c09c238": "best performance",
}


# ---- ask (not run on Windows yet)


def describe() -> dict[str, Any]:
    """Ask PowerShell and the registry; what does not answer is null."""
    return arrange(powershell(QUERY), registry(), display_drivers(), headers())


def powershell(query: str, program: str = "powershell") -> dict[str, Any]:
    """Return the JSON object that a PowerShell query prints, {} when it fails or takes too long."""
    command = [program, "-NoProfile", "-NonInteractive", "-Command", query]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False, stdin=subprocess.DEVNULL)
        found = json.loads(done.stdout.decode("utf-8-sig", errors="replace"))
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def registry() -> dict[str, Any]:
    """Return the values named in REGISTRY, None where a key is absent."""
    if sys.platform != "win32":
        return {}
    import winreg

    found: dict[str, Any] = {}
    for name, (path, value) in REGISTRY.items():
        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, path) as key:
                found[name] = winreg.QueryValueEx(key, value)[0]
        except OSError:
            found[name] = None
    return found


def display_drivers() -> list[dict[str, Any]]:
    """Return DriverDesc, MatchingDeviceId and RadeonSoftwareVersion of each display adapter's class key."""
    if sys.platform != "win32":
        return []
    import winreg

    found = []
    for number in range(16):
        row: dict[str, Any] = {}
        for value in ("DriverDesc", "MatchingDeviceId", "RadeonSoftwareVersion"):
            try:
                with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, rf"{DISPLAY_CLASS}\{number:04d}") as key:
                    row[value] = winreg.QueryValueEx(key, value)[0]
            except OSError:
                continue
        if row:
            found.append(row)
    return found


def headers() -> list[str]:
    """Return the C++ header folders of Visual Studio that hold <type_traits>, versions only."""
    roots = [os.environ[name] for name in ("PROGRAMFILES", "PROGRAMFILES(X86)") if name in os.environ]
    paths = [path for root in roots for path in Path(root, "Microsoft Visual Studio").glob(HEADERS)]
    return sorted({path.parts[-3] for path in paths})


def gpus_from_wsl() -> list[dict[str, Any]]:
    """Ask Windows from inside WSL: its own PCI bus shows no GPU."""
    program = "/mnt/c/Windows/System32/WindowsPowerShell/v1.0/powershell.exe"
    return gpus(powershell(QUERY, program)) if os.path.exists(program) else []  # noqa: PTH110


# ---- arrange (pure)


def arrange(
    answer: dict[str, Any], values: dict[str, Any], drivers: list[dict[str, Any]], msvc: list[str]
) -> dict[str, Any]:
    """Return system_gpus, gpus, windows, driver, power and perf_counters from the raw answers."""
    # The registry may keep cards that were taken out, so it only stands in when PowerShell does not answer.
    entries = [{"Name": one.get("DriverDesc"), "PNPDeviceID": one.get("MatchingDeviceId")} for one in drivers]
    found = gpus(answer) or gpus({"video": entries})
    system = answer.get("system") or {}
    software = [one["RadeonSoftwareVersion"] for one in drivers if one.get("RadeonSoftwareVersion")]
    overlay = PLANS.get(str(values.get("ActiveOverlayAcPowerScheme") or "").lower())
    scheme = PLANS.get(str(values.get("ActivePowerScheme") or "").lower())
    return {
        "system_gpus": [gpu["name"] for gpu in found],
        "system_gpus_reason": None if answer or found else "PowerShell gave no answer",
        "gpus": found,
        "windows": {
            "caption": system.get("Caption"),
            "build": system.get("BuildNumber"),
            "display_driver": software[0] if software else next((gpu["driver"] for gpu in found), None),
            "device_manager": "; ".join(f"{gpu['name']}: {gpu['state']}" for gpu in found if gpu["state"]) or None,
            "gpu_scheduling": {1: False, 2: True}.get(values.get("HwSchMode") or 0),
            "tdr_delay_s": values.get("TdrDelay"),
            "developer_mode": _switch(values.get("AllowDevelopmentWithoutDevLicense")),
            "long_paths": _switch(values.get("LongPathsEnabled")),
            "secure_boot": _switch(values.get("UEFISecureBootEnabled")),
            "smart_app_control": {0: "off", 1: "on", 2: "evaluating"}.get(
                values.get("VerifiedAndReputablePolicyState", -1)
            ),
            "vc_runtime": values.get("VCRuntime"),
            "msvc_headers": msvc,
            "system_runtimes": many(answer.get("runtimes")),
        },
        "driver": {"amd": software[0] if software else None},
        "power": {"profile": overlay or scheme},
        "perf_counters": {"GPU Adapter Memory/Dedicated Usage": memory(answer)},
    }


def gpus(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one row a real GPU; remote, virtual and basic adapters are no GPUs of a known maker on the PCI bus."""
    found = []
    for one in many(answer.get("video")):
        match = PCI.search(one.get("PNPDeviceID") or "")
        vendor = match.group(1).lower() if match else ""
        if vendor not in VENDORS or not match:
            continue
        pci_id = f"{vendor}:{match.group(2).lower()}"
        code = one.get("ConfigManagerErrorCode")
        link = (answer.get("link") or {}).get(one.get("PNPDeviceID")) or {}
        found.append(
            {
                "name": one.get("Name") or pci_id,
                "vendor": VENDORS[vendor],
                "pci_id": pci_id,
                "bus": None,
                "arch": archs.identify(one.get("Name"), pci_id),
                "driver": one.get("DriverVersion"),
                "state": None if code is None else "working properly" if code == 0 else f"code {code}",
                "link": {
                    "current_link_width": link.get("CurrentLinkWidth"),
                    "max_link_width": link.get("MaxLinkWidth"),
                },
            }
        )
    return found


def memory(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Return dedicated memory in use an adapter; instances are numbered, since their names are local ids."""
    return [
        {"instance": f"adapter_{number}", "bytes": int(one.get("DedicatedUsage") or 0)}
        for number, one in enumerate(many(answer.get("memory")))
    ]


def many(value: Any) -> list[dict[str, Any]]:
    """Return a list of objects: PowerShell writes a list of one as the object itself."""
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, dict)]


def _switch(value: Any) -> bool | None:
    return None if value is None else bool(value)
