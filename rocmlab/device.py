"""What card, build and overrides are these, and does a launch give the right value?

`snapshot()` measures, everything risky in child processes and all of it at once; `judge(probe)` and `subject(probe)`
are pure; `line(probe)` says it in one line; `check()` prints the answer. The launch decides, lists only inform.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rocmlab import compiler_check, isolate, linux, machine, results, tools, torch_probe
from rocmlab.environment import ENOUGH_S, judge
from rocmlab.gpus import arch_of, launches, main_card, real_arch, subject, system

__all__ = ["arch_of", "check", "judge", "launches", "line", "real_arch", "snapshot", "subject", "system"]

SCHEMA = "rocmlab-probe-1"
LIMIT_S = 60  # of torch's import and launches together; a first import on Windows reads gigabytes under a virus scanner
CHECK_LIMIT_S = 9  # the same in `rocmlab check`, which must answer within 15 s whatever hangs
MACHINE_LIMIT_S = 10
LEAST_S = 2  # a further launch with less time than this would only be cut short
RECORDED = re.compile(
    r"^(HIP|HSA|ROCR|ROCM|MIOPEN|ROCBLAS|HIPBLASLT|TENSILE|PYTORCH|TORCH|TRITON|OMP|MKL|CUDA|AMD|GPU)_|"
    r"^(TORCHINDUCTOR_\w+|GPU_DEVICE_ORDINAL|NVIDIA_(VISIBLE_DEVICES|TF32_OVERRIDE)|LD_LIBRARY_PATH|LD_PRELOAD)$"
)
PACKAGES = re.compile(
    r"^(torch|torchvision|torchaudio|triton|pytorch-triton.*|transformers|tokenizers|papermill|nbclient|nbconvert|pandas|"
    r"matplotlib|numpy|gguf|safetensors|rocm|rocm-sdk-.*|amd-torch-.*|rocm-bootstrap|amdsmi)$"
)


# ---- measure


def snapshot(limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Return what torch and the machine answered (schema rocmlab-probe-1); never raises, never outlasts its limits.

    torch, the operating system, every tool and the runtime compiler are asked at the same time, each in a child
    process: a crash or a hang costs one answer. `limit_s` bounds torch's import and all launches together.
    """
    deadline = time.monotonic() + limit_s
    with ThreadPoolExecutor(3) as pool:
        torch_asked = pool.submit(ask_devices, limit_s)
        machine_asked = pool.submit(isolate.call, "rocmlab.machine:describe", limit_s=min(MACHINE_LIMIT_S, limit_s))
        tools_asked = pool.submit(tools.ask, min(tools.LIMIT_S, limit_s))
        described = machine_asked.result()
        unknown = {"system_gpus": [], "system_gpus_reason": described.words, "host": machine.host()}
        facts = described.result or unknown
        compiled = pool.submit(_compiler, facts, deadline - time.monotonic())
        probe = {**facts, **torch_asked.result(), "tools": tools_asked.result(), "compiler": compiled.result()}
    probe = {
        "schema": SCHEMA,
        "platform": platform.platform(),
        "python": platform.python_version(),
        **probe,
        "env": recorded(dict(os.environ)),
        "env_changed": changed(),
        "which": tools.which(),
        "sensors": tools.sensors(probe["tools"]),
        "versions": versions(),
        "notes": None,
    }
    return _joined(probe)


