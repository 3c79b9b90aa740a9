"""What torch itself says about build and devices, and whether a launch gives the right value. Runs in a child process.

`probe(path)` writes one JSON line after the other, each as soon as it is known: a crash or a hang keeps the earlier.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import time
from pathlib import Path
from typing import Any

LAUNCH_OP = "mm 64x64 fp32, compared with CPU"
# float32 product of two normal 64 x 64 matrices: 64 additions of rounding 6e-8 stay far below this.
LAUNCH_TOLERANCE = 1e-4
PROPERTIES = (
    *("name", "gcnArchName", "total_memory", "multi_processor_count", "is_integrated", "major", "minor"),
    *("warp_size", "pci_bus_id", "pci_device_id", "L2_cache_size", "memory_bus_width", "clock_rate"),
)


def probe(path: str) -> None:
    """Append to a file what torch says, line by line as it is known: build, devices, a launch on each, the rest."""

    def hand_over(**said: Any) -> None:
        _hand_over(path, **said)

    import torch

    version = torch.version
    build = {"torch_version_hip": version.hip, "torch_version_cuda": version.cuda}
    hand_over(imported_at=time.time(), build={"torch_version": str(torch.__version__), **build})
    count, available = torch.cuda.device_count(), torch.cuda.is_available()
    devices = [_device(torch, index) for index in range(count)]
    built = torch.cuda.get_arch_list() if available or version.hip else []
    facts = {"cuda_is_available": available, "device_count": count, "arch_list": built, "devices": devices}
    hand_over(devices=facts)
    for index in range(count):
        hand_over(launch=launch(index, path))
    hand_over(launching=None, extra=_extra(torch))


def _hand_over(path: str, **said: Any) -> None:
    with Path(path).open("a", encoding="utf-8") as file:
        file.write(json.dumps(said) + "\n")


def _device(torch: Any, index: int) -> dict[str, Any]:
    seen = torch.cuda.get_device_properties(index)
    return {"index": index, **{name: getattr(seen, name, None) for name in PROPERTIES}}


def launch(index: int, path: str) -> dict[str, Any]:
    """Multiply two matrices on one device and compare with the CPU; returns {index, ok, error, max_abs_err, memory}.

    The beginning is written down first, so that a slow import before it is not taken for a hang of the launch.
    """
    import torch

    _hand_over(path, launching=index, launching_at=time.time())
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(64, 64, generator=generator) for _ in range(2))
    try:
        device = torch.device("cuda", index)
        free = torch.cuda.mem_get_info(device)[0]
        error = ((a.to(device) @ b.to(device)).cpu().double() - a.double() @ b.double()).abs().max().item()
    except Exception as failure:
        said = f"{type(failure).__name__}: {failure}".splitlines()[0]
        return {"index": index, "ok": False, "error": said, "max_abs_err": None}
    right = error <= LAUNCH_TOLERANCE  # False for NaN too
    wrong = None if right else f"wrong value, off by {error:.3g}"
    # NaN is no JSON; the words above carry it.
    measured = error if error == error and error != float("inf") else None
    return {"index": index, "ok": right, "error": wrong, "max_abs_err": measured, "memory_free_bytes": free}


def _extra(torch: Any) -> dict[str, Any]:
    """Return what torch's build can do, which runtime was loaded, and whether a library trips over it."""
    own = torch.distributed.is_available()
    tripped = {} if hasattr(torch.distributed, "is_initialized") else _imports("transformers.generation")
    cpu_only = torch.version.hip is None and torch.version.cuda is None
    return {
        "torch_distributed": {"is_available": own, "has_is_initialized": hasattr(torch.distributed, "is_initialized")},
        "import_errors": tripped,
        "runtime": {} if cpu_only else _runtime(),
        "build": {
            "flash_attention": torch.backends.cuda.is_flash_attention_available(),
            "profiler_activities": sorted(str(one).split(".")[-1] for one in torch.profiler.supported_activities()),
            "dnn_version": torch.backends.cudnn.version(),
            "git": torch.version.git_version,
        },
    }


def _imports(name: str) -> dict[str, str]:
    try:
        importlib.import_module(name)
    except Exception as error:
        return {name: f"{type(error).__name__}: {error}"}
    return {}


def _runtime() -> dict[str, list[str]]:
    """Return the GPU runtime libraries that are loaded, and those that came with the wheels."""
    import psutil

    pattern = re.compile(r"(amdhip64|hsa-runtime64|rocblas|hipblaslt|MIOpen|libcuda|nvcuda|cudart|cudnn)[^/\\]*$", re.I)
    loaded = {os.path.realpath(one.path) for one in psutil.Process().memory_maps() if pattern.search(one.path)}
    folders = [package_folder(name) / part for name in ("torch", "_rocm_sdk_core") for part in ("lib", "bin")]
    own = {os.path.realpath(path) for folder in folders for path in folder.glob("*amdhip64*")}
    return {"loaded": sorted(loaded), "own": sorted(own)}


def package_folder(name: str) -> Path:
    found = importlib.util.find_spec(name)
    return Path(found.origin).parent if found and found.origin else Path("absent")
