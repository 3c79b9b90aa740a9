"""rocmlab installs and imports without torch on every Python it names, and never imports torch by itself."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13")
IMPORT_ALL = """
import importlib, json, pkgutil, sys
import rocmlab
missing = {}
for one in pkgutil.walk_packages(rocmlab.__path__, "rocmlab."):
    try:
        importlib.import_module(one.name)
    except ModuleNotFoundError as error:
        missing[one.name] = error.name
from rocmlab import findings
assert findings.messages(), "messages.yaml is not in the wheel"
print(json.dumps({"torch": "torch" in sys.modules, "missing": missing, "from": rocmlab.__file__}))
"""
# What `rocmlab check` and `rocmlab read` need is there without the extra for notebooks.
PLAIN = {"rocmlab.cli", "rocmlab.device", "rocmlab.findings", "rocmlab.install", "rocmlab.results"}


def interpreters() -> dict[str, str]:
    """Return the interpreters of this machine by version: on the path, of pyenv and of uv."""
    found = {}
    for version in VERSIONS:
        homes = [Path.home() / ".pyenv" / "versions", Path.home() / ".local" / "share" / "uv" / "python"]
        inside = [str(one) for home in homes for one in sorted(home.glob(f"*{version}.*/bin/python{version}"))]
        for candidate in [sys.executable, shutil.which(f"python{version}"), *inside]:
            if candidate and _version(candidate) == version:
                found[version] = candidate
                break
    return found


def _version(python: str) -> str:
    command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


FOUND = interpreters()


def importing(python: str | Path, folder: Path) -> dict:
    """Import every module of rocmlab in a fresh interpreter and return what it reports."""
    env = {**os.environ, "PYTHONPATH": str(ROOT) if folder == ROOT else "", "MPLBACKEND": "agg"}
    done = subprocess.run([python, "-c", IMPORT_ALL], capture_output=True, encoding="utf-8", cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def build(folder: Path) -> Path:
    """Build rocmlab's wheel from a copy, so that the checkout stays clean."""
    source = folder / "source"
    shutil.copytree(ROOT / "rocmlab", source / "rocmlab", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace")
    assert done.returncode == 0, done.stderr
    return next(folder.glob("rocmlab-*.whl"))


def installed(version: str, folder: Path, wheel: Path) -> tuple[Path, str]:
    """Install the wheel with what it needs into a fresh environment; return (interpreter, pip's complaint or "")."""
    subprocess.run([FOUND[version], "-m", "venv", "--without-pip", str(folder / version)], check=True)
    python = folder / version / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-compile", str(wheel)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", cwd=folder)
    return python, (done.stdout + done.stderr)[-4000:] if done.returncode else ""


@pytest.fixture(scope="module")
def everywhere(tmp_path_factory) -> dict[str, tuple[Path, str]]:
    """Install on all versions side by side, which takes half the time."""
    folder = tmp_path_factory.mktemp("import")
    wheel = build(folder)
    with ThreadPoolExecutor() as pool:
        return dict(zip(FOUND, pool.map(lambda version: installed(version, folder, wheel), FOUND), strict=True))


def test_the_versions_that_were_not_tried_are_said():
    missing = [version for version in VERSIONS if version not in FOUND]
    if missing:
        warnings.warn(f"not on this machine, so not tried: Python {', '.join(missing)}", stacklevel=1)
    assert FOUND


@pytest.mark.parametrize("version", sorted(FOUND))
def test_install_and_import_without_torch(everywhere, tmp_path, version):
    python, complaint = everywhere[version]
    assert not complaint
    said = importing(python, tmp_path)
    assert not said["torch"] and "site-packages" in said["from"]
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    allowed = {re.split(r"[<>=\[; ]", one)[0] for one in extra["notebooks"]}
    assert set(said["missing"].values()) <= allowed
    assert not PLAIN & set(said["missing"]) and not [one for one in said["missing"] if ".readers" in one]
    shown = subprocess.run([python, "-m", "rocmlab.cli", "--help"], capture_output=True, encoding="utf-8", cwd=tmp_path)
    assert shown.returncode == 0 and "report" in shown.stdout


def test_no_module_imports_torch_by_itself_where_it_is_installed():
    assert importing(sys.executable, ROOT) == {
        "torch": False,
        "missing": {},
        "from": str(ROOT / "rocmlab" / "__init__.py"),
    }
