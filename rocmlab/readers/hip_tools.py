"""hipinfo, hipconfig, rocm-sdk, rocm_agent_enumerator, rocm-bootstrap-detect and the import of amdsmi."""

from __future__ import annotations

import re
from typing import Any

KEPT = {
    "Name": "name",
    "gcnArchName": "arch",
    "multiProcessorCount": "multiprocessors",
    "clockRate": "clock_mhz",
    "memoryClockRate": "memory_clock_mhz",
    "memoryBusWidth": "bus_bits",
    "totalGlobalMem": "memory_gb",
    "isIntegrated": "integrated",
    "warpSize": "warp_size",
    "memInfo.free": "memory_free_gb",
}


def hipinfo(text: str) -> dict[str, Any]:
    """Return `{devices, error_code, error, complete}` of hipinfo.

    A bus width of 0 is None: hipinfo on Windows prints 0, or a wrong width, for real cards.
    """
    blocks: list[dict[str, Any]] = []
    for line in text.splitlines():
        start = re.match(r"^device#\s+(\d{1,9})\s*$", line)
        field = re.match(r"^([\w.]+):\s+(.*?)\s*$", line)
        if start:
            blocks.append({"index": int(start.group(1)), **dict.fromkeys(KEPT.values())})
        elif field and blocks and field.group(1) in KEPT:
            name = KEPT[field.group(1)]
            blocks[-1][name] = field.group(2) if name in ("name", "arch") else _number(field.group(2))
    for block in blocks:
        block["bus_bits"] = block["bus_bits"] or None
    error = re.search(r'HIP API error = 0*(\d{1,9}) "([^"]*)"|hipGetDeviceCount\w* *(?:=>|:) *err=(\d{1,9})\b', text)
    code = int(error.group(1) or error.group(3)) if error else None
    whole = (
        bool(blocks) and all(block["arch"] for block in blocks) and not re.search(r"^\.\.\.\s*$", text, re.MULTILINE)
    )
    return {
        "devices": blocks,
        "error_code": code,
        "error": error.group(2) if error else None,
        "complete": whole or code is not None,
    }


def _number(value: str) -> float | None:
    match = re.match(r"-?\d{1,18}(?!\d)(?:\.\d+)?", value)
    return float(match.group()) if match else None


def hipconfig(text: str) -> dict[str, Any]:
    """Return `{version, platform, compiler, runtime, path, clang}` of the Perl and of the compiled hipconfig."""
    fields = dict(re.findall(r"^([A-Z_]+)[ \t]*:[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))
    version = re.search(r"^HIP version[ \t]*:[ \t]*(\S+)", text, re.MULTILINE)
    clang = re.search(r"clang version (\S+)", text)
    return {
        "version": version.group(1) if version else None,
        "platform": fields.get("HIP_PLATFORM"),
        "compiler": fields.get("HIP_COMPILER"),
        "runtime": fields.get("HIP_RUNTIME"),
        "path": fields.get("HIP_PATH"),
        "clang": clang.group(1) if clang else None,
    }


def rocm_sdk(text: str) -> dict[str, Any]:
    """Return `{targets, test_ok, tests, packages}` of `rocm-sdk version|targets|test` and `pip freeze`."""
    targets = re.search(r"^(gfx\w+(?:;[\w.]+)*;?(?:\.\.\.)?)\s*$", text, re.MULTILINE)
    listed = [one for one in (targets.group(1).split(";") if targets else []) if one.startswith("gfx")]
    ran = re.search(r"^Ran (\d{1,9}) tests? in", text, re.MULTILINE)
    ok = None if not ran else bool(re.search(r"^OK\b", text, re.MULTILINE)) and "FAILED" not in text
    version = re.search(r"^(\d+\.\d+[\w.+]*)\s*$", text, re.MULTILINE)
    packages = dict(re.findall(r"^((?:rocm|amd-torch)[\w-]*)==(\S+)\s*$", text, re.MULTILINE))
    return {
        "version": version.group(1) if version else None,
        "targets": listed,
        "complete": "..." not in (targets.group(1) if targets else ""),
        "tests": int(ran.group(1)) if ran else None,
        "test_ok": ok,
        "packages": packages,
    }


def agents(text: str) -> list[str]:
    """Return the targets of rocm_agent_enumerator or rocm-bootstrap-detect; gfx000 stands for the processor."""
    found = re.findall(r"^(?:\s*Node \d+: )?(gfx[0-9a-f]+)\b", text, re.MULTILINE)
    return [one for one in dict.fromkeys(found) if one != "gfx000"]
