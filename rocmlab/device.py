"""What card, build and overrides are these, and does a launch give the right value?

`snapshot()` measures (everything risky in a child process), `judge(snapshot)` is pure, `line(snapshot)` says it in one
line. The launch decides whether a device works; lists of names only inform.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import psutil

from rocmlab import findings, isolate
from rocmlab.environment import arch_of, judge, launches, subject, system

__all__ = ["arch_of", "check", "judge", "launches", "line", "snapshot", "subject", "system"]

SCHEMA = "rocmlab-probe-1"
LAUNCH_OP = "mm 64x64 fp32, compared with CPU"
# float32 product of two normal 64 x 64 matrices: 64 additions of rounding 6e-8 stay far below this.
LAUNCH_TOLERANCE = 1e-4
TORCH_LIMIT_S = 60
RECORDED = re.compile(
    r"^(HIP|HSA|ROCR|MIOPEN|ROCBLAS|HIPBLASLT|PYTORCH|TORCH|OMP|MKL|CUDA|NVIDIA|AMD|GPU)_|^(GPU_DEVICE_ORDINAL)$"
)
TOOLS = ("rocm-smi", "amd-smi", "rocminfo", "rocprof", "rocprofv3", "rocm-sdk", "hipconfig", "hipinfo", "nvidia-smi")
PACKAGES = ("torch", "transformers", "papermill", "nbclient", "nbconvert", "pandas", "matplotlib", "numpy", "triton")
VENDORS = {"0x1002": "AMD", "0x10de": "NVIDIA", "0x8086": "Intel"}


# ---- measure


def snapshot() -> dict[str, Any]:
    """Return what torch and the machine answered (schema rocmlab-probe-1); never raises, never hangs over 2 minutes."""
    asked = isolate.call("rocmlab.device:ask_torch", limit_s=TORCH_LIMIT_S)
    torch_facts = asked.result or {
        "torch_version": None,
        "torch_version_hip": None,
        "torch_version_cuda": None,
        "cuda_is_available": False,
        "device_count": 0,
        "arch_list": [],
        "devices": [],
        "import_error": asked.error or f"{asked.words}\n{asked.stderr[-2000:]}",
    }
    return {
        "schema": SCHEMA,
        "platform": platform.platform(),
        "python": platform.python_version(),
        **torch_facts,
        "system_gpus": system_gpus(),
        "env": {key: value for key, value in sorted(os.environ.items()) if RECORDED.match(key)},
        "launch_probe": _launches(torch_facts["devices"]),
        "which": {tool: "present" if shutil.which(tool) else None for tool in TOOLS},
        "host": host(),
        "versions": versions(),
        "notes": None,
    }


def ask_torch() -> dict[str, Any]:
    """Return torch's own answers about build and devices; runs in a child process because it may crash or hang."""
    import torch

    count = torch.cuda.device_count()
    return {
        "torch_version": str(torch.__version__),
        "torch_version_hip": torch.version.hip,
        "torch_version_cuda": torch.version.cuda,
        "cuda_is_available": torch.cuda.is_available(),
        "device_count": count,
        "arch_list": torch.cuda.get_arch_list() if torch.cuda.is_available() else [],
        "devices": [_device(torch, index) for index in range(count)],
    }


def _device(torch: Any, index: int) -> dict[str, Any]:
    seen = torch.cuda.get_device_properties(index)
    names = ("name", "gcnArchName", "total_memory", "multi_processor_count", "is_integrated", "major", "minor")
    facts = {name: getattr(seen, name, None) for name in (*names, "warp_size", "pci_bus_id", "pci_device_id")}
    return {"index": index, **facts, "L2_cache_size": getattr(seen, "L2_cache_size", None)}


def _launches(devices: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Launch on every device, each in its own child; device 0 speaks for the probe when there is only one."""
    if not devices:
        return None
    each = []
    for device in devices:
        outcome = isolate.call("rocmlab.device:launch", {"index": device["index"]}, limit_s=TORCH_LIMIT_S)
        if outcome.result:
            each.append({"index": device["index"], **outcome.result})
        else:
            error = (outcome.error or outcome.words).splitlines()[0]
            each.append({"index": device["index"], "ok": False, "error": error, "max_abs_err": None})
    return {"op": LAUNCH_OP, **{key: each[0].get(key) for key in ("ok", "error", "max_abs_err")}, "per_device": each}


def launch(index: int) -> dict[str, Any]:
    """Multiply two matrices on one device and compare with the CPU; returns {ok, error, max_abs_err}."""
    import torch

    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(64, 64, generator=generator) for _ in range(2))
    device = torch.device("cuda", index)
    error = ((a.to(device) @ b.to(device)).cpu().double() - a.double() @ b.double()).abs().max().item()
    right = error <= LAUNCH_TOLERANCE  # False for NaN too
    return {"ok": right, "error": None if right else f"wrong value, off by {error:.3g}", "max_abs_err": error}


def host() -> dict[str, Any]:
    """Return processor name, cores and memory in bytes; what cannot be told is null."""
    name = platform.processor() or None
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
        name = found.group(1).strip() if found else name
    except OSError:
        pass
    return {
        "cpu": name,
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
    }


def versions() -> dict[str, str | None]:
    """Return the installed version of each package that can change a number, null where it is absent."""
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def system_gpus() -> list[str]:
    """Return the GPUs that the operating system itself lists, whatever torch says; [] when it cannot be told."""
    if platform.system() == "Windows":
        return _windows_gpus()
    found = []
    for folder in sorted(Path("/sys/bus/pci/devices").glob("*")):
        facts = {name: _read(folder / name) for name in ("class", "vendor", "device")}
        if facts["class"].startswith("0x03") and facts["vendor"] in VENDORS:
            found.append(f"{VENDORS[facts['vendor']]} {facts['vendor'][2:]}:{facts['device'][2:]}")
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _windows_gpus() -> list[str]:
    query = "Get-CimInstance Win32_VideoController | ForEach-Object { $_.Name }"
    try:
        done = subprocess.run(
            ["powershell", "-NoProfile", "-Command", query], capture_output=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.decode("utf-8", errors="replace").splitlines() if line.strip()]


# ---- say


def line(probe: dict[str, Any]) -> str:
    """Return one ASCII line: device, arch, memory, build, system."""
    chosen = subject(probe)
    memory = f"{chosen['memory_bytes'] / 2**30:.1f} GiB" if chosen["memory_bytes"] else "memory unknown"
    parts = [f"{chosen['name']} ({chosen['arch']})", memory, f"torch {probe.get('torch_version') or 'absent'}"]
    return ", ".join([*parts, probe.get("platform") or "system unknown"]).encode("ascii", "replace").decode()


def check(lang: str = "en", as_json: bool = False) -> int:
    """Take a snapshot, print what it means, return 0: a broken GPU is a finding, not a failure of this program."""
    probe = snapshot()
    found = judge(probe)
    if as_json:
        print(json.dumps({"snapshot": probe, "findings": [findings.say(f, lang) for f in found]}, ensure_ascii=True))
        return 0
    print(line(probe))
    for one in found:
        said = findings.say(one, lang)
        print(f"[{said['status']}] {said['code']}: {said['sentence']} {said['advice']}")
    return 0
