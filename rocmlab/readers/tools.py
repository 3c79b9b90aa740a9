"""Output of the inventory and monitoring tools: rocminfo, rocm-smi, amd-smi, hipinfo, hipconfig, clinfo, collect_env,
rocm-sdk, rocm_agent_enumerator, the KFD topology, and a shell transcript in which the kernel refuses its module.

Each is known by its content; every reader gives flat numbers, one sentence, and says when the text is cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rocmlab import archs, findings
from rocmlab.readers import Evidence, Reading, decode, hip_tools, inventories, logs, rocminfo, smi

KIND = "tool_output"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
REFUSED = re.compile(
    r"unsigned module is rejected|Key was rejected by service|Required key not available|"
    r"unsigned module loading is restricted|PKCS#7 signature not signed with a trusted key",
    re.IGNORECASE,
)
# The kernel also prints this line when it goes on and loads the module ("tainting kernel").
UNVERIFIED = re.compile(r"module verification failed: signature and/or required key missing(?! - tainting)")


# "could not insert 'nvidia'", "could not insert module ./vboxdrv.ko", "amdgpu: module verification failed".
MODULE_NAMED = re.compile(
    r"could not insert (?:module )?'?(?:\S*/)?(\w+)|([A-Za-z_]\w*): module verification failed|\b(amdgpu)\b"
)


def clean(text: str) -> str:
    """Drop colours, carriage returns, and a comment line on top."""
    text = COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return text.split("\n", 1)[1] if re.match(r"#[^\n]*\n", text) else text


def recognise(evidence: Evidence) -> bool:
    """A JSON document is a tool's only if its own top level says so; a notebook, a guide or a program may quote any."""
    if not evidence.head:
        return False
    if evidence.json is not None:
        return smi.is_document(evidence.json)
    text = clean(decode(evidence.head))
    return not logs.PROSE.search(text) and _reader(text) is not None


def read(evidence: Evidence) -> Reading:
    """Return numbers, findings and a headline of one tool's output."""
    text = clean(evidence.text)
    # A document was known by its parsed form; a pattern over its text would be a second, different answer.
    reader = read_smi if evidence.json is not None else _reader(clean(decode(evidence.head)))
    assert reader is not None, "recognise() found one"
    return reader(text)


def _reader(text: str) -> Callable[[str], Reading] | None:
    """Return the reader of a text, None when it is no output of a known tool. Certain signs come first."""
    for sign, reader in READERS:
        if isinstance(sign, re.Pattern) and sign.search(text):
            return reader
        if callable(sign) and sign(text):
            return reader
    return None


def _reading(tool: str, said: str, numbers: dict[str, Any], found: list[findings.Finding], whole: bool) -> Reading:
    cut = [] if whole else [findings.finding("TOOL_OUTPUT_CUT", tool=tool)]
    head = findings.finding("TOOL_READ", tool=tool, said=said)
    return Reading(KIND, None, {"complete": whole, **numbers}, [*found, *cut], head, {"tool": tool})


# ---- kernel module


def _module_state(text: str) -> bool | None:
    """Return whether the text shows the amdgpu module loaded; None where it does not say."""
    if re.search(r"ROCk module (version \S+ )?is loaded|^amdgpu\s+\d+\s+\d+", text, re.MULTILINE):
        return True
    if re.search(r"ROCk module is NOT loaded|amdgpu not found in modules|could not insert '?amdgpu", text):
        return False
    return None


def _refused(text: str) -> bool:
    """Tell whether the kernel refuses amdgpu: a line that names no module counts where no other module is refused."""
    if not re.search(r"amdgpu|ROCk", text) or _module_state(text) is True:
        return False
    lines = [line for line in text.splitlines() if REFUSED.search(line) or UNVERIFIED.search(line)]
    named = {name for line in lines for match in MODULE_NAMED.finditer(line) for name in match.groups() if name}
    return "amdgpu" in named if named else bool(lines)


def secure_boot(text: str) -> Reading:
    """A transcript in which the kernel refuses amdgpu for want of a signature."""
    state = re.search(r"SecureBoot (enabled|disabled)", text)
    numbers = {"secure_boot": state.group(1) == "enabled"} if state else {}
    return Reading(KIND, None, numbers, [findings.finding("DRIVER_NOT_LOADED_SECURE_BOOT")])


# ---- one reader a tool