def ask_devices(limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Ask torch for build, devices and a launch on each, in child processes; what it said before it died is kept."""
    deadline = time.monotonic() + limit_s
    with tempfile.TemporaryDirectory(prefix="rocmlab-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "said.jsonl")
        asked = isolate.call("rocmlab.torch_probe:probe", {"path": str(path)}, limit_s=limit_s)
        said = handed_over(path)
    ended = time.time()
    if "build" not in said:
        return {**NO_TORCH, "import_status": asked.status, "import_error": _why(asked)}
    if "devices" not in said:
        why = {"query_status": asked.status, "query_error": _why(asked), "query_s": _since(said, "imported_at", ended)}
        return {**NO_TORCH, **said["build"], **why}
    rows = {one["index"]: one for one in said.get("launches", [])}
    for device in said["devices"]["devices"]:
        index = device["index"]
        if index not in rows:
            here, left = index == said.get("launching"), deadline - time.monotonic()
            rows[index] = _lost(index, asked, _since(said, "launching_at", ended)) if here else _again(index, left)
    launched = _together([rows[index] for index in sorted(rows)])
    return {**said["build"], **said["devices"], **said.get("extra", {}), "launch_probe": launched}


NO_TORCH: dict[str, Any] = {
    **dict.fromkeys(("torch_version", "torch_version_hip", "torch_version_cuda", "launch_probe")),
    **{"cuda_is_available": False, "device_count": 0, "arch_list": [], "devices": []},
}


def handed_over(path: Path) -> dict[str, Any]:
    """Return what the child wrote line by line, launches as a list; a line cut by a crash is left out."""
    found: dict[str, Any] = {}
    for one in results.parse_lines(linux.read(path))[0]:
        if "launch" in one:
            found.setdefault("launches", []).append(one["launch"])
        else:
            found |= one
    return found


def _again(index: int, left_s: float) -> dict[str, Any]:
    """Launch on a device that was not reached, since the child ended at one before it."""
    if left_s < LEAST_S:
        return {"index": index, "ok": None, "error": "no time was left to try it", "max_abs_err": None}
    with tempfile.TemporaryDirectory(prefix="rocmlab-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "said.jsonl")
        outcome = isolate.call("rocmlab.torch_probe:launch", {"index": index, "path": str(path)}, limit_s=left_s)
        had_s = _since(handed_over(path), "launching_at", time.time())
    return outcome.result or _lost(index, outcome, had_s)


def _since(said: dict[str, Any], stamp: str, ended: float) -> float:
    """Return how long a step ran that began at a stamp of the child; 0 where it did not begin."""
    return round(max(0.0, ended - said.get(stamp, ended)), 2)


def _lost(index: int, outcome: isolate.Outcome, had_s: float) -> dict[str, Any]:
    """Return the row of a launch that gave no answer; one that was cut short by our own limit says nothing yet."""
    row = {"index": index, "ok": False, "error": outcome.words, "max_abs_err": None}
    if outcome.status == "TIMEOUT" and had_s < ENOUGH_S:
        return row | {"ok": None, "error": f"not finished after {had_s:g} s of its own", "launch_s": had_s}
    return row


def _why(asked: isolate.Outcome) -> str:
    """Return why torch said nothing: its exception, or how the child ended with the last it wrote."""
    if asked.status == "ERROR" and asked.error:
        return asked.error
    return f"{asked.words}\n{asked.stderr[-2000:]}".strip()


def _together(each: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Device 0 speaks for the probe; every device has its own row."""
    if not each:
        return None
    return {
        "op": torch_probe.LAUNCH_OP,
        **{key: each[0].get(key) for key in ("ok", "error", "max_abs_err")},
        "per_device": each,
    }


def _compiler(facts: dict[str, Any], left_s: float) -> dict[str, Any] | None:
    """Try the runtime compiler for the AMD card that a person means, where its target is known and time is left."""
    card = main_card(facts)
    if not card or not card.amd or not card.arch or left_s < LEAST_S:
        return None
    return compiler_check.run(card.arch, limit_s=min(compiler_check.LIMIT_S, left_s))


def _joined(probe: dict[str, Any]) -> dict[str, Any]:
    """Fill what one source lacks from another: NVIDIA's own list, agents of rocminfo, torch's own HSA runtime."""
    said = (probe["tools"].get("nvidia-smi") or {}).get("parsed") or []
    if said:  # the driver's list: in a container the PCI bus may show more, or nothing
        others = [gpu for gpu in probe.get("gpus") or [] if gpu.get("vendor") != "NVIDIA"]
        probe["gpus"] = [*others, *(_nvidia(one) for one in said)]
        probe["system_gpus"] = [gpu["name"] for gpu in probe["gpus"]]
    if isinstance(probe.get("linux"), dict):
        agents = ((probe["tools"].get("rocminfo") or {}).get("parsed") or {}).get("agents") or []
        named = [one["name"] if one["type"] == "GPU" else one["type"] for one in agents]
        probe["linux"]["rocminfo_agents"] = [name for name in named if name]
        own = torch_probe.package_folder("torch") / "lib"
        probe["linux"]["torch_lib_has_own_hsa_runtime"] = any(own.glob("libhsa-runtime64.so*"))
    return probe


def _nvidia(row: dict[str, Any]) -> dict[str, Any]:
    width, full = ((row["link"][key] or None) for key in ("width", "max_width"))
    link = {"current_link_width": width and f"{width:g}", "max_link_width": full and f"{full:g}"}
    return {"name": row["name"], "vendor": "NVIDIA", "pci_id": None, "driver": row["driver"], "link": link}


def recorded(env: dict[str, str]) -> dict[str, str]:
    """Return the variables that can change what a GPU does or how fast it is."""
    return {key: value for key, value in sorted(env.items()) if RECORDED.match(key)}


def changed() -> dict[str, dict[str, str | None]]:
    """Return recorded variables whose value differs from that at the start of this process: `{name: {start, now}}`."""
    start = machine.environment_at_start()
    if start is None:
        return {}
    before, now = recorded(start), recorded(dict(os.environ))
    names = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
    return {name: {"start": before.get(name), "now": now.get(name)} for name in names}


def versions() -> dict[str, str]:
    """Return the installed version of each package that can change a number."""
    found: dict[str, str] = {}
    for one in importlib.metadata.distributions():
        name = (one.metadata["Name"] or "").lower().replace("_", "-")
        if PACKAGES.match(name):
            found.setdefault(name, one.version)
    return dict(sorted(found.items()))


# ---- say


def line(probe: dict[str, Any]) -> str:
    """Return one ASCII line: device, arch, memory, build, system."""
    chosen = subject(probe)
    memory = f"{chosen['memory_bytes'] / 2**30:.1f} GiB" if chosen["memory_bytes"] else "memory unknown"
    parts = [f"{chosen['name']} ({chosen['arch']})", memory, f"torch {probe.get('torch_version') or 'absent'}"]
    return ", ".join([*parts, probe.get("platform") or "system unknown"]).encode("ascii", "replace").decode()


def check(lang: str = "en", as_json: bool = False) -> int:
    """Take a snapshot within 15 s, print what it means, return 0: a broken GPU is a finding, not a failure."""
    from rocmlab import checklist

    probe = snapshot(CHECK_LIMIT_S)
    probe = results.redact(results.clean(probe))
    print(checklist.as_json(probe, lang) if as_json else checklist.console(probe, lang))
    return 0
