"""Which Python is this, and which torch does it have? Standard library only; serves the set-up.

`interpreter.ask("/usr/bin/python3")` gives its version, its folders and its torch, without importing torch: a broken
driver may crash there, and looking must be quick.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

PROBE = """
import importlib.metadata, importlib.util, json, os, sys
found = importlib.util.find_spec("torch")
torch, folders = None, []
if found and found.origin:
    parent = os.path.dirname(os.path.dirname(found.origin))
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        version = ""
    torch = {"version": version, "file": found.origin}
    shown = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages") and os.path.isdir(p)]
    folders = shown if parent in shown else [parent, *shown]
print(json.dumps({"python": sys.executable, "base": sys._base_executable, "prefix": sys.prefix,
                  "version": list(sys.version_info[:3]), "torch": torch, "folders": folders}))
"""


def ask(python: str) -> dict[str, Any] | None:
    """Return `{python, base, prefix, version, torch: {version, file} | None, folders}`; None when it does not run."""
    try:
        # In a neutral folder: -c puts the current one on the path, and a folder called torch may lie there.
        done = subprocess.run(
            [python, "-c", PROBE], cwd=tempfile.gettempdir(), env=environment(), capture_output=True, timeout=60
        )
        return json.loads(done.stdout.decode("utf-8").splitlines()[-1])
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired):
        return None


def environment() -> dict[str, str]:
    """Return the environment of children: UTF-8 output, and no `pip install --user`, which a venv refuses."""
    return {**os.environ, "PYTHONUTF8": "1", "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def inside(prefix: Path, conda: bool = False) -> Path:
    """Return the path of the interpreter inside a venv or a conda environment."""
    if os.name == "nt":
        return prefix / "python.exe" if conda else prefix / "Scripts" / "python.exe"
    return prefix / "bin" / "python"


def packages(venv: Path) -> list[Path]:
    """Return the site-packages folders of a venv, also when its interpreter no longer runs."""
    return [*venv.glob("lib/python3.*/site-packages"), *venv.glob("Lib/site-packages")]


def torch_on_disk(venv: Path) -> str:
    """Return the version of the torch that lies inside a venv, "" when there is none."""
    for folder in packages(venv):
        if (folder / "torch" / "__init__.py").exists():
            names = (re.match(r"torch-([^-]+?)(-py[\d.]+)?\.(dist|egg)-info$", one.name) for one in folder.iterdir())
            return next((name[1] for name in names if name), "of unknown version")
    return ""