def read_rocminfo(text: str) -> Reading:
    parsed = rocminfo.parse(text)
    gpus = rocminfo.gpus(parsed)
    found = [findings.finding("DRIVER_NOT_LOADED", variant="text")] if parsed["module_loaded"] is False else []
    numbers: dict[str, Any] = {"agents": len(parsed["agents"]), "gpus": len(gpus)}
    if gpus:
        first, memory = gpus[0], gpus[0]["memory_kb"]
        numbers |= {"compute_units": first["compute_units"], "wavefront": first["wavefront"]}
        numbers["memory_gib"] = memory / 2**20 if memory else None
        if not memory:
            numbers["memory_gib_reason"] = "not in the text"
    names = [f"{one['marketing_name'] or 'GPU'} ({one['name'] or '?'})" for one in gpus]
    return _reading("rocminfo", ", ".join(names) or "no GPU agent", numbers, found, parsed["complete"])


def read_smi(text: str) -> Reading:
    parsed = smi.parse(text)
    found = [findings.finding("DRIVER_NOT_LOADED", variant="text")] if parsed["driver_loaded"] is False else []
    numbers: dict[str, Any] = {"gpus": len(parsed["gpus"])}
    shown = ("temp_c", "power_w", "sclk_mhz", "use_percent")
    for key in shown if parsed["gpus"] else ():
        numbers[key] = parsed["gpus"][0][key]
        if numbers[key] is None:
            numbers[f"{key}_reason"] = "not in the text"
    names = [one["name"] or one["arch"] or f"GPU {one['index']}" for one in parsed["gpus"]]
    version = f"version {parsed['version']}" if parsed["version"] else "no GPU"
    return _reading(parsed["tool"], ", ".join(names) or version, numbers, found, parsed["complete"])


def read_hipinfo(text: str) -> Reading:
    parsed = hip_tools.hipinfo(text)
    devices, found = parsed["devices"], []
    if parsed["error_code"] is not None and not devices:
        others = sorted(set(re.findall(r"^gfx[0-9a-f]+\s*$", text, re.MULTILINE)))
        words = {"number": parsed["error_code"], "said": parsed["error"], "seen": ", ".join(others).strip() or "none"}
        found.append(findings.finding("DRIVER_DOES_NOT_ENUMERATE", variant="tool", **words))
    numbers: dict[str, Any] = {"gpus": len(devices)}
    if parsed["error_code"] is not None:
        numbers["error_code"] = parsed["error_code"]
    if devices:
        numbers |= {"memory_gb": devices[0]["memory_gb"], "bus_bits": devices[0]["bus_bits"]}
        if devices[0]["bus_bits"] is None:
            numbers["bus_bits_reason"] = "hipinfo prints 0"
    names = [f"{one['name']} ({one['arch'] or '?'})" for one in devices]
    return _reading("hipinfo", ", ".join(names) or "no device", numbers, found, parsed["complete"])


def read_hipconfig(text: str) -> Reading:
    parsed = hip_tools.hipconfig(text)
    version = parsed["version"] or "of unknown version"
    found = [findings.finding("HIP_PLATFORM_NVIDIA")] if parsed["platform"] == "nvidia" else []
    said = f"HIP {version}, platform {parsed['platform'] or 'not named'}, clang {parsed['clang'] or 'not found'}"
    # The full form ends with the variables and the kernel; the short one after the compiler's flags or targets.
    return _reading("hipconfig", said, {}, found, bool(parsed["version"] and parsed["platform"]))


def read_rocm_sdk(text: str) -> Reading:
    parsed = hip_tools.rocm_sdk(text)
    numbers = {"targets": len(parsed["targets"]), "packages": len(parsed["packages"])}
    if parsed["tests"] is not None:
        numbers |= {"tests": parsed["tests"], "tests_passed": bool(parsed["test_ok"])}
    said = parsed["packages"].get("rocm") or parsed["packages"].get("rocm-sdk-core") or parsed["version"]
    tested = {True: ", its tests pass", False: ", its tests fail", None: ""}[parsed["test_ok"]]
    return _reading("rocm-sdk", f"ROCm {said or 'of unknown version'}{tested}", numbers, [], parsed["complete"])


def read_agents(text: str) -> Reading:
    found, names = [], hip_tools.agents(text)
    if "Traceback" in text:
        last = next((line for line in reversed(text.splitlines()) if re.match(r"\w*Error:", line)), "an exception")
        found.append(findings.finding("TOOL_FAILED", tool="rocm_agent_enumerator", said=last))
    return _reading("rocm_agent_enumerator", ", ".join(names) or "no GPU", {"gpus": len(names)}, found, True)


