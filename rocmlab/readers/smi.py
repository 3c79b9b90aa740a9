"""rocm-smi and amd-smi: text, tables and JSON of several generations, to one row a GPU.

A row: index, name, arch, bus, temp_c, temp_hotspot_c, power_w, power_cap_w, sclk_mhz, sclk_max_mhz (the highest that
the card allows), mclk_mhz, mclk_max_mhz, use_percent, memory_total_bytes, memory_used_bytes, spilled_bytes (GTT, the
part of the machine's memory that the card uses), limited_by (what holds the clock down), driver; what the tool did not
say, or said as "N/A", is None.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

FIELDS = (
    "index",
    "name",
    "arch",
    "bus",
    "temp_c",
    "temp_hotspot_c",
    "power_w",
    "power_cap_w",
    "sclk_mhz",
    "sclk_max_mhz",
    "mclk_mhz",
    "mclk_max_mhz",
    "use_percent",
    "memory_total_bytes",
    "memory_used_bytes",
    "spilled_bytes",
    "limited_by",
    "driver",
)
# rocm-smi's JSON keys, lower case; renamed between releases ("(c)" and "(C)", "Sensor mem" and "Sensor memory").
JSON_KEYS = {
    "device name": "name",
    "card series": "name",
    "gfx version": "arch",
    "pci bus": "bus",
    "temperature (sensor edge) (c)": "temp_c",
    "temperature (sensor junction) (c)": "temp_hotspot_c",
    "average graphics package power (w)": "power_w",
    "current socket graphics package power (w)": "power_w",
    "max graphics package power (w)": "power_cap_w",
    "sclk clock speed:": "sclk_mhz",
    "mclk clock speed:": "mclk_mhz",
    "gpu use (%)": "use_percent",
    "vram total memory (b)": "memory_total_bytes",
    "vram total used memory (b)": "memory_used_bytes",
    "gtt total used memory (b)": "spilled_bytes",
}

# amd-smi tells that the clock is held down, not by what.
THROTTLE = {"THROTTLED": ["throttle status"], "UNTHROTTLED": []}
CARD = re.compile(r"card\d{1,9}")
TOO_LARGE = 10**18  # no size, clock or temperature; a damaged text


def recognise(text: str) -> bool:
    return bool(
        re.search(r"=== ?ROCm System Management Interface ?===|AMDSMI Tool: \S|\| AMD-SMI \d", text)
        or "Driver not initialized (amdgpu" in text
        or re.search(r'"card\d+"\s*:|"gpu_data"\s*:|"gfx_activity"\s*:', text)
        or re.search(r"^GPU: \d+\s*$", text, re.MULTILINE)
    )


def is_document(document: Any) -> bool:
    """Tell whether a parsed JSON document is what rocm-smi or amd-smi print."""
    if isinstance(document, dict):
        return "gpu_data" in document or any(CARD.fullmatch(str(key)) for key in document)
    return isinstance(document, list) and bool(document) and isinstance(document[0], dict) and "gpu" in document[0]


def parse(text: str) -> dict[str, Any]:
    """Return `{tool, version, rocm_version, driver_loaded, gpus, complete}` for any of the forms."""
    if "Driver not initialized (amdgpu" in text:
        return _result("rocm-smi", [], driver_loaded=False)
    if re.search(r'"(card\d+|gpu_data|gpu)"\s*:', text):
        return _json(text)
    if "AMDSMI Tool:" in text:
        return _version_line(text)
    if "AMD-SMI" in text:
        return _box(text)
    if re.search(r"^GPU: \d+\s*$", text, re.MULTILINE):
        return _tree(text)
    return _table(text)


def _result(tool: str, gpus: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    empty = {"version": None, "rocm_version": None, "driver_loaded": None, "complete": True}
    return {"tool": tool, **empty, "gpus": gpus, **more}


def row(**values: Any) -> dict[str, Any]:
    return {**dict.fromkeys(FIELDS), **{key: value for key, value in values.items() if value is not None}}


def number(value: Any) -> float | None:
    """Return the number in `"42"`, `"(800Mhz)"`, `"20 W"`, `{"value": 42, "unit": "%"}`; None for N/A."""
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, int) and abs(value) >= TOO_LARGE:  # Python refuses to write out 5,000 digits
        return None
    match = re.search(r"-?\d{1,18}(?!\d)(?:\.\d+)?", str(value)) if value not in (None, "N/A") else None
    return float(match.group()) if match else None


# ---- JSON


def _json(text: str) -> dict[str, Any]:
    start = min(position for position in (text.find("{"), text.find("[")) if position >= 0)
    try:
        found = json.JSONDecoder().raw_decode(text[start:])[0]
    except ValueError:
        return _cut_json(text)
    if isinstance(found, dict) and "gpu_data" not in found:
        cards = [key for key, value in found.items() if CARD.fullmatch(key) and isinstance(value, dict)]
        driver = _part(found, "system").get("Driver version")
        return _result("rocm-smi", [_card(key, found[key], driver) for key in cards])
    entries = found["gpu_data"] if isinstance(found, dict) else found
    entries = entries if isinstance(entries, list) else []
    return _result("amd-smi", [_entry(entry) for entry in entries if isinstance(entry, dict) and "gpu" in entry])


def _part(parent: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a section of an entry; {} where the tool says "N/A" or nothing in its place."""
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _card(key: str, values: dict[str, str], driver: str | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"index": int(key[4:]), "driver": driver}
    for name, value in values.items():
        field = JSON_KEYS.get(name.lower())
        if field:
            found[field] = value if field in ("name", "arch", "bus") else number(value)
    if found.get("arch") and not str(found["arch"]).startswith("gfx"):
        found["arch"] = None
    return row(**found)


