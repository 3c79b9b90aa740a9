"""The facts of one snapshot, as rows that a page, a notebook and a console show alike. Pure; only what is known.

`rows(probe)` gives `[{fact: {en, zh}, value: text or {en, zh}}]`.
"""

from __future__ import annotations

import re
from typing import Any

from rocmlab import archs, endings, gpus, words

Row = dict[str, Any]
SWITCHES = ("gpu_scheduling", "developer_mode", "secure_boot", "smart_app_control", "vc_runtime")


def rows(probe: dict[str, Any]) -> list[Row]:
    """Return everything that is known of this machine, the devices first."""
    found = [*_devices(probe), *_torch(probe), *_system(probe), *_host(probe), *_around(probe)]
    env = probe.get("env") or {}
    said = "; ".join(f"{name}={value}" for name, value in env.items())
    return [*found, _row("variables", said or words.both("no_variables"))]


def _row(key: str, value: Any, **placeholders: Any) -> Row:
    return {"fact": words.both(f"fact_{key}", **placeholders), "value": value}


def _known(*pairs: tuple[str, Any]) -> list[Row]:
    """Return rows for the values that are there."""
    return [_row(key, value) for key, value in pairs if value not in (None, "", [], {})]


def _devices(probe: dict[str, Any]) -> list[Row]:
    launched, found = gpus.launches(probe), []
    op = (probe.get("launch_probe") or {}).get("op") or "mm"
    for device in probe.get("devices") or []:
        index, arch, real = device["index"], gpus.arch_of(device), gpus.real_arch(probe, device)
        memory = words.number(device.get("total_memory"), "B")
        found.append(_row("device", f"{device.get('name') or '?'} ({arch}), {memory}", index=index))
        if real and real != arch:
            found.append(_row("real_arch", real, index=index))
        peak = archs.product(real or arch, device.get("name"), device.get("total_memory"))
        if peak:
            found.append(_row("peaks", _peaks(peak), index=index))
        found.append(_row("launch", _launch(launched.get(index), op), index=index))
    return found or [_row("launch_of_none", words.both("launch_none"))]


def _peaks(peak: dict[str, Any]) -> str:
    parts = [
        f"{peak['cu']} CU" if peak["cu"] else "",
        f"{peak['bandwidth_gbs']:g} GB/s" if peak["bandwidth_gbs"] else "",
        f"{peak['fp32_tflops']:g} TFLOP/s float32" if peak["fp32_tflops"] else "",
        f"{peak['fp16_tflops']:g} TFLOP/s float16" if peak["fp16_tflops"] else "",
        f"{peak['cache_mb']} MB cache" if peak["cache_mb"] else "",
    ]
    return ", ".join(part for part in parts if part)


def _launch(launch: dict[str, Any] | None, op: str) -> Any:
    if launch and launch.get("ok") is None and launch.get("launch_s") is not None:
        return words.both("launch_cut", seconds=words.number(launch["launch_s"]))
    if not launch or launch.get("ok") is None:
        return words.both("launch_not_tried")
    if launch["ok"]:
        return words.both("launch_right", op=op, error=words.number(launch.get("max_abs_err")))
    error = endings.both((str(launch.get("error") or "").splitlines() or [words.NONE])[0])
    return {lang: words.word("launch_wrong", lang, op=op, error=error[lang]) for lang in words.LANGUAGES}


def _torch(probe: dict[str, Any]) -> list[Row]:
    installed = probe.get("versions") or {}
    parts = [f"{name} {one}" for name, one in installed.items() if re.match(r"rocm|amd-torch", name)]
    return _known(
        ("torch", probe.get("torch_version")),
        ("hip", probe.get("torch_version_hip")),
        ("cuda", probe.get("torch_version_cuda")),
        ("built_for", ", ".join(map(str, probe.get("arch_list") or []))),
        ("rocm_packages", ", ".join(parts)),
        ("python", probe.get("python")),
        ("runtime_compiler", _compiler(probe.get("compiler") or {})),
    )


def _compiler(checked: dict[str, Any]) -> Any:
    if not checked or checked.get("reason"):
        return None
    said = {}
    for lang in words.LANGUAGES:
        kinds = [
            words.word("compiles" if (checked.get(kind) or {}).get("ok") else "compiles_not", lang, kind=shown)
            for kind, shown in (("plain", words.word("plain_kernel", lang)), ("type_traits", "<type_traits>"))
        ]
        said[lang] = f"HIPRTC {checked.get('version') or '?'}, {checked.get('arch')}: {', '.join(kinds)}"
    return said


def _system(probe: dict[str, Any]) -> list[Row]:
    windows, driver = probe.get("windows") or {}, probe.get("driver") or {}
    listed = ", ".join(map(str, probe.get("system_gpus") or []))
    shown = windows.get("display_driver") or ", ".join(f"{name} {one}" for name, one in driver.items() if one)
    return [
        *_known(("system_gpus", listed or words.both("env_none"))),
        *_known(("driver", shown), ("links", ", ".join(_links(probe)))),
        *_known(("system", " ".join(filter(None, (probe.get("platform"), windows.get("caption")))))),
    ]


def _links(probe: dict[str, Any]) -> list[str]:
    found = []
    for gpu in probe.get("gpus") or []:
        link = gpu.get("link") or {}
        width, full = link.get("current_link_width"), link.get("max_link_width")
        if width and full:
            found.append(f"x{width}/x{full}")
    return found


def _host(probe: dict[str, Any]) -> list[Row]:
    host, room, power = (probe.get(key) or {} for key in ("host", "capacity", "power"))
    cpu = host.get("cpu") or None
    if cpu and host.get("cores_logical"):
        cpu = words.both("cpu_threads", cpu=cpu, count=host["cores_logical"])
    free, total, disk = (
        words.number(value, "B") if value else None
        for value in (room.get("memory_available_bytes"), host.get("memory_bytes"), room.get("disk_free_bytes"))
    )
    plugged = None if power.get("plugged") is None else words.both("mains" if power["plugged"] else "battery")
    return _known(
        ("cpu", cpu),
        ("host_memory", words.both("memory_free", total=total, free=free) if free and total else total),
        ("disk_free", disk),
        ("power", plugged),
        ("power_plan", power.get("profile") or power.get("governor")),
    )


def _around(probe: dict[str, Any]) -> list[Row]:
    """Return tools that are here, compilers, switches of Windows, and the GPU runtime that was loaded."""
    windows, runtime = probe.get("windows") or {}, probe.get("runtime") or {}
    here = [name for name, one in (probe.get("which") or {}).items() if one]
    compilers = [name for name, one in (probe.get("compilers") or {}).items() if one]
    switches = [f"{name.replace('_', ' ')}: {_on_off(windows[name])}" for name in SWITCHES if _is(windows.get(name))]
    return _known(
        ("tools", ", ".join(here)),
        ("compilers", ", ".join([*compilers, *(f"MSVC {one}" for one in windows.get("msvc_headers") or [])])),
        ("switches", ", ".join(switches)),
        ("runtime", ", ".join(re.split(r"[\\/]", path)[-1] for path in runtime.get("loaded") or [])),
    )


def _is(value: Any) -> bool:
    return value is not None and value != ""


def _on_off(value: Any) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)
