"""What does a snapshot mean? Pure functions from one probe (schema rocmlab-probe-1) to findings; no GPU is touched.

`judge(probe)` gives the findings, worst first, the cause before what follows from it. The launch decides whether a
device works; lists of names only inform. Each fault ends with the one next step.
"""

from __future__ import annotations

import re
from typing import Any

from rocmlab import archs, conditions, endings, enumeration, findings, variables
from rocmlab.gpus import AMD_NAME, Card, arch_of, cards, integrated, launches, main_card, real_arch, system, tidy

NO_KERNEL = re.compile(
    r"invalid device function|kernel image is invalid|InvalidImage|no kernel image|no binary for gpu|NoBinaryForGpu|"
    r"InvalidDeviceFunction|InvalidKernelFile|SharedObjectInitFailed|no code object|Cannot find CO",
    re.IGNORECASE,
)
NO_MEMORY = re.compile(r"out of memory|OutOfMemory", re.IGNORECASE)
ENDED = re.compile(r"^(ended by|access violation|a DLL|illegal instruction|stack|heap|exit code)")
ENOUGH_S = 4  # that a launch or a list of devices had for itself before silence means a hang and not a slow start
STILL_RUNNING = re.compile(r"^still running|timed out", re.IGNORECASE)


def judge(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return the findings about build, devices and machine of one snapshot, worst first; [] when all is well."""
    probe = tidy(probe)
    cause = judge_build(probe)
    if not cause:
        cause = judge_devices(probe) if probe.get("devices") else judge_absence(probe)
    return findings.worst_first([*cause, *variables.judge_settings(probe), *conditions.judge(probe)])


# ---- the build


def judge_build(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return what is wrong with torch itself: absent, does not import, crashes, or built for another maker's cards."""
    version, hip, cuda = (probe.get(key) for key in ("torch_version", "torch_version_hip", "torch_version_cuda"))
    card, where = main_card(probe), system(probe)
    command = archs.install(card.arch, where) if card and card.amd else None
    if "torch_version" not in probe:
        return [findings.finding("SNAPSHOT_INCOMPLETE")]
    if not version:
        return [_not_imported(probe, card, command)]
    if probe.get("query_error"):
        return [_not_answered(probe)]
    if probe.get("device_count") or not card:
        return []
    words = {"card": card.name, "torch": version, "cuda": cuda, "hip": hip, "command": command}
    if not hip and card.amd:
        code = "WRONG_BUILD_CUDA" if cuda else "WRONG_BUILD_CPU"
        variant = "no_command" if not command else None if card.arch else "look_up"
        return [findings.finding(code, variant=variant, **words)]
    if not hip and not cuda:
        return [findings.finding("WRONG_BUILD_CPU", variant="nvidia", **words)]
    if hip and not any(one.amd for one in cards(probe)):
        return [findings.finding("WRONG_BUILD_ROCM", **words)]
    return []


def _not_answered(probe: dict[str, Any]) -> findings.Finding:
    """Return what it means that torch imports, but dies, hangs or raises when asked for its devices."""
    status, said = probe.get("query_status"), probe["query_error"].strip().splitlines()[0]
    if status == "TIMEOUT":
        had = probe.get("query_s")
        if had is not None and had < ENOUGH_S:
            return findings.finding("IMPORT_SLOW", variant="devices", said=endings.both(said))
        return findings.finding("DEVICES_TIMED_OUT", said=endings.both(said))
    variant = "windows" if system(probe) == "Windows" else None
    return findings.finding("TORCH_CRASHED", variant=variant, said=endings.both(said))


def _not_imported(probe: dict[str, Any], card: Card | None, command: str | None) -> findings.Finding:
    error, status = (probe.get("import_error") or "").strip(), probe.get("import_status")
    if status == "TIMEOUT":
        return findings.finding("IMPORT_SLOW", said=endings.both((error or "no answer").splitlines()[0]))
    if status in ("CRASH", "KILLED"):
        variant = "windows" if system(probe) == "Windows" else None
        said = endings.both((error or "no answer").splitlines()[0])
        return findings.finding("TORCH_CRASHED", variant=variant, said=said)
    if not error or re.search(r"No module named '?torch'?\b", error):
        variant = None if not command else "amd" if card and card.arch else "amd_look_up"
        return findings.finding("TORCH_ABSENT", variant=variant, card=card and card.name, command=command)
    return import_failure(error)


def import_failure(error: str) -> findings.Finding:
    """Return what a failed `import torch` means: a missing library, one that policy blocks, or something else."""
    last = error.strip().splitlines()[-1].strip()
    windows_error = re.search(r"\[WinError (\d+)\]", error)
    number = int(windows_error.group(1)) if windows_error else None
    named = re.search(r'Error loading "([^"]+)"|[\'"]([^\'"]+\.dll)[\'"]|\b(lib[\w.+-]+\.so[\w.]*)', error)
    library = re.split(r"[\\/]", next(filter(None, named.groups())))[-1] if named else None
    numbers = {"winerror": number} if number is not None else {}
    if number in (4551, 1260, 225):
        variant = "blocked"
    elif number is not None or "DLL load failed" in error:
        variant = "dll"
    elif library and re.search(r"cannot open shared object file|not found|undefined symbol|wrong ELF", error):
        variant = "so"
    else:
        variant = None
    return findings.finding("IMPORT_FAILED", variant=variant, numbers=numbers, error=last, library=library or "torch")


# ---- no device


def judge_absence(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return why there is no device: the CPU alone, nothing that can be told, or a broken link of the chain."""
    env = probe.get("env") or {}
    value = variables.override_of(env)
    lied = variables.judge_override(probe, [], system(probe) == "Windows")[0]
    on_gpu_build = probe.get("torch_version_hip") or probe.get("torch_version_cuda")
    broken = [*(one for one in lied if value is not None), *(enumeration.judge(probe) if on_gpu_build else [])]
    if broken:
        return broken
    listed = probe.get("system_gpus") or []
    if listed:
        old = [name for name in listed if AMD_NAME.search(name) and archs.before_rocm(name)]
        return [findings.finding("NO_GPU", variant="old" if old else "other", cards=", ".join(old or listed))]
    if probe.get("system_gpus_reason"):
        return [findings.finding("GPU_LIST_UNKNOWN", reason=probe["system_gpus_reason"])]
    return [findings.finding("NO_GPU")]


# ---- devices


def judge_devices(probe: dict[str, Any]) -> list[findings.Finding]:
    """Return what is to be said about the devices that torch lists; what an override explains is said once."""
    passed, built = launches(probe), probe.get("arch_list") or []
    rows = [_row(probe, device, passed.get(device["index"], {}), built) for device in probe["devices"]]
    found, explained = variables.judge_override(probe, rows, system(probe) == "Windows")
    working = [row for row in rows if row["ok"]]
    broken = [row for row in rows if row["ok"] is False and row["index"] not in explained]
    unsure = [row for row in rows if row["ok"] is None and row["index"] not in explained]
    if broken and not working:
        found = [*_once([judge_launch(probe, row) for row in broken]), *found]
    elif broken and broken[0]["index"] == rows[0]["index"]:
        found = [_other_first(probe, broken[0], working), *found]
    else:
        said = ((endings.both(row["error"]), row) for row in broken)
        found += [findings.finding("OTHER_DEVICE_UNUSABLE", error=error, **_words(row)) for error, row in said]
    found += [_not_launched(row) for row in unsure]
    return [*found, *_working(probe, working), *_unseen(probe, rows)]


def _not_launched(row: dict[str, Any]) -> findings.Finding:
    cut = row["launch_s"] is not None
    return findings.finding("NOT_LAUNCHED", variant="cut" if cut else None, seconds=row["launch_s"], **_words(row))


def _row(probe: dict[str, Any], device: dict[str, Any], launched: dict[str, Any], built: list[str]) -> dict[str, Any]:
    reported, real = arch_of(device), real_arch(probe, device)
    return {
        "index": device["index"],
        "card": device.get("name") or reported,
        "reported": reported,
        "real": real,
        "ok": launched.get("ok"),
        "error": launched.get("error") or "no reason given",
        "launch_s": launched.get("launch_s"),
        "built": bool(real and archs.covers(built, real)),
        "integrated": integrated(device),
        "memory": device.get("total_memory") or 0,
    }


def _words(row: dict[str, Any]) -> dict[str, Any]:
    return {"card": row["card"], "arch": row["reported"], "index": row["index"]}


def _once(found: list[findings.Finding]) -> list[findings.Finding]:
    """Keep one of the findings that say the same of cards of the same target."""
    seen: dict[Any, findings.Finding] = {}
    for one in found:
        seen.setdefault((one["code"], one["words"].get("arch")), one)
    return list(seen.values())


def judge_launch(probe: dict[str, Any], row: dict[str, Any]) -> findings.Finding:
    """Return what a failed launch means: no kernels, a wrong value, a crash, a hang, no memory, or another error."""
    error, words = row["error"], {**_words(row), "error": endings.both(row["error"])}
    if row["reported"].startswith("gfx") and not archs.parse(row["reported"]).base:
        return findings.finding("UNKNOWN_ARCH_NAME", variant="device", **words)
    if NO_KERNEL.search(error):
        return _no_kernels(probe, row, words)
    if NO_MEMORY.search(error):
        return findings.finding("LAUNCH_NO_MEMORY", **words)
    if STILL_RUNNING.search(error):
        return findings.finding("LAUNCH_TIMED_OUT", **words)
    if ENDED.search(error):
        return findings.finding("LAUNCH_CRASHED", **words)
    return findings.finding("LAUNCH_WRONG_VALUE" if "wrong value" in error else "LAUNCH_FAILED", **words)


def _no_kernels(probe: dict[str, Any], row: dict[str, Any], words: dict[str, Any]) -> findings.Finding:
    built, where, env = probe.get("arch_list") or [], system(probe), probe.get("env") or {}
    arch = row["reported"]
    words = {**words, "built": ", ".join(built) or "targets that it does not name"}
    if not arch.startswith("gfx"):
        return findings.finding("KERNELS_MISSING", variant="cuda", **words)
    command = archs.install(row["real"] or arch, where) or ""
    lied = variables.overridden(env, arch) if where != "Windows" else None
    words |= {"command": command, "real": row["real"], "variable": lied}
    if lied and row["real"] != arch:
        return findings.finding("KERNELS_MISSING", variant="override", **words)
    if archs.covers(built, arch):
        return findings.finding("KERNELS_LISTED_BUT_FAIL", variant=None if command else "no_command", **words)
    near, usual = archs.nearest(built, arch), (archs.target(arch) or {}).get("override") or {}
    helps = archs.from_override(usual.get("suggested")) in [archs.parse(one).base for one in built]
    words |= {"near": near or "none", "override": usual.get("suggested")}
    plain = "no_command" if not command else "windows" if where == "Windows" else None
    variant = "linux_override" if where == "Linux" and command and helps and not lied else plain
    return findings.finding("KERNELS_MISSING", variant=variant, **words)


def _other_first(probe: dict[str, Any], first: dict[str, Any], working: list[dict[str, Any]]) -> findings.Finding:
    """Say that device 0 cannot be used but another can, and how to put that one first."""
    best = max(working, key=lambda row: (not row["integrated"], row["memory"]))
    name = "CUDA_VISIBLE_DEVICES" if not first["reported"].startswith("gfx") else "HIP_VISIBLE_DEVICES"
    value = variables.mask_value(best["index"], probe.get("env") or {}, name)
    words = {"other": best["card"], "other_arch": best["reported"], "other_index": best["index"]}
    return findings.finding(
        "INTEGRATED_GPU_FIRST" if first["integrated"] else "FIRST_DEVICE_UNUSABLE",
        numbers={"use_device": best["index"]},
        mask=f"{name}={value}",
        error=endings.both(first["error"]),
        **_words(first),
        **words,
    )


def _working(probe: dict[str, Any], working: list[dict[str, Any]]) -> list[findings.Finding]:
    """Return notes on devices that work: not on the maker's list, the integrated one first, several of them."""
    found, where = [], system(probe)
    for row in working:
        arch = row["real"] or row["reported"]
        listed, list_name = archs.listed(arch, where, row["card"]) if arch.startswith("gfx") else (True, "")
        if listed is not True:
            words = {**_words(row), "arch": arch, "system": where, "list": list_name}
            found.append(findings.finding("NOT_ON_MAKERS_LIST", **words))
    if len(working) > 1:
        best = max(working, key=lambda row: (not row["integrated"], row["memory"]))
        if working[0]["integrated"] and not best["integrated"]:
            found.append(findings.finding("INTEGRATED_GPU_IS_DEVICE_0", card=best["card"], index=best["index"]))
        found.append(findings.finding("SEVERAL_GPUS", count=len(working), card=best["card"], index=best["index"]))
    return found


def _unseen(probe: dict[str, Any], rows: list[dict[str, Any]]) -> list[findings.Finding]:
    """Say it when the system lists a discrete card of this maker that torch does not show."""
    amd = rows[0]["reported"].startswith("gfx")
    listed = [card for card in cards(probe) if card.amd == amd and not card.integrated]
    shown = [row for row in rows if not row["integrated"]]
    inside = (probe.get("linux") or {}).get("container")  # where some cards may be left outside on purpose
    if len(listed) <= len(shown) or inside:
        return []
    env, where = probe.get("env") or {}, system(probe)
    acting = variables.masks(env, "rocm" if amd else "cuda", where == "Windows")
    names = [card.name for card in listed if card.name not in {row["card"] for row in rows}] or [listed[-1].name]
    said = ", ".join(f"{name}={value}" for name, value in acting.items())
    code = "CARD_HIDDEN" if acting and not shown else "CARD_MASKED" if acting else "CARD_NOT_SEEN"
    return [findings.finding(code, card=names[0], masks=said, shown=rows[0]["card"])]