def _entry(entry: dict[str, Any]) -> dict[str, Any]:
    asic, power, usage, temperature = (_part(entry, name) for name in ("asic", "power", "usage", "temperature"))
    clocks, memory = _part(entry, "clock"), _part(entry, "mem_usage")
    size = _part(entry, "vram").get("size") or memory.get("total_vram")
    return row(
        index=entry["gpu"] if isinstance(entry["gpu"], int) and abs(entry["gpu"]) < TOO_LARGE else None,
        name=asic.get("market_name"),
        arch=asic.get("target_graphics_version"),
        use_percent=number(usage.get("gfx_activity")),
        power_w=number(power.get("socket_power")),
        temp_c=number(temperature.get("edge")) or number(temperature.get("hotspot")),
        temp_hotspot_c=number(temperature.get("hotspot")),
        sclk_mhz=number(_part(clocks, "gfx_0").get("clk")),
        sclk_max_mhz=number(_part(clocks, "gfx_0").get("max_clk")),
        mclk_mhz=number(_part(clocks, "mem_0").get("clk")),
        mclk_max_mhz=number(_part(clocks, "mem_0").get("max_clk")),
        memory_total_bytes=_from_mb(size),
        memory_used_bytes=_from_mb(memory.get("used_vram")),
        spilled_bytes=_from_mb(memory.get("used_gtt")),
        limited_by=THROTTLE.get(str(power.get("throttle_status")).upper()),
        driver=_part(entry, "driver").get("version"),
    )


def _from_mb(value: Any) -> float | None:
    """Return bytes of what amd-smi calls MB, which are 2^20 bytes."""
    found = number(value)
    return None if found is None else found * 2**20


def _cut_json(text: str) -> dict[str, Any]:
    """Read what can be read of JSON that was cut: whole pairs only."""
    pairs = dict(re.findall(r'"([^"]+)"\s*:\s*"([^"]*)"', text))
    if '"card0"' in text:
        return _result("rocm-smi", [_card("card0", pairs)], complete=False)
    usage = re.search(r'"gfx_activity"\s*:\s*\{\s*"value"\s*:\s*(\d+)', text)
    found = row(index=0, use_percent=float(usage.group(1)) if usage else None)
    return _result("amd-smi", [found], complete=False)


# ---- text


def _table(text: str) -> dict[str, Any]:
    """The concise table: columns move between releases, so a value is known by its unit, never by its place."""
    gpus = [_table_row(line) for line in text.splitlines() if re.match(r"^\d{1,9}\s.*\d(?:\.\d+)?\s?°?[cC]\b", line)]
    return _result("rocm-smi", gpus, complete="End of ROCm SMI Log" in text)


def _table_row(line: str) -> dict[str, Any]:
    watts = [float(found) for found in re.findall(r"([\d.]+)W\b", line)]
    clocks = [float(found) for found in re.findall(r"(\d+)Mhz", line)]
    percents = [float(found) for found in re.findall(r"([\d.]+)%", line)]
    temperature = re.search(r"([\d.]+)\s?°?[cC]\b", line)
    return row(
        index=int(line.split()[0]),
        temp_c=float(temperature.group(1)) if temperature else None,
        power_w=watts[0] if watts else None,
        power_cap_w=watts[1] if len(watts) > 1 else None,
        sclk_mhz=clocks[0] if clocks else None,
        mclk_mhz=clocks[1] if len(clocks) > 1 else None,
        use_percent=percents[2] if len(percents) == 3 else None,  # fan, memory, GPU; a cut row has fewer
    )


