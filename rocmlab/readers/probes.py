"""Snapshots of a machine (schema rocmlab-probe-1), as `rocmlab check --json` and notebook 01 keep them."""

from __future__ import annotations

from typing import Any

from rocmlab import environment, findings
from rocmlab.readers import Evidence, Reading

SCHEMA = "rocmlab-probe-1"


def recognise(evidence: Evidence) -> bool:
    return evidence.schema == SCHEMA or _wrapped(evidence)


def _wrapped(evidence: Evidence) -> bool:
    inner = evidence.json.get("snapshot") if isinstance(evidence.json, dict) else None
    return isinstance(inner, dict) and inner.get("schema") == SCHEMA and not evidence.schema


def read(evidence: Evidence) -> Reading:
    """Judge the snapshot as if it were taken here."""
    probe = evidence.json["snapshot"] if _wrapped(evidence) else evidence.json
    return Reading("probe", SCHEMA, numbers(probe), environment.judge(probe), headline(probe))


def numbers(probe: dict[str, Any]) -> dict[str, Any]:
    """Return the counts and sizes of one snapshot, flat."""
    devices = probe.get("devices") or []
    found: dict[str, Any] = {"device_count": len(devices), "system_gpus": len(probe.get("system_gpus") or [])}
    if devices:
        chosen = environment.subject(probe)
        memory = chosen["memory_bytes"] if chosen["device"] != "cpu" else devices[0].get("total_memory")
        found["memory_gib"] = memory / 2**30 if memory else None
        if not memory:
            found["memory_gib_reason"] = "not in the snapshot"
    error = (probe.get("launch_probe") or {}).get("max_abs_err")
    return found if error is None else {**found, "max_abs_err": error}


def headline(probe: dict[str, Any]) -> findings.Finding:
    """Say in one sentence what was found."""
    devices = [f"{d.get('name')} ({environment.arch_of(d)})" for d in probe.get("devices") or []]
    return findings.finding(
        "PROBE",
        torch=probe.get("torch_version") or "-",
        system=probe.get("platform") or "-",
        devices=", ".join(devices) or "no device",
    )
