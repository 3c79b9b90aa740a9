"""Made-up snapshots (rocmlab-probe-1): a machine that works, and changes to it."""

from typing import Any

WINDOWS, LINUX = "Windows-11-10.0.22631", "Linux-6.11.0-x86_64-glibc2.40"
WSL = "Linux-6.6.50-microsoft-standard-WSL2-x86_64-glibc2.35"
RDNA2_BUILD = ["gfx1030", "gfx1031", "gfx1032"]
PROJECT_BUILD = ["gfx900", "gfx906", "gfx90a", "gfx1030", "gfx1100", "gfx1101", "gfx1201"]


def device(index: int = 0, name: str = "AMD Radeon RX 6600", arch: str | None = "gfx1032", **changes: Any):
    facts = {"index": index, "name": name, "gcnArchName": arch, "total_memory": 8 * 2**30, "is_integrated": 0}
    return facts | {"major": 10, "minor": 3, "warp_size": 32, "multi_processor_count": 14} | changes


def launch(*ok: bool | None, error: str = "HIP error: invalid device function"):
    each = [{"index": n, "ok": one, "error": None if one else error, "max_abs_err": 2e-6} for n, one in enumerate(ok)]
    return {"op": "mm 64x64 fp32", "per_device": each}


def rocm(system: str = WINDOWS, *devices: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A machine with a ROCm build; its system lists what torch lists, unless told otherwise."""
    listed = list(devices)
    made = {
        "schema": "rocmlab-probe-1",
        "platform": system,
        "python": "3.12.4",
        "torch_version": "2.10.0+rocm7.13.0",
        "torch_version_hip": "7.13.26176",
        "torch_version_cuda": None,
        "cuda_is_available": bool(listed),
        "device_count": len(listed),
        "arch_list": RDNA2_BUILD,
        "devices": listed,
        "system_gpus": [one["name"] for one in listed],
        "env": {},
        "launch_probe": launch(*[True] * len(listed)) if listed else None,
        "notes": None,
    }
    return made | changes


def absent(system: str = LINUX, gpu: str = "AMD Radeon RX 7800 XT", **changes: Any) -> dict[str, Any]:
    """A machine whose system lists a card that torch does not."""
    return rocm(system) | {"system_gpus": [gpu], "arch_list": PROJECT_BUILD} | changes