def _version_line(text: str) -> dict[str, Any]:
    line = next(line for line in text.splitlines() if "AMDSMI Tool:" in line)
    parts = {key.strip(): value.strip() for key, _, value in (part.partition(":") for part in line.split("|"))}
    known = {key: None if value == "N/A" else value for key, value in parts.items()}
    found = _result("amd-smi", [], version=known.get("AMDSMI Tool"), rocm_version=known.get("ROCm version"))
    return {**found, "driver": known.get("amdgpu version")}


def _box(text: str) -> dict[str, Any]:
    version, rocm = re.search(r"AMD-SMI (\S+)", text), re.search(r"ROCm version: (\S+)", text)
    gpus, lines = [], text.splitlines()
    for line, below in itertools.pairwise(lines):
        first = re.match(r"\|\s*[0-9a-f]{4}:[0-9a-f]{2}:\S+\s+(.+?)\s*\|(.*)\|", line)
        second = re.match(r"\|\s*(\d{1,9})\s.*\|(.*)\|", below)
        if first and second:
            gpus.append(_box_rows(first, second))
    closed = bool(gpus) and text.rstrip().endswith("+")
    found = _result("amd-smi", gpus, complete=closed)
    return {**found, "version": version and version.group(1), "rocm_version": rocm and rocm.group(1)}


def _box_rows(first: re.Match[str], second: re.Match[str]) -> dict[str, Any]:
    temperature = re.search(r"(\d+)\s*°C", first.group(2))
    power, memory = re.search(r"(\d+)/(\d+) W", first.group(2)), re.search(r"(\d+)/(\d+) MB", second.group(2))
    use = re.search(r"(\d+) %", second.group(2))
    return row(
        index=int(second.group(1)),
        name=first.group(1),
        temp_c=float(temperature.group(1)) if temperature else None,
        power_w=float(power.group(1)) if power else None,
        power_cap_w=float(power.group(2)) if power else None,
        use_percent=float(use.group(1)) if use else None,
        memory_used_bytes=float(memory.group(1)) * 2**20 if memory else None,
        memory_total_bytes=float(memory.group(2)) * 2**20 if memory else None,
    )


def _tree(text: str) -> dict[str, Any]:
    """amd-smi's indented text: `GPU: 0`, then sections as keys without a value."""
    gpus: list[dict[str, Any]] = []
    path: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = re.match(r"^(\s*)([A-Z][A-Z0-9_]*): ?(.*)$", line)
        if not match:
            continue  # a long list goes on in the next line
        indent, key, value = len(match.group(1)), match.group(2), match.group(3).strip()
        if key == "GPU" and indent == 0 and re.fullmatch(r"\d{1,9}", value):
            gpus.append({"index": int(value)})
            continue
        path = [one for one in path if one[0] < indent]
        if value and gpus:
            gpus[-1]["/".join([*(name for _, name in path), key])] = None if value == "N/A" else value
        elif not value:
            path.append((indent, key))
    return _result("amd-smi", [_tree_row(one) for one in gpus])


def _tree_row(found: dict[str, Any]) -> dict[str, Any]:
    return row(
        index=found["index"],
        name=found.get("ASIC/MARKET_NAME"),
        arch=found.get("ASIC/TARGET_GRAPHICS_VERSION"),
        use_percent=number(found.get("USAGE/GFX_ACTIVITY")),
        power_w=number(found.get("POWER/SOCKET_POWER")),
        sclk_mhz=number(found.get("CLOCK/GFX_0/CLK")),
        sclk_max_mhz=number(found.get("CLOCK/GFX_0/MAX_CLK")),
        mclk_max_mhz=number(found.get("CLOCK/MEM_0/MAX_CLK")),
        temp_c=number(found.get("TEMPERATURE/EDGE")),
        temp_hotspot_c=number(found.get("TEMPERATURE/HOTSPOT")),
        mclk_mhz=number(found.get("CLOCK/MEM_0/CLK")),
        memory_total_bytes=_from_mb(found.get("MEM_USAGE/TOTAL_VRAM")),
        memory_used_bytes=_from_mb(found.get("MEM_USAGE/USED_VRAM")),
        spilled_bytes=_from_mb(found.get("MEM_USAGE/USED_GTT")),
        limited_by=THROTTLE.get(str(found.get("POWER/THROTTLE_STATUS")).upper()),
        driver=found.get("DRIVER/VERSION"),
    )
