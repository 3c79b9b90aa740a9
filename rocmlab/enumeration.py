"""Right build, and yet no device: which link of the chain is broken? Pure; one cause, the first that explains it.

Masks, then WSL, then (Linux) kernel module, device nodes and rights, then driver and runtime.
"""

from __future__ import annotations

from typing import Any

from rocmlab import archs, findings, variables
from rocmlab.gpus import AMD, Card, cards, main_card, system

DENIED = ("EACCES", "EPERM")


def judge(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return why a GPU build of torch finds no device; `[NO_GPU]` where the system lists none either."""
    build = "rocm" if probe.get("torch_version_hip") else "cuda"
    mine = [card for card in cards(probe) if card.amd == (build == "rocm")]
    if not mine:
        return _closed_to_all(probe) if build == "rocm" else []
    masked = _masked(probe, build, len(mine))
    if masked:
        return [masked]
    card = main_card(probe) or mine[0]
    card = card if card in mine else mine[0]
    where = system(probe)
    if build == "cuda":
        return [_named_by_uuid(probe, build) or _not_enumerated(probe, card, "nvidia")]
    if where == "WSL":
        return [_wsl(probe, card)]
    if where == "Windows":
        return [_windows(probe, card)]
    rest = _named_by_uuid(probe, build) or _not_enumerated(probe, card, "linux")
    return [_module(probe, card) or _nodes(probe) or _rights(probe) or rest]


def _closed_to_all(probe: dict[str, Any]) -> list[findings.Finding]:
    """No card is listed, yet the driver's node is here and refuses this user, who then cannot know of any card."""
    facts = probe.get("linux") or {}
    here = "/dev/kfd" in (facts.get("dev_nodes") or {}) and facts.get("open_kfd") in DENIED
    rights = _rights(probe) if here and system(probe) == "Linux" else None
    return [rights] if rights else []


def _masked(probe: dict[str, Any], build: str, count: int) -> findings.Finding | None:
    acting = variables.masks(probe.get("env") or {}, build, system(probe) == "Windows")
    if not acting or variables.left(count, acting) != []:
        return None
    said = ", ".join(f"{name}={value}" for name, value in acting.items())
    names, variant = list(acting), "one" if len(acting) == 1 else None
    return findings.finding("NO_DEVICE_LEFT", variant=variant, masks=said, count=count, keep=names[-1], first=names[0])


def _named_by_uuid(probe: dict[str, Any], build: str) -> findings.Finding | None:
    """Where nothing else is wrong, a mask with a UUID is the first suspect: one that is of no card here hides all."""
    acting = variables.masks(probe.get("env") or {}, build, system(probe) == "Windows")
    named = {name: value for name, value in acting.items() if any(map(variables.by_uuid, value.split(",")))}
    if not named:
        return None
    said = ", ".join(f"{name}={value}" for name, value in named.items())
    return findings.finding("NO_DEVICE_LEFT", variant="uuid", masks=said, names=", ".join(named))


# ---- WSL


def _wsl(probe: dict[str, Any], card: Card) -> findings.Finding:
    facts = probe.get("linux") or {}
    seen = [agent for agent in facts.get("rocminfo_agents") or [] if agent.startswith("gfx")]
    dxg = "/dev/dxg" in (facts.get("dev_nodes") or {})
    words: dict[str, Any] = {"card": card.name, "agents": ", ".join(seen)}
    if seen:
        variant = None if facts.get("torch_lib_has_own_hsa_runtime") is not False else "other"
        return findings.finding("WSL_RUNTIME_MISMATCH", variant=variant, **words)
    listed = archs.listed(card.arch, "WSL", card.name)[0] if card.arch else None
    variant = "no_dxg" if facts and not dxg else "not_listed" if listed is False else None
    return findings.finding("WSL_NO_DEVICE", variant=variant, **words)


# ---- Linux


def _module(probe: dict[str, Any], card: Card) -> findings.Finding | None:
    facts = probe.get("linux") or {}
    bound = [gpu for gpu in probe.get("gpus") or [] if gpu.get("vendor") == AMD and gpu.get("driver") == "vfio-pci"]
    if bound:
        return findings.finding("DRIVER_NOT_LOADED", variant="vfio", card=bound[0]["name"])
    if facts.get("amdgpu_module_loaded") is not False or "/dev/kfd" in (facts.get("dev_nodes") or {}):
        return None
    if facts.get("secure_boot"):
        return findings.finding("DRIVER_NOT_LOADED_SECURE_BOOT", variant="likely", card=card.name)
    return findings.finding("DRIVER_NOT_LOADED", card=card.name)


def _nodes(probe: dict[str, Any]) -> findings.Finding | None:
    facts = probe.get("linux") or {}
    if "dev_nodes" not in facts or "/dev/kfd" in facts["dev_nodes"]:
        return None
    return findings.finding("DEVICE_NODE_MISSING", variant="container" if facts.get("container") else None)


def _rights(probe: dict[str, Any]) -> findings.Finding | None:
    facts = probe.get("linux") or {}
    groups, nodes = set(facts.get("user_groups") or []), facts.get("dev_nodes") or {}
    closed = [path for path, node in nodes.items() if "user_groups" in facts and not _may_open(node, groups)]
    if facts.get("open_kfd") in DENIED and "/dev/kfd" not in closed:
        closed = ["/dev/kfd", *closed]
    # A result of "ok" is better than a reading of the mode bits; the other nodes still count.
    if facts.get("open_kfd") == "ok":
        closed = [path for path in closed if path != "/dev/kfd"]
    if not closed:
        return None
    group = (nodes.get(closed[0]) or {}).get("group") or "render"
    inside = facts.get("container") or group.isdigit()
    variant = "container" if inside else "member" if group in groups else None
    return findings.finding("NO_PERMISSION", variant=variant, node=closed[0], group=group)


def _may_open(node: dict[str, str], groups: set[str]) -> bool:
    mode = node.get("mode") or ""
    others, group = mode[7:9] == "rw", mode[4:6] == "rw" and node.get("group") in groups
    return others or group or "root" in groups


# ---- Windows and the rest


def _windows(probe: dict[str, Any], card: Card) -> findings.Finding:
    stopped = [
        gpu for gpu in probe.get("gpus") or [] if gpu.get("vendor") == AMD and str(gpu.get("state")).startswith("code")
    ]
    if stopped:
        return findings.finding("DEVICE_STOPPED", card=stopped[0]["name"], state=stopped[0]["state"])
    return _not_enumerated(probe, card, "windows")


def _not_enumerated(probe: dict[str, Any], card: Card, variant: str) -> findings.Finding:
    facts = probe.get("windows") or {}
    driver = facts.get("display_driver") or _driver(probe, card)
    seen = _other_runtime(facts)
    if variant == "linux" and "dev_nodes" not in (probe.get("linux") or {}):
        variant = "linux_nodes_unknown"
    return findings.finding(
        "DRIVER_DOES_NOT_ENUMERATE",
        variant="older_runtime" if variant == "windows" and seen else variant,
        card=card.name,
        driver=driver,
        seen=seen,
        torch=probe.get("torch_version"),
    )


def _driver(probe: dict[str, Any], card: Card) -> str | None:
    known = probe.get("driver") or {}
    kernel = (probe.get("linux") or {}).get("kernel")
    return known.get("nvidia") if not card.amd else known.get("amdgpu") or (f"kernel {kernel}" if kernel else None)


def _other_runtime(facts: dict[str, Any]) -> str | None:
    """Return the name of a runtime whose hipinfo does see a card (hipinfo_6_4 -> 6.4), None when none is known."""
    for name, said in facts.items():
        if name.startswith("hipinfo_") and isinstance(said, str) and "gfx" in said and "error" not in said.lower():
            return name.removeprefix("hipinfo_").replace("_", ".")
    return None
