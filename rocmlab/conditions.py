"""Is the rest of the machine as a measurement needs it: power, PCIe, room, versions, compiler, tools? Pure.

Each judge reads one part of a snapshot and is silent where that part is absent.
"""

from __future__ import annotations

import re
from typing import Any

from rocmlab import findings
from rocmlab.gpus import cards, integrated, launches, system

# The study loads a 0.6 B model in float32 (2.4 GB) in two processes beside torch itself, and keeps one copy on disk.
NEED_MEMORY_GIB = 6
NEED_DISK_GIB = 4
# Above the gigabyte or so that a desktop draws with on an 8 GB card.
BUSY_SHARE = 0.25
# transformers refuses older ones; sdpa_kernel, which the attention notebook forces back ends with, is of 2.3.
OLDEST_TORCH = (2, 4)
MONITORS = ("rocm-smi", "amd-smi", "rocminfo")
NOT_ON_WINDOWS = ("rocm-smi", "amd-smi", "rocminfo", "rocprof", "rocprofv3")
NARROW_PLANS = ("power saver", "best power efficiency", "low-power", "powersave")

# With these drivers of Linux "powersave" is the usual governor, and the clock rises with the load all the same.
RISING_DRIVERS = ("intel_pstate", "amd-pstate-epp")


def judge(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return what stands in the way of a good measurement; notes for what is only worth knowing."""
    parts = (libraries, versions, compiler, runtime, power, links, room, in_use, tools)
    return [one for part in parts for one in part(probe)]


def libraries(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return libraries that trip over the absent torch.distributed, or fail to import otherwise."""
    errors = probe.get("import_errors") or {}
    found = []
    absent = [name for name, said in errors.items() if "torch.distributed" in str(said)]
    if absent:
        names = ", ".join(sorted({name.split(".")[0] for name in absent}))
        found.append(findings.finding("DISTRIBUTED_ABSENT", library=names, error=errors[absent[0]]))
    for name, said in errors.items():
        if name not in absent:
            found.append(findings.finding("LIBRARY_IMPORT_FAILED", library=name, error=str(said).splitlines()[-1]))
    return found


def rocm_of(version: str | None) -> tuple[int, ...] | None:
    """Return the ROCm version in a wheel's tag, +rocm7.11.0a20260115 -> (7, 11, 0); None for a date or a hash."""
    match = re.search(r"\+rocm(\d+(?:\.\d+)*)", version or "")
    return tuple(int(part) for part in match.group(1).split(".")) if match else None


def release(version: str | None) -> tuple[int, ...] | None:
    """Return the leading numbers of a version: 2.9.0a0+git123 -> (2, 9, 0)."""
    match = re.match(r"\d+(?:\.\d+)*", version or "")
    return tuple(int(part) for part in match.group().split(".")) if match else None


def flavour(version: str | None) -> str | None:
    """Return rocm, cuda or cpu from a wheel's tag; None where the version carries no such tag."""
    match = re.search(r"\+(rocm|cu\d|cpu)", version or "")
    return None if not match else "cuda" if match.group(1).startswith("cu") else match.group(1)


def versions(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return versions that do not fit together, and those that cannot be ordered at all."""
    installed, torch = probe.get("versions") or {}, probe.get("torch_version")
    found = []
    if torch and (release(torch) or OLDEST_TORCH) < OLDEST_TORCH:
        found.append(findings.finding("TORCH_TOO_OLD", torch=torch, oldest=".".join(map(str, OLDEST_TORCH))))
    mine = flavour(torch)
    for name in ("torchvision", "torchaudio", "triton"):
        theirs = flavour(installed.get(name))
        if mine and theirs and mine != theirs:
            words = {"torch": torch, "other": name, "version": installed[name]}
            found.append(findings.finding("VERSIONS_DO_NOT_FIT", **words))
    return [*found, *_sdk(torch, installed)]


def _sdk(torch: str | None, installed: dict[str, Any]) -> list[findings.Finding]:
    """Compare the wheel's ROCm with the ROCm packages beside it; a date or a hash is not a version."""
    sdk = installed.get("rocm-sdk-core") or installed.get("rocm")
    if not sdk or not torch or "rocm" not in torch:
        return []
    mine, theirs = rocm_of(torch), release(sdk)
    if mine is None or theirs is None:
        return [findings.finding("VERSIONS_UNORDERED", torch=torch, other="rocm-sdk-core", version=sdk)]
    length = min(len(mine), len(theirs), 3)
    if mine[:length] == theirs[:length]:
        return []
    return [findings.finding("VERSIONS_DO_NOT_FIT", torch=torch, other="rocm-sdk-core", version=sdk)]


def compiler(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return what the runtime compiler cannot do; silent where there is no AMD card or it was not tried."""
    checked = probe.get("compiler") or {}
    plain, header = checked.get("plain") or {}, checked.get("type_traits") or {}
    if not any(card.amd for card in cards(probe)) or not plain:
        return []
    words = {"arch": checked.get("arch"), "version": checked.get("version")}
    if not plain.get("ok"):
        return [findings.finding("RUNTIME_COMPILER_FAILS", said=_first_error(plain), **words)]
    if header.get("ok") is not False:
        return []
    missing = re.search(r"fatal error: '([^']+)' file not found", header.get("log") or "")
    variant = None if missing else "other"
    said = missing.group(1) if missing else _first_error(header)
    return [findings.finding("CXX_HEADERS_MISSING", variant=variant, said=said, **words)]


def _first_error(one: dict[str, Any]) -> str:
    lines = [line for line in (one.get("log") or "").splitlines() if "error" in line.lower()]
    return re.sub(r"^\S*?([^/\\\s]+:\d+:\d+:)", r"\1", lines[0]) if lines else one.get("status") or "no reason given"


def runtime(probe: dict[str, Any]) -> list[findings.Finding]:
    """Say it when the HIP runtime that was loaded is not the one that came with torch."""
    found = probe.get("runtime") or {}
    own, loaded = found.get("own") or [], found.get("loaded") or []
    foreign = [path for path in loaded if "amdhip64" in path.lower() and own and path not in own]
    return [findings.finding("RUNTIME_SHADOWED", loaded=foreign[0], own=own[0])] if foreign else []


def power(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return battery and power plans that hold clocks down."""
    facts, found = probe.get("power") or {}, []
    if facts.get("plugged") is False:
        found.append(findings.finding("ON_BATTERY"))
    keys = ("profile",) if facts.get("governor_driver") in RISING_DRIVERS else ("profile", "governor")
    saving = [facts[key] for key in keys if facts.get(key) in NARROW_PLANS]
    if saving:
        found.append(findings.finding("POWER_SAVING", plan=saving[0]))
    return found


def links(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return cards whose PCIe link is narrower than the card's own; speed is not judged, it drops while idle."""
    found = []
    for gpu in probe.get("gpus") or []:
        link = gpu.get("link") or {}
        width, full = _width(link.get("current_link_width")), _width(link.get("max_link_width"))
        if width and full and 0 < width < full <= 16:
            found.append(findings.finding("PCIE_NARROW", numbers={"pcie_lanes": width}, card=gpu["name"], full=full))
    return found


def _width(value: Any) -> int | None:
    match = re.search(r"\d+", str(value or ""))
    return int(match.group()) if match else None


def room(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return shortness of memory or disk for what the study needs."""
    facts, found = probe.get("capacity") or {}, []
    for key, need, code in (
        ("memory_available_bytes", NEED_MEMORY_GIB, "LOW_MEMORY"),
        ("disk_free_bytes", NEED_DISK_GIB, "LOW_DISK"),
    ):
        free = facts.get(key)
        if free is not None and free < need * 2**30:
            found.append(findings.finding(code, free=f"{free / 2**30:.1f}", need=need))
    return found


def in_use(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return devices whose memory others hold in good part; integrated ones share the machine's memory anyway."""
    found = []
    for device in probe.get("devices") or []:
        launched, total = launches(probe).get(device["index"], {}), device.get("total_memory")
        free = launched.get("memory_free_bytes")
        if free is None or not total or integrated(device):
            continue
        used = 1 - free / total
        if used > BUSY_SHARE:
            words = {"card": device.get("name"), "used": f"{100 * used:.0f}", "free": f"{free / 2**30:.1f}"}
            found.append(findings.finding("GPU_IN_USE", **words))
    return found


def tools(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return a note on monitoring tools that do not exist here, and on those that did not answer; AMD machines only."""
    present, where, found = probe.get("which") or {}, system(probe), []
    if not any(card.amd for card in cards(probe)):
        return []
    names = NOT_ON_WINDOWS if where == "Windows" else MONITORS
    missing = [name for name in names if name in present and not present[name]]
    if missing:
        variant = None if where == "Windows" else "installable"
        found.append(findings.finding("TOOLS_NOT_AVAILABLE", variant=variant, tools=", ".join(missing), system=where))
    answers = probe.get("tools") or {}
    silent = [name for name, one in answers.items() if one.get("status") in ("timeout", "empty")]
    if silent:
        found.append(findings.finding("TOOLS_DID_NOT_ANSWER", tools=", ".join(silent)))
    hipconfig = (answers.get("hipconfig") or {}).get("parsed")
    if isinstance(hipconfig, dict) and hipconfig.get("platform") == "nvidia":
        found.append(findings.finding("HIP_PLATFORM_NVIDIA"))
    return found
