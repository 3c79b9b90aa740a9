"""Which paths of attention can exist at all on a device, and who says so? Pure: archs.yaml and torch's own rules."""

from __future__ import annotations

from typing import Any

from rocmlab import archs, words

# NVIDIA: the compute capabilities that torch checks for before it takes a path (sdp_utils.cpp, 2026-09).
NVIDIA_FROM = {"math": 0, "flash": 80, "efficient": 50, "cudnn": 80}
# Composable kernel as the library behind flash: torch's own list (Context.cpp, as quoted in pytorch issue 188113,
# 2026-06-24), and only in a build that contains it.
CK_TARGETS = {"gfx942", "gfx950"}
Answer = tuple[bool | None, dict[str, str]]


def possible(device: str, arch: str | None) -> dict[str, Answer]:
    """Return {path: (can it exist here; None where nobody says, why)} for a device (cpu, cuda:0) and its target."""
    if device == "cpu":
        why = words.both("attention_why_cpu")
        return {name: (name in ("math", "flash"), why) for name in ("math", "flash", "efficient", "cudnn")}
    if (arch or "").startswith("sm_"):
        return _nvidia(int("0" + "".join(one for one in (arch or "")[3:] if one.isdigit())))
    return _amd(arch)


def _nvidia(capability: int) -> dict[str, Answer]:
    return {
        name: (capability >= least, words.both("attention_why_nvidia", least=least, mine=capability))
        for name, least in NVIDIA_FROM.items()
    }


def _amd(arch: str | None) -> dict[str, Answer]:
    known: dict[str, Any] = (archs.target(arch) or {}).get("libraries") or {}
    date = archs.facts()["lists"]["attention"]["date"]
    found: dict[str, Answer] = {"math": (True, words.both("attention_why_math"))}
    for name, key in (("flash", "flash_attention"), ("efficient", "mem_efficient_attention")):
        can = known.get(key)
        which = (
            "unknown" if can is None else "no_code" if not can else "flag" if known.get("experimental_flag") else "code"
        )
        found[name] = (can, words.both(f"attention_why_{which}", arch=arch or "?", date=date))
    found["flash, composable kernel"] = (arch in CK_TARGETS if arch else None, words.both("attention_why_ck"))
    return found | {"cudnn": (False, words.both("attention_why_cudnn"))}
