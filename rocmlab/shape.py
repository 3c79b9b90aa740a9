"""What a snapshot looks like (schema rocmlab-probe-1), and how one from another machine or hand is made to fit. Pure.

`tidy(probe)` gives every part the type that the judges expect; what has another type counts as absent.
"""

from __future__ import annotations

from typing import Any

ANY = "*"  # every key of the object
NUMBER = (int, float)
LARGEST = 1e100  # beyond it lies no size, time or error, and arithmetic overflows
LAUNCH = {
    **{"index": int, "ok": bool, "error": str, "op": str},
    **dict.fromkeys(("max_abs_err", "memory_free_bytes", "launch_s"), NUMBER),
}
COMPILED = {"ok": bool, "status": str, "log": str}
LINK = {"current_link_width": (str, int), "max_link_width": (str, int)}

# A type, {key: shape}, {ANY: shape}, or [shape of each item].
SHAPE: dict[str, Any] = {
    **dict.fromkeys(("platform", "python", "torch_version", "torch_version_hip", "torch_version_cuda"), str),
    "query_s": NUMBER,
    **dict.fromkeys(("import_error", "import_status", "query_error", "query_status", "system_gpus_reason"), str),
    "system_gpus": [str],
    "arch_list": [str],
    "devices": [
        {"index": int, "name": str, "gcnArchName": str, "total_memory": NUMBER, "pci_bus_id": int, "is_integrated": int}
    ],
    "launch_probe": {**LAUNCH, "per_device": [LAUNCH]},
    "env": {ANY: str},
    "env_changed": {ANY: dict},
    "gpus": [
        {**dict.fromkeys(("name", "vendor", "pci_id", "bus", "arch", "driver", "state"), str), "link": LINK},
    ],
    "linux": {
        "dev_nodes": {ANY: {"mode": str, "group": str}},
        "user_groups": [str],
        "rocminfo_agents": [str],
        "kfd_nodes": [{"arch": str, "pci_id": str}],
        **dict.fromkeys(("open_kfd", "kernel"), str),
    },
    "windows": {"display_driver": str, "caption": str, "msvc_headers": [str]},
    "driver": {ANY: str},
    "host": {"cpu": str, "cores_logical": int, "memory_bytes": NUMBER},
    "power": {"plugged": bool, "profile": str, "governor": str},
    "capacity": {ANY: NUMBER},
    "versions": {ANY: str},
    "which": {ANY: (str, type(None))},
    "compilers": {ANY: (str, type(None))},
    "tools": {ANY: {"status": str, "parsed": (dict, list)}},
    "compiler": {"arch": str, "version": str, "reason": str, "plain": COMPILED, "type_traits": COMPILED},
    "runtime": {"loaded": [str], "own": [str]},
    "import_errors": {ANY: str},
    "perf_counters": {ANY: [{"bytes": NUMBER}]},
    "sensors": [dict.fromkeys(("temp_c", "sclk_mhz"), NUMBER)],
}


def tidy(probe: Any) -> dict[str, Any]:
    """Return a snapshot in which every part has its type; devices without an index are numbered as they stand."""
    found = fit(probe, SHAPE)
    if found.get("torch_version") is None and isinstance(probe, dict) and probe.get("torch_version") is not None:
        del found["torch_version"]  # not said, which is not the same as absent
    for key in ("system_gpus", "arch_list", "devices", "gpus", "sensors"):
        found.setdefault(key, [])
    for position, device in enumerate(found["devices"]):
        if device.get("index") is None:
            device["index"] = position
    return found | {"device_count": len(found["devices"])}


def fit(value: Any, shape: Any) -> Any:
    """Return a value as a shape wants it: parts of another type are None, items of a list and of {ANY} are dropped."""
    if isinstance(shape, list):
        inner = shape[0]
        whole = dict if isinstance(inner, dict) else inner
        return [fit(one, inner) for one in value if _is(one, whole)] if isinstance(value, list) else []
    if not isinstance(shape, dict):
        return value if _is(value, shape) else None
    if not isinstance(value, dict):
        return {}
    if ANY in shape:
        inner = shape[ANY]
        whole = dict if isinstance(inner, dict) else list if isinstance(inner, list) else inner
        return {str(key): fit(one, inner) for key, one in value.items() if _is(one, whole)}
    return {**value, **{key: fit(value[key], inner) for key, inner in shape.items() if key in value}}


def _is(value: Any, kind: Any) -> bool:
    """Tell whether a value has a type; a number beyond all measures (Infinity, 5,000 digits) has none."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return isinstance(value, kind) and (-LARGEST < value < LARGEST)
    return isinstance(value, kind)