def read_amdsmi(text: str) -> Reading:
    library = re.search(r"lib\w+\.so", text)
    name = library.group(0) if library else "libamd_smi.so"
    found = findings.finding("TOOL_NO_LIBRARY", tool="amdsmi", library=name)
    return _reading("amdsmi", "no library", {}, [found], True)


def read_clinfo(text: str) -> Reading:
    parsed = inventories.clinfo(text)
    numbers: dict[str, Any] = {"platforms": parsed["platforms"], "gpus": len(parsed["devices"])}
    if parsed["devices"]:
        numbers["work_group_processors"] = parsed["devices"][0]["compute_units"]
    names = [f"{one['board'] or 'device'} ({one['name'] or '?'})" for one in parsed["devices"]]
    return _reading("clinfo", ", ".join(names) or "no OpenCL device", numbers, [], parsed["platforms"] is not None)


def read_collect_env(text: str) -> Reading:
    parsed = inventories.collect_env(text)
    built = f"ROCm (HIP {parsed['hip']})" if parsed["hip"] else f"CUDA {parsed['cuda']}" if parsed["cuda"] else "CPU"
    names = [f"{one['name']} ({one['arch'] or '?'})" for one in parsed["gpus"]]
    said = f"torch {parsed['torch']} for {built}, {', '.join(names) or 'no GPU'}, {parsed['os']}"
    # The list of libraries is the last part of a whole report.
    whole = "Versions of relevant libraries" in text
    return _reading("collect_env", said, {"gpus": len(names)}, [], whole)


def read_properties(text: str) -> Reading:
    devices = inventories.device_properties(text)
    first = devices[0]
    numbers: dict[str, Any] = {"gpus": len(devices), "multiprocessors": first["multiprocessors"]}
    numbers["memory_gib"] = None if first["memory_mib"] is None else first["memory_mib"] / 2**10
    numbers |= {f"{key}_reason": "not in the text" for key, value in list(numbers.items()) if value is None}
    names = [f"{one['name'] or 'GPU'} ({one['arch'] or '?'})" for one in devices]
    return _reading("torch", ", ".join(names), numbers, [], all(one["whole"] for one in devices))


def _properties(text: str) -> bool:
    """A program that prints its device and then fails, or that logs, is known by what it says later."""
    return "_CudaDeviceProperties(name=" in text and not re.search(r"[Ee]rror\b|Traceback|[Ww]arning", text)


def read_kfd(text: str) -> Reading:
    nodes = [one for one in inventories.kfd_dump(text) if one.get("gfx_target_version")]
    names = [archs.from_kfd(one["gfx_target_version"]) or "?" for one in nodes]
    numbers: dict[str, Any] = {"gpus": len(nodes)}
    if nodes and nodes[0].get("memory_bytes"):
        numbers["memory_gib"] = nodes[0]["memory_bytes"] / 2**30
    return _reading("KFD topology", ", ".join(names) or "no GPU node", numbers, [], bool(nodes))


READERS: tuple[tuple[Any, Callable[[str], Reading]], ...] = (
    (_refused, secure_boot),
    (re.compile(r"^KeyError: 'libamd_smi\.so'|^Unable to find libamd_smi\.so", re.MULTILINE), read_amdsmi),
    (re.compile(r"^PyTorch version: ", re.MULTILINE), read_collect_env),
    (re.compile(r"^\[nodes/\d+/properties\]", re.MULTILINE), read_kfd),
    (re.compile(r"rocm_agent_enumerator\"?, line|^(Detected \d+|No) AMD GPUs?\b", re.MULTILINE), read_agents),
    (re.compile(r"^HIP version\s*:[\s\S]*^HIP_PLATFORM\s*:", re.MULTILINE), read_hipconfig),
    (re.compile(r"^device#\s+\d+\s*$|checkHipErrors\(\)|hipGetDeviceCount *=> *err", re.MULTILINE), read_hipinfo),
    (re.compile(r"^Number of platforms:?\s+\d", re.MULTILINE), read_clinfo),
    (rocminfo.recognise, read_rocminfo),
    (smi.recognise, read_smi),
    (re.compile(r"^rocm-sdk-\w+==|^\[command\] rocm-sdk|^gfx\w+(;gfx\w+)+", re.MULTILINE), read_rocm_sdk),
    (_properties, read_properties),
    (re.compile(r"^(gfx[0-9a-f]+\n)+\s*$|\A(gfx[0-9a-f]+\n?)+\Z"), read_agents),
)
