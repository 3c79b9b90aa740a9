"""What do the variables in force do to the devices: masks that hide them, overrides that make them lie? All pure.

HIP reads a mask after ROCr has applied its own, so indices count what the first one left. The override is read by the
Linux user-mode driver only (libhsakmt, topology.c); on Windows it does not exist, says AMD (ROCm/TheRock issue 1719).
"""

from __future__ import annotations

import re
from typing import Any

from rocmlab import archs, findings

OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"
# In the order in which they act; torch on ROCm reads CUDA_VISIBLE_DEVICES where HIP_VISIBLE_DEVICES is not set.
MASKS = {
    "rocm": ("ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "cuda": ("CUDA_VISIBLE_DEVICES",),
}
# Each makes every launch wait or writes a line a call: fine for finding an error, ruinous for a time.
SLOWING = {
    "HIP_LAUNCH_BLOCKING": "0",
    "CUDA_LAUNCH_BLOCKING": "0",
    "AMD_SERIALIZE_KERNEL": "0",
    "AMD_SERIALIZE_COPY": "0",
    "AMD_LOG_LEVEL": "0",
    "PYTORCH_NO_HIP_MEMORY_CACHING": "0",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "0",
    "MIOPEN_ENABLE_LOGGING": "0",
    "MIOPEN_ENABLE_LOGGING_CMD": "0",
    "ROCBLAS_LAYER": "0",
    "HIPBLASLT_LOG_LEVEL": "0",
    "PYTORCH_TUNABLEOP_ENABLED": "0",
}
OLD_ALLOCATOR = ("PYTORCH_HIP_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
# Read once, when the runtime starts: set later, they do nothing or only half of it.
AT_START = (*MASKS["rocm"], OVERRIDE)


# ---- masks


def masks(env: dict[str, str], build: str, on_windows: bool = False) -> dict[str, str]:
    """Return the masks that act on this build, in the order in which they act."""
    names = [name for name in MASKS[build] if name in env and not (on_windows and name.startswith("ROCR"))]
    if "HIP_VISIBLE_DEVICES" in names and "CUDA_VISIBLE_DEVICES" in names:
        names.remove("CUDA_VISIBLE_DEVICES")
    return {name: env[name] for name in names}


def by_uuid(value: str) -> bool:
    """Tell whether an entry of a mask names a device by its UUID."""
    return value.strip().upper().startswith(("GPU-", "MIG-"))


def left(count: int, acting: dict[str, str]) -> list[int | None]:
    """Return the physical indices that remain of `count` devices after each mask in turn.

    None stands for a device that a mask names by its UUID: which one it is, and whether it is here, cannot be told from
    here, but it takes one place. A list ends at its first invalid entry, as in the runtimes; an empty value hides all.
    """
    remaining: list[int | None] = list(range(count))
    for value in acting.values():
        chosen: list[int | None] = []
        for part in value.split(","):
            if by_uuid(part):
                chosen.append(None)
                continue
            if not re.fullmatch(r"\s*\d+\s*", part) or int(part) >= len(remaining):
                break
            chosen.append(remaining[int(part)])
        remaining = chosen
    return remaining


def mask_value(index: int, acting: dict[str, str], name: str) -> str:
    """Return the value of a mask that selects device `index` as numbered now: an index list is translated."""
    parts = [part.strip() for part in acting.get(name, "").split(",") if part.strip()]
    return parts[index] if index < len(parts) else str(index)


# ---- overrides


def override_of(env: dict[str, str]) -> str | None:
    """Return the value of the global override, None when it is not set at all ("" is a value)."""
    return env.get(OVERRIDE)


def per_node(env: dict[str, str]) -> dict[str, str]:
    """Return the overrides that name one node: HSA_OVERRIDE_GFX_VERSION_1 and so on."""
    return {name: value for name, value in env.items() if name.startswith(OVERRIDE + "_")}


def overridden(env: dict[str, str], reported: str) -> str | None:
    """Return the name of the variable that makes a device report this target, None when none does."""
    for name, value in {**({OVERRIDE: env[OVERRIDE]} if OVERRIDE in env else {}), **per_node(env)}.items():
        if archs.from_override(value) == reported:
            return name
    return None


def judge_override(
    probe: dict[str, Any], devices: list[dict[str, Any]], on_windows: bool
) -> tuple[list[findings.Finding], set[int]]:
    """Return what is to be said about overrides and the device indices that it explains.

    `devices`: rows {index, card, reported, real, ok, built}; `real` is the card's own target where it is known,
    `ok` what the launch gave (None: not tried), `built`: the build has kernels for the real target.
    """
    if not probe.get("torch_version_hip"):
        return [], set()  # only the runtime of a ROCm build reads it
    env = probe.get("env") or {}
    value, found = override_of(env), []
    if on_windows:
        names = [name for name in env if name.startswith(OVERRIDE)]
        said = [findings.finding("OVERRIDE_NO_EFFECT", variable=name, value=env[name]) for name in names[:1]]
        return said, set()
    if value is not None and not value.strip():
        lost = [one for one in devices if not one["ok"]]
        if lost or not devices:
            reported = lost[0]["reported"] if lost else "gfx000"
            card = lost[0]["card"] if lost else "the card"
            return [findings.finding("OVERRIDE_EMPTY", reported=reported, card=card)], {one["index"] for one in lost}
    elif value is not None and archs.from_override(value) is None:
        bad = not any(one["ok"] for one in devices)
        if bad:
            return [findings.finding("OVERRIDE_INVALID", value=value)], {one["index"] for one in devices}
    wrong = [one for one in devices if not one["ok"] and _wrong_family(env, one)]
    if wrong:
        return [_wrong(env, wrong, devices)], {one["index"] for one in wrong}
    for one in devices:
        found += _harmless(env, one)
    return found, set()


def _wrong_family(env: dict[str, str], one: dict[str, Any]) -> bool:
    acts = overridden(env, one["reported"])
    return bool(acts and one["real"] and archs.kin(one["real"], one["reported"]) is False)


def _wrong(env: dict[str, str], wrong: list[dict[str, Any]], devices: list[dict[str, Any]]) -> findings.Finding:
    first = wrong[0]
    words = {key: first[key] for key in ("card", "reported", "real", "index")}
    name = overridden(env, first["reported"]) or OVERRIDE
    needing = [one for one in devices if one["real"] and one["real"] != one["reported"] and one not in wrong]
    if name == OVERRIDE and needing:
        numbers = {"broken_device": first["index"]}
        other = needing[0]
        return findings.finding(
            "OVERRIDE_BREAKS_OTHER_GPU",
            numbers=numbers,
            other=other["card"],
            other_index=other["index"],
            value=env[OVERRIDE],
            **words,
        )
    built = "" if first["built"] else "not_built"
    return findings.finding("OVERRIDE_WRONG_FAMILY", variant=built or None, variable=name, value=env[name], **words)


def _harmless(env: dict[str, str], one: dict[str, Any]) -> list[findings.Finding]:
    name = overridden(env, one["reported"])
    if not name or not one["ok"]:
        return []
    words = {"variable": name, "value": env[name], "card": one["card"], "reported": one["reported"]}
    if one["real"] and (one["real"] == one["reported"] or one["built"]):
        return [findings.finding("OVERRIDE_UNNEEDED", real=one["real"], **words)]
    return [findings.finding("OVERRIDE_ACTIVE", real=one["real"], **words)]


# ---- the rest


def judge_settings(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return what other variables do: slow every launch, come too late, or are old names."""
    env, found = probe.get("env") or {}, []
    slow = [f"{name}={env[name]}" for name, off in SLOWING.items() if env.get(name, off).strip() not in ("", off)]
    if slow:
        found.append(findings.finding("SLOWING_VARIABLES", variables=", ".join(slow)))
    late = {name: one for name, one in (probe.get("env_changed") or {}).items() if name in AT_START}
    if late:
        found.append(findings.finding("VARIABLES_SET_LATE", variables=", ".join(late)))
    old = [name for name in OLD_ALLOCATOR if name in env]
    if old and "PYTORCH_ALLOC_CONF" in env:
        found.append(findings.finding("ALLOCATOR_NAMES_MIXED", old=", ".join(old)))
    elif "PYTORCH_HIP_ALLOC_CONF" in env:
        found.append(findings.finding("OLD_VARIABLE_NAME", old="PYTORCH_HIP_ALLOC_CONF", new="PYTORCH_ALLOC_CONF"))
    if "PYTORCH_ROCM_ARCH" in env:
        found.append(findings.finding("BUILD_VARIABLE_SET", variable="PYTORCH_ROCM_ARCH"))
    return found
