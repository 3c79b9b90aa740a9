"""Snapshots of a machine (rocmlab-probe-1), lists of target names, and what a failed `import torch` printed.

A snapshot is judged as if it were taken here; `rocmlab check --json` wraps one in `{"snapshot": ...}`.
"""

from __future__ import annotations

import re
from typing import Any

from rocmlab import archs, environment, findings, gpus
from rocmlab.readers import Evidence, Reading, decode, logs

SCHEMA = "rocmlab-probe-1"
NAMES_SCHEMA = "rocmlab-arch-names-1"
# An import of torch that fails on a library. Errors of a torch that does import are told by other readers.
IMPORT_ERROR = re.compile(
    r"WinError \d+\][^\n]*(?:Error loading|DLL|dll)|DLL load failed while importing|"
    r"(?:ImportError|OSError): [^\n]*\.so[^\n]*(?:cannot open shared object|not found|undefined symbol)|"
    r"No module named '?torch'?\s*$",
    re.MULTILINE,
)
IMPORT_LINE = re.compile(r"^(?:import|from) .*$", re.MULTILINE)
# What monitoring tools would say; never 0 where they do not exist.
SENSORS = ("temp_c", "sclk_mhz")


def recognise(evidence: Evidence) -> bool:
    if evidence.schema in (SCHEMA, NAMES_SCHEMA) or _wrapped(evidence):
        return True
    return evidence.json is None and _import_text(decode(evidence.head))


def _wrapped(evidence: Evidence) -> bool:
    inner = evidence.json.get("snapshot") if isinstance(evidence.json, dict) else None
    return isinstance(inner, dict) and inner.get("schema") == SCHEMA and not evidence.schema


def _import_text(text: str) -> bool:
    # A line "import torch" on top of what it printed is no program; a definition or a heading is none of a message.
    if logs.PROSE.search(IMPORT_LINE.sub("", text)):
        return False
    return bool(re.search(r"\bimport torch|[\\/]torch[\\/]", text) and IMPORT_ERROR.search(text))


def read(evidence: Evidence) -> Reading:
    """Return what the snapshot, the list of names or the message says."""
    if evidence.schema == NAMES_SCHEMA:
        return _names(evidence.json)
    if evidence.schema != SCHEMA and not _wrapped(evidence):
        return _message(evidence.text)
    probe = gpus.tidy(evidence.json["snapshot"] if _wrapped(evidence) else evidence.json)
    found = environment.judge(probe)
    return Reading("probe", SCHEMA, numbers(probe, found), found, headline(probe))


def numbers(probe: dict[str, Any], found: list[findings.Finding]) -> dict[str, Any]:
    """Return the counts and sizes of one snapshot, flat; what no tool could say is null with the reason."""
    devices = probe.get("devices") or []
    said: dict[str, Any] = {"device_count": len(devices), "system_gpus": len(probe.get("system_gpus") or [])}
    if devices:
        chosen = gpus.subject(probe)
        memory = chosen["memory_bytes"] if chosen["device"] != "cpu" else devices[0].get("total_memory")
        said |= {"memory_gib": memory / 2**30} if memory else _unknown("memory_gib", "not in the snapshot")
    error = (probe.get("launch_probe") or {}).get("max_abs_err")
    if error is not None:
        said["max_abs_err"] = error
    said |= sensors(probe)
    for one in found:
        said |= {key: value for key, value in one["numbers"].items() if key not in said}
    return said


def _unknown(key: str, reason: str) -> dict[str, Any]:
    return {key: None, f"{key}_reason": reason}


def sensors(probe: dict[str, Any]) -> dict[str, Any]:
    """Return temperature, clock and dedicated memory in use, as far as a tool or the system says so."""
    said: dict[str, Any] = {}
    if "which" in probe:
        rows = probe.get("sensors") or [{}]
        for key in SENSORS:
            value = rows[0].get(key)
            said |= {key: value} if value is not None else _unknown(key, "no tool here can read it")
    used = [one.get("bytes") or 0 for values in (probe.get("perf_counters") or {}).values() for one in values]
    return {**said, "dedicated_used_gib": sum(used) / 2**30} if used else said


def headline(probe: dict[str, Any]) -> findings.Finding:
    """Say in one sentence what was found."""
    devices = [f"{one.get('name')} ({gpus.arch_of(one)})" for one in probe.get("devices") or []]
    torch, system = probe.get("torch_version") or "-", probe.get("platform") or "-"
    return findings.finding("PROBE", torch=torch, system=system, devices=", ".join(devices) or "no device")


def _names(document: dict[str, Any]) -> Reading:
    """Take every name apart; those that are no target are counted, never guessed at."""
    listed = document.get("items")
    items = [one if isinstance(one, dict) else {"raw": one} for one in (listed if isinstance(listed, list) else [])]
    rows = []
    for one in items:
        raw = one.get("raw")
        name = archs.parse(raw if isinstance(raw, str) else None)
        raw = raw if raw is None else str(raw)
        verdict = "OK" if name.base else "UNKNOWN_ARCH_NAME"
        rows.append(
            {"raw": raw, "base": name.base, "features": name.features, "family": name.family} | {"verdict": verdict}
        )
    unknown = [row for row in rows if row["base"] is None]
    counts = {"items": len(rows), "unknown_names": len(unknown)}
    shown = ", ".join("(none)" if row["raw"] is None else f'"{row["raw"]}"' for row in unknown)
    fault = findings.finding("UNKNOWN_ARCH_NAME", count=len(unknown), items=len(rows), names=shown)
    head = findings.finding("ARCH_NAMES", items=len(rows))
    return Reading("arch_names", NAMES_SCHEMA, counts, [fault] if unknown else [], head, {"items": rows})


def _message(text: str) -> Reading:
    """Read the last traceback: what failed is its last line."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    errors = [line for line in lines if IMPORT_ERROR.search(line)]
    if re.search(r"No module named '?torch'?\s*$", errors[-1]):
        return Reading("message", None, {}, [findings.finding("TORCH_ABSENT")])
    found = environment.import_failure(errors[-1])
    return Reading("message", None, dict(found["numbers"]), [found])
