"""clinfo (both forms), torch.utils.collect_env, and the KFD topology of Linux."""

from __future__ import annotations

import re
from typing import Any

CLINFO = {
    "name": r"(?:^  Device Name\s{2,}|^  Name:\s+)(\S.*?)\s*$",
    "board": r"(?:Device Board Name \(AMD\)|Board name:)\s+(\S.*?)\s*$",
    "compute_units": r"Max compute units:?\s+(\d{1,18})\b",
    "clock_mhz": r"Max clock frequency:?\s+(\d{1,18})\b",
    "memory_bytes": r"Global memory size:?\s+(\d{1,18})\b",
    "driver": r"Driver [Vv]ersion:?\s+(\S.*?)\s*$",
}


def clinfo(text: str) -> dict[str, Any]:
    """Return `{platforms, devices}`; on RDNA `compute_units` are work-group processors, half of the CUs."""
    platforms = re.search(r"Number of platforms:?\s+(\d{1,9})\b", text)
    # A device starts at its type or name line after "Number of devices".
    parts = re.split(r"^  (?=Device Name\s{2,}|Device Type:\s+CL_)", text, flags=re.MULTILINE)[1:]
    return {"platforms": int(platforms.group(1)) if platforms else None, "devices": [_cl_device(p) for p in parts]}


def _cl_device(part: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, pattern in CLINFO.items():
        match = re.search(pattern, "  " + part, re.MULTILINE)
        value = match.group(1) if match else None
        found[key] = int(value) if value and key in ("compute_units", "clock_mhz", "memory_bytes") else value
    return found


def collect_env(text: str) -> dict[str, Any]:
    """Return what torch.utils.collect_env printed: torch, hip, cuda, os, python, platform, available, gpus, libraries.

    `gpus` are `{name, arch}`; a value of "N/A" or "Could not collect" is None.
    """
    fields = {}
    for line in text.splitlines():
        match = re.match(r"^([A-Z][\w ./]*?)\s*:\s*(.*?)\s*$", line)
        if match and match.group(1) not in fields:
            value = match.group(2)
            fields[match.group(1)] = None if value in ("N/A", "Could not collect", "") else value
    models = re.search(r"^GPU models and configuration:\s*(.*(?:\n(?:GPU \d+|\s+).*)*)", text, re.MULTILINE)
    return {
        "torch": fields.get("PyTorch version"),
        "hip": fields.get("ROCM used to build PyTorch"),
        "cuda": fields.get("CUDA used to build PyTorch"),
        "os": fields.get("OS"),
        "python": fields.get("Python version"),
        "platform": fields.get("Python platform"),
        "available": {"True": True, "False": False}.get(fields.get("Is CUDA available") or ""),
        "gpus": _models(models.group(1) if models else ""),
        "hip_runtime": fields.get("HIP runtime version"),
        "miopen": fields.get("MIOpen runtime version"),
        "libraries": dict(re.findall(r"^\[pip3\] ([\w.-]+)==(\S+)", text, re.MULTILINE)),
    }


def _models(text: str) -> list[dict[str, str | None]]:
    found = []
    for line in text.splitlines():
        name = re.sub(r"^\s*GPU \d+:\s*", "", line).strip()
        arch = re.search(r"\((gfx[\w:+-]+)\)\s*$", name)
        if name and name not in ("N/A", "No CUDA", "Could not collect"):
            found.append({"name": name.removesuffix(arch.group(0)).strip() if arch else name, "arch": arch and arch[1]})
    return found


def device_properties(text: str) -> list[dict[str, Any]]:
    """Return the devices in `_CudaDeviceProperties(name='...', ...)` lines, as torch writes them on every build.

    Rows: name, arch (None for a CUDA device), memory_mib (what torch calls MB is 2^20 bytes), multiprocessors (on RDNA
    work-group processors, half of the CUs), whole (the line was not cut).
    """
    found = []
    for body in re.findall(r"_CudaDeviceProperties\((name=[^\n]*)", text):
        name, arch = re.search(r"name='([^'\n]*)'", body), re.search(r"gcnArchName='(gfx[\w:+-]+)'", body)
        memory = re.search(r"total_memory=(\d{1,12})MB", body)
        units = re.search(r"multi_processor_count=(\d{1,9})\b", body)
        found.append(
            {
                "name": name and name[1],
                "arch": arch and arch[1],
                "memory_mib": int(memory[1]) if memory else None,
                "multiprocessors": int(units[1]) if units else None,
                "whole": body.rstrip().endswith(")"),
            }
        )
    return found


def kfd_properties(text: str) -> dict[str, int]:
    """Return the numbers of one `properties` file of the KFD topology."""
    return {key: int(value) for key, value in re.findall(r"^(\w+) (\d{1,20})\s*$", text, re.MULTILINE)}


def kfd_dump(text: str) -> list[dict[str, int]]:
    """Return the nodes of a dump with `[nodes/N/properties]` lines, each with its memory added as `memory_bytes`."""
    nodes: dict[int, dict[str, int]] = {}
    parts = re.findall(r"^\[nodes/(\d{1,9})/(\S+?)\]\n((?:(?!\[).*\n?)*)", text, re.MULTILINE)
    for index, rest, body in parts:
        found = kfd_properties(body)
        node = nodes.setdefault(int(index), {})
        if rest.startswith("mem_banks"):
            node["memory_bytes"] = max(node.get("memory_bytes", 0), found.get("size_in_bytes", 0))
        else:
            node.update(found)
    return [nodes[index] for index in sorted(nodes)]
