"""01: what card, driver and build is this, and can it compute?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import results, words
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.sections import Section, Table, Text, question, snapshot


def section(run: Path) -> Section:
    """What card, driver and build is this, and can it compute?"""
    from rocmlab import device

    probe = snapshot(run)
    if not probe:
        return Section("01", question("01"), missing=words.both("reason_no_records", notebook="01"))
    found = worst_first(device.judge(probe))
    works = answer_works(probe, found)
    return Section(
        notebook="01",
        question=question("01"),
        findings=[works, *(one for one in found if one is not works)],
        tables=[Table("machine", words.both("machine"), machine(probe, results.birth(run)), labels=FACT_LABELS)],
        how=words.both("how_01"),
        answers={"works": works},
    )


FACT_LABELS = {"fact": words.both("fact"), "value": words.both("value")}


def answer_works(probe: dict[str, Any], found: list[Finding]) -> Finding:
    """Return what decides "does it work": the worst fault or answer, else the launch that gave the right value."""
    decisive = [f for f in found if f["sort"] == "answer" or (f["sort"] == "fault" and f["status"] != "ok")]
    if decisive:
        return decisive[0]
    launch, device = launched(probe)
    if not launch.get("ok"):
        return finding("LAUNCH_NOT_TRIED")
    return finding(
        "LAUNCH_RIGHT",
        card=device.get("name") or "device 0",
        arch=device.get("gcnArchName") or f"sm_{device.get('major')}{device.get('minor')}",
        op=launch.get("op") or "a small product",
        numbers={"max_abs_err": launch.get("max_abs_err")},
    )


def launched(probe: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (launch, device) of the first device whose launch gave the right value, else of the first device."""
    devices = [d for d in probe.get("devices") or [] if isinstance(d, dict)]
    whole = probe.get("launch_probe")
    whole = whole if isinstance(whole, dict) else {}
    each = [{**whole, **one} for one in whole.get("per_device") or [] if isinstance(one, dict)] or [whole]
    best = next((one for one in each if one.get("ok")), each[0])
    device = next((d for d in devices if d.get("index") == best.get("index", 0)), devices[0] if devices else {})
    return best, device


def machine(probe: dict[str, Any], birth: dict[str, Any]) -> pd.DataFrame:
    """Return the facts of a snapshot as rows (fact, value), only those that are known."""
    launch, device = launched(probe)
    host = probe.get("host") if isinstance(probe.get("host"), dict) else {}
    variables = birth.get("variables") or probe.get("env") or {}
    known = {
        "card": device.get("name"),
        "arch": device.get("gcnArchName"),
        "memory": words.number(device["total_memory"], "B") if device.get("total_memory") else None,
        "units": device.get("multi_processor_count"),
        "system_gpus": ", ".join(map(str, probe.get("system_gpus") or [])),
        "cpu": (host or {}).get("cpu"),
        "system": probe.get("platform"),
        "python": probe.get("python"),
        "torch": probe.get("torch_version"),
        "hip": probe.get("torch_version_hip"),
        "cuda": probe.get("torch_version_cuda"),
        "built_for": ", ".join(map(str, probe.get("arch_list") or [])),
        "variables": "; ".join(f"{k}={v}" for k, v in variables.items()) or words.both("no_variables"),
        "launch": _launch_words(launch),
    }
    rows = [{"fact": words.both(f"fact_{k}"), "value": v} for k, v in known.items() if v not in (None, "")]
    return pd.DataFrame(rows, columns=["fact", "value"])


def _launch_words(launch: dict[str, Any]) -> Text:
    if not launch:
        return words.both("launch_none")
    if launch.get("ok"):
        return words.both("launch_right", op=launch.get("op"), error=words.number(launch.get("max_abs_err")))
    error = str(launch.get("error") or "").splitlines()
    return words.both("launch_wrong", op=launch.get("op"), error=error[0] if error else words.NONE)
