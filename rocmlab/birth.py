"""The birth certificate of a run (`run.json`, schema rocmlab-birth-1): on what, with what, from what was this measured?

Written before the first notebook and again after each. `key(...)` decides whether a notebook has to run again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import psutil

from rocmlab import METHOD_VERSION, __version__, results

PACKAGES = ("torch", "transformers", "numpy", "pandas", "matplotlib", "papermill", "nbclient", "ipykernel", "nbconvert")
GIT_LIMIT_S = 10


def certificate(
    name: str, asked: str, subject: dict[str, Any], snapshot: dict[str, Any], earlier: dict[str, Any]
) -> dict[str, Any]:
    """Return a fresh certificate; statuses of notebooks measured earlier in the same folder are kept."""
    return {
        "schema": results.BIRTH_SCHEMA,
        "name": name,
        "method_version": METHOD_VERSION,
        "rocmlab_version": __version__,
        "started": earlier.get("started") or results.now(),
        "resumed": results.now() if earlier else None,
        "ended": None,
        "asked": asked,
        "subject": subject,
        "snapshot": snapshot,
        "versions": versions(snapshot),
        "git": git(results.home()),
        "parameters": dict(earlier.get("parameters") or {}),
        "variables": snapshot.get("env") or {},
        "load": [round(value, 2) for value in psutil.getloadavg()],
        "findings": [],
        "notebooks": dict(earlier.get("notebooks") or {}),
    }


def versions(snapshot: dict[str, Any]) -> dict[str, str | None]:
    """Return the version of each package that can change a number; torch as it says itself, build tag included."""
    found: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    return {**found, "torch": snapshot.get("torch_version") or found["torch"]}


def git(home: Path) -> dict[str, Any]:
    """Return {commit, dirty} of the checkout; null with a reason outside one."""
    if not (home / ".git").exists():
        return {"commit": None, "dirty": None, "commit_reason": "not a git checkout"}
    try:
        commit, changes = (_git(home, *words) for words in (("rev-parse", "HEAD"), ("status", "--porcelain")))
    except (OSError, subprocess.SubprocessError) as error:
        return {"commit": None, "dirty": None, "commit_reason": f"git gave no answer: {type(error).__name__}"}
    return {"commit": commit, "dirty": bool(changes)}


def _git(home: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(home), *words], capture_output=True, timeout=GIT_LIMIT_S, check=True, stdin=subprocess.DEVNULL
    )
    return done.stdout.decode("utf-8", errors="replace").strip()


def key(values: dict[str, Any], subject: dict[str, Any], snapshot: dict[str, Any], model: str | None) -> str:
    """Return what a result depends on, as 16 hexadecimal digits: equal key, equal measurement.

    Values of the notebook, method version, device, build, driver, recorded variables and model; not free memory, time,
    temperature, nor where the run folder is.
    """
    depends = {
        "values": {name: value for name, value in values.items() if name != "run_dir"},
        "method_version": METHOD_VERSION,
        "arch": subject.get("arch"),
        "device": subject.get("name"),
        "torch": snapshot.get("torch_version"),
        "hip": snapshot.get("torch_version_hip"),
        "cuda": snapshot.get("torch_version_cuda"),
        "driver": snapshot.get("driver"),
        "variables": snapshot.get("env") or {},
        "model": model,
    }
    text = json.dumps(depends, sort_keys=True, ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
