"""What does a snapshot mean? Pure functions from one probe (schema rocmlab-probe-1) to findings; no GPU is touched.

`judge(probe)` gives the findings, worst first. The launch decides whether a device works; lists of names only inform.
"""

from __future__ import annotations

import re
from typing import Any

from rocmlab import findings

# gfx targets in AMD's own list for ROCm 7.14 (2026), by system.
NEWER = {f"gfx{n}" for n in (1100, 1101, 1102, 1103, 1150, 1151, 1152, 1153, 1200, 1201)}
LISTED = {"Linux": NEWER | {"gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030"}, "Windows": NEWER}
AMD_NAME = re.compile(r"\bAMD\b|\bATI\b|Radeon|Instinct|FirePro", re.IGNORECASE)
NO_KERNEL = re.compile(
    r"invalid device function|kernel image is invalid|InvalidImage|no kernel image|no binary for gpu|"
    r"InvalidKernelFile|NoBinaryForGpu|SharedObjectInitFailed|no code object",
    re.IGNORECASE,
)


def arch_of(device: dict[str, Any]) -> str:
    """Return gfx1032 for an AMD device (features such as :xnack- dropped), sm_90 for an NVIDIA one."""
    name = (device.get("gcnArchName") or "").split(":")[0]
    return name if name.startswith("gfx") else f"sm_{device.get('major')}{device.get('minor')}"


def launches(probe: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return what the launch gave, by device index."""
    found = probe.get("launch_probe") or {}
    return {one["index"]: one for one in found.get("per_device") or [{"index": 0, **found}] if "ok" in one}


def system(probe: dict[str, Any]) -> str:
    """Return Windows, WSL or Linux; another name as it stands."""
    name = probe.get("platform") or ""
    if "microsoft" in name.lower():
        return "WSL"
    return name.split("-")[0] or "unknown"


def subject(probe: dict[str, Any], arch: str = "auto") -> dict[str, Any]:
    """Choose the device under study: the best accelerator that passes its launch check, else the CPU.

    Best = of the asked arch, then discrete before integrated, then more memory. `why` says it in words.
    """
    passed = launches(probe)
    usable = [d for d in probe.get("devices") or [] if passed.get(d["index"], {}).get("ok")]
    matching = [d for d in usable if arch in ("auto", arch_of(d))]
    if not matching:
        why = "no accelerator passed its launch check" if not usable else f"no accelerator here is {arch}"
        cpu = (probe.get("host") or {}).get("cpu") or "CPU"
        memory = (probe.get("host") or {}).get("memory_bytes")
        return {"device": "cpu", "arch": "cpu", "name": cpu, "index": None, "memory_bytes": memory, "why": why}
    best = max(matching, key=lambda d: (not d.get("is_integrated"), d.get("total_memory") or 0))
    return {
        "device": f"cuda:{best['index']}",
        "arch": arch_of(best),
        "name": best.get("name") or arch_of(best),
        "index": best["index"],
        "memory_bytes": best.get("total_memory"),
        "why": "passed its launch check",
    }


def judge(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return the findings about build and device of one snapshot, worst first; [] when nothing is to be said."""
    build = _build(probe)
    return findings.worst_first(build or _devices(probe))


def _build(probe: dict[str, Any]) -> list[findings.Finding]:
    version, hip, cuda = (probe.get(key) for key in ("torch_version", "torch_version_hip", "torch_version_cuda"))
    amd = [name for name in probe.get("system_gpus") or [] if AMD_NAME.search(name)]
    if not version:
        error = (probe.get("import_error") or "").strip()
        if not error or "No module named 'torch'" in error:
            return [findings.finding("TORCH_ABSENT")]
        return [findings.finding("IMPORT_FAILED", error=error.splitlines()[-1])]
    if amd and not hip and not probe.get("device_count"):
        code = "WRONG_BUILD_CUDA" if cuda else "WRONG_BUILD_CPU"
        return [findings.finding(code, card=amd[0], torch=version, cuda=cuda)]
    return []


def _devices(probe: dict[str, Any]) -> list[findings.Finding]:
    devices, passed = probe.get("devices") or [], launches(probe)
    if not devices:
        listed = probe.get("system_gpus") or []
        return [findings.finding("NO_DEVICE", cards=", ".join(listed)) if listed else findings.finding("NO_GPU")]
    found = []
    for device in devices:
        launched, arch = passed.get(device["index"]), arch_of(device)
        words = {"card": device.get("name") or arch, "arch": arch, "index": device["index"]}
        if launched is None:
            found.append(findings.finding("NOT_LAUNCHED", **words))
        elif launched.get("ok"):
            family = "Linux" if system(probe) == "WSL" else system(probe)
            if arch.startswith("gfx") and arch not in LISTED.get(family, ()):
                found.append(findings.finding("NOT_ON_MAKERS_LIST", system=system(probe), **words))
        else:
            found.append(_failed_launch(probe, launched, words))
    return found


def _failed_launch(probe: dict[str, Any], launched: dict[str, Any], words: dict[str, Any]) -> findings.Finding:
    error, built = launched.get("error") or "no reason given", probe.get("arch_list") or []
    if NO_KERNEL.search(error) and words["arch"] not in built:
        return findings.finding("KERNELS_MISSING", built=", ".join(built) or "unknown", error=error, **words)
    code = "LAUNCH_WRONG_VALUE" if "wrong value" in error else "LAUNCH_FAILED"
    return findings.finding(code, error=error, **words)


# ---- tables


def summary(probe: dict[str, Any]) -> list[dict[str, str]]:
    """Return rows {what, found} for a table: build, system, processor, each device with its launch, variables."""
    host, passed = probe.get("host") or {}, launches(probe)
    memory = host.get("memory_bytes")
    rows = [
        ("torch", probe.get("torch_version") or "not installed"),
        ("built for", probe.get("torch_version_hip") or probe.get("torch_version_cuda") or "CPU only"),
        ("Python", probe.get("python") or "unknown"),
        ("system", probe.get("platform") or "unknown"),
        ("processor", f"{host.get('cpu') or 'unknown'}, {host.get('cores_logical') or '?'} threads"),
        ("memory", f"{memory / 2**30:.1f} GiB" if memory else "unknown"),
        ("GPUs the system lists", ", ".join(probe.get("system_gpus") or []) or "none"),
    ]
    for device in probe.get("devices") or []:
        launched = passed.get(device["index"], {})
        said = {True: "launch agrees with the CPU", False: f"launch fails: {launched.get('error')}"}
        memory = f"{device['total_memory'] / 2**30:.2f} GiB" if device.get("total_memory") else "memory unknown"
        words = [device.get("name") or "?", arch_of(device), memory, said.get(launched.get("ok"), "launch not tried")]
        rows.append((f"device {device['index']}", ", ".join(words)))
    rows += [(name, value) for name, value in (probe.get("env") or {}).items()]
    return [{"what": what, "found": value} for what, value in rows]
