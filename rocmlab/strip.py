"""Bring notebooks into their committed form: no outputs, no counts, cell ids as they are, one kernel name, LF.

`python -m rocmlab.strip notebooks` rewrites what differs and says which; `--check` only says it and exits 1. Common
tools renumber the ids or drop the tags; papermill needs the tags, and reviewers the ids.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def stripped(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the committed form of a notebook (format 4.5); cells keep id, type, source and tags."""
    return {
        "cells": [_cell(cell) for cell in notebook["cells"]],
        "metadata": {"kernelspec": KERNEL, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(cell: dict[str, Any]) -> dict[str, Any]:
    tags = cell.get("metadata", {}).get("tags", [])
    kept = {
        "cell_type": cell["cell_type"],
        "id": cell["id"],
        "metadata": {"tags": tags} if tags else {},
        "source": _lines(cell["source"]),
    }
    return {**kept, "execution_count": None, "outputs": []} if cell["cell_type"] == "code" else kept


def _lines(source: str | list[str]) -> list[str]:
    text = source if isinstance(source, str) else "".join(source)
    return text.replace("\r\n", "\n").rstrip("\n").splitlines(keepends=True)


def text(notebook: dict[str, Any]) -> str:
    """Return a notebook as it is written to disk: keys sorted, one space, Chinese readable."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Strip files and folders; exit 0 when all is well, 1 when --check saw a difference, 2 for an unreadable file."""
    parser = argparse.ArgumentParser(prog="strip", description="Bring notebooks into their committed form.")
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="notebooks, or folders of notebooks")
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 when something differs")
    arguments = parser.parse_args(argv)
    differing = 0
    for path in (one for given in arguments.paths for one in (sorted(given.glob("*.ipynb")) or [given])):
        if path.is_dir():
            continue
        try:
            before = path.read_bytes()
            after = text(stripped(json.loads(before))).encode("utf-8")
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"strip: {path} is no notebook of format 4.5: {error!r}", file=sys.stderr)
            return 2
        if after != before:
            differing += 1
            print(f"{'differs from its committed form' if arguments.check else 'stripped'}: {path}")
            if not arguments.check:
                path.write_bytes(after)
    return 1 if arguments.check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
