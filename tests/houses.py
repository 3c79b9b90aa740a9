"""Small houses for tests: notebooks made of a few lines, a copy of the package, and a machine that is known."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

MACHINE: dict[str, Any] = {
    "schema": "rocmlab-probe-1",
    "platform": "Linux-6.1-test",
    "torch_version": "2.9.0",
    "torch_version_hip": None,
    "torch_version_cuda": None,
    "devices": [],
    "env": {},
    "host": {"cpu": "Test CPU", "memory_bytes": 8 * 2**30},
}


def card(index: int, arch: str, name: str, ok: bool = True, memory: int = 8 * 2**30) -> dict[str, Any]:
    """One card as (device, launch)."""
    device = {"index": index, "name": name, "gcnArchName": arch, "total_memory": memory, "is_integrated": 0}
    return {"device": device, "launch": {"index": index, "ok": ok, "error": None, "max_abs_err": 0.0}}


def machine(*cards: dict[str, Any]) -> dict[str, Any]:
    """A snapshot with these cards."""
    launches = {"op": "mm", "per_device": [one["launch"] for one in cards]} if cards else None
    return {**MACHINE, "devices": [one["device"] for one in cards], "launch_probe": launches}


def notebook(cells: dict[str, str], params: str | None = 'run_dir: str = ""', title: str = "") -> dict[str, Any]:
    """A notebook of code cells {id: source}; `params` is its tagged cell, None for none."""
    made = [_cell("title", "markdown", title or "# 00 Does it run?\n\nTakes 0.1 min.")]
    if params is not None:
        made.append(_cell("params", "code", params, ["parameters"]))
    made += [_cell(name, "code", source) for name, source in cells.items()]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {"kernelspec": kernel}, "cells": made}


def _cell(name: str, kind: str, source: str, tags: list[str] | None = None) -> dict[str, Any]:
    cell = {"cell_type": kind, "id": name, "metadata": {"tags": tags} if tags else {}, "source": source}
    return {**cell, "execution_count": None, "outputs": []} if kind == "code" else cell


def build(home: Path, **books: dict[str, Any] | str) -> Path:
    """Write notebooks as home/notebooks/NN_topic.ipynb; keyword n03_topic becomes 03_topic."""
    (home / "notebooks").mkdir(parents=True, exist_ok=True)
    for name, content in books.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (home / "notebooks" / f"{name[1:]}.ipynb").write_text(text, encoding="utf-8")
    return home


def with_package(home: Path) -> Path:
    """Put a copy of the package beside the notebooks, so that `python -m rocmlab.cli` there is a house of its own.

    Only the look at the machine is replaced, by a machine that is known.
    """
    shutil.copytree(ROOT / "rocmlab", home / "rocmlab", ignore=shutil.ignore_patterns("__pycache__"))
    with (home / "rocmlab" / "device.py").open("a", encoding="utf-8") as file:
        file.write(f"\n\ndef snapshot():\n    return {MACHINE!r}\n")
    return home


def page(fails: str = "") -> SimpleNamespace:
    """Stand in for the page builder, which has tests of its own."""

    def build_page(run: Path, lang: str = "en") -> Path:
        if fails:
            raise ValueError(fails)
        (run / "index.html").write_text(f"<html lang={lang}>", encoding="utf-8")
        return run / "index.html"

    return SimpleNamespace(build=build_page)
