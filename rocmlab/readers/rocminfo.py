"""Text of rocminfo: agents of the HSA runtime, with the form of every release from ROCm 5 to 7 and under WSL."""

from __future__ import annotations

import re
from typing import Any

FIELD = re.compile(r"^(\s*)([^:]+?):{1,2}\s*(.*?)\s*$")
AGENT = re.compile(r"^Agent \d+\s*$")
# Fields that are kept, with the name they get here.
KEPT = {
    "Name": "name",
    "Marketing Name": "marketing_name",
    "Vendor Name": "vendor",
    "Device Type": "type",
    "Compute Unit": "compute_units",
    "Wavefront Size": "wavefront",
    "Max Clock Freq. (MHz)": "max_clock_mhz",
    "Chip ID": "chip_id",
    "Memory Properties": "memory_properties",
    "Node": "node",
}
NUMBERS = {"compute_units", "wavefront", "max_clock_mhz", "chip_id", "node"}


def recognise(text: str) -> bool:
    """Also a piece of it: the block of one agent, or one whose first lines are missing."""
    if re.search(r"^ROCk module (version \S+ )?is |^HSA (System Attributes|Agents)\s*$", text, re.MULTILINE):
        return True
    return bool(
        re.search(r"^ +Device Type:", text, re.MULTILINE) and re.search(r"^ +SIMDs per CU:", text, re.MULTILINE)
    )


def parse(text: str) -> dict[str, Any]:
    """Return `{module_loaded, module_version, wsl, runtime_version, agents, complete}`.

    An agent: name (gfx1032 for a GPU), marketing_name, type (CPU, GPU, DSP), compute_units, wavefront, max_clock_mhz,
    chip_id, node, memory_kb (its largest global pool), l2_kb and l3_kb (null where not printed), isas.
    """
    module = re.search(r"ROCk module (?:version (\S+) )?is (NOT )?loaded", text)
    runtime = re.search(r"^Runtime Version:\s*(\S+)", text, re.MULTILINE)
    return {
        "module_loaded": None if not module else not module.group(2),
        "module_version": module.group(1) if module else None,
        "wsl": "WSL environment detected" in text,
        "runtime_version": runtime.group(1) if runtime else None,
        "agents": [_agent(block) for block in _blocks(text)],
        "complete": ("HSA Agents" in text and "*** Done ***" in text) or bool(module and module.group(2)),
    }


def _blocks(text: str) -> list[list[str]]:
    """Return the lines of each agent; without the list's header, what stands before the first is the rest of one."""
    blocks: list[list[str]] = [] if "HSA Agents" in text else [[]]
    for line in text.splitlines():
        if AGENT.match(line):
            blocks.append([])
        elif blocks:
            blocks[-1].append(line)
    return [block for block in blocks if any("Device Type:" in line or "Name:" in line for line in block)]


def _agent(lines: list[str]) -> dict[str, Any]:
    agent: dict[str, Any] = {
        **dict.fromkeys(KEPT.values()),
        "memory_kb": None,
        "l2_kb": None,
        "l3_kb": None,
        "isas": [],
    }
    segment = ""
    for line in lines:
        match = FIELD.match(line)
        if not match:
            continue
        indent, key, value = len(match.group(1)), match.group(2).strip(), match.group(3)
        if indent == 2 and key in KEPT and agent[KEPT[key]] is None:
            agent[KEPT[key]] = number(value) if KEPT[key] in NUMBERS else value or None
        elif key in ("L2", "L3"):
            agent[f"{key.lower()}_kb"] = number(value)
        elif key == "Segment":
            segment = value
        elif key == "Size" and segment.startswith("GLOBAL"):
            agent["memory_kb"] = max(agent["memory_kb"] or 0, number(value) or 0)
        elif key == "Name" and value.startswith("amdgcn"):
            agent["isas"].append(value)
    if agent["name"] is None and agent["isas"]:
        agent["name"] = agent["isas"][0].rsplit("--", 1)[-1]
    return agent


def number(value: str) -> int | None:
    """Return the leading integer of `32(0x20)`, `32768(0x8000) KB` or `2900`; None for N/A or nothing."""
    match = re.match(r"-?\d{1,18}(?!\d)", value)
    return int(match.group()) if match else None


def gpus(parsed: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the GPU agents: an NPU is an agent of the same vendor, so the device type decides.

    Where the text was cut before the type, the name of a gfx target stands for it.
    """
    named = [one for one in parsed["agents"] if one["type"] is None and str(one["name"]).startswith("gfx")]
    return [one for one in parsed["agents"] if one["type"] == "GPU" or one in named]
