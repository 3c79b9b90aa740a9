"""What happened in this notebook? Executed notebooks are read, never run.

Papermill's own cell status says "completed" for cells of a dead kernel, so it is not trusted: a code cell that was
started and has no execution count tells the truth, and a copy executed here says more in `metadata.rocmlab`.
`fold(text)` gives printed text as a terminal would show it at the end, without the progress updates before it.
"""

from __future__ import annotations

import re
from typing import Any

from rocmlab.findings import Finding, finding
from rocmlab.parameters import INJECTED_TAG, TAG
from rocmlab.readers import Evidence, Reading

BANNER_TAG = "rocmlab-status"
# Statuses of a notebook that is a fault, and the code that says so.
CODES = {
    "failed": "FAILED",
    "crashed": "CRASHED",
    "timed_out": "TIMED_OUT",
    "out_of_memory": "NOTEBOOK_OUT_OF_MEMORY",
}
MEMORY = re.compile(
    r"OutOfMemoryError|MemoryError|out of memory|not enough memory|can't allocate memory", re.IGNORECASE
)
# Cursor moves that a terminal obeys: return, backspace, erase to the end of the line, n lines up.
MOVES = re.compile(r"(\r|\x08|\x1b\[[0-9;]*[A-Za-z])")


# ---- printed text


def fold(text: str) -> str:
    """Return text as a terminal shows it at the end: without what a return, a backspace or a cursor-up overwrote."""
    text = text.replace("\r\n", "\n")
    if not re.search(r"[\r\x08]|\x1b\[[0-9;]*[AGK]", text):
        return text
    rows, row, column = [""], 0, 0
    for line_number, line in enumerate(text.split("\n")):
        if line_number:
            row, column = row + 1, 0
            if row == len(rows):
                rows.append("")
        for part in MOVES.split(line):
            rows[row], row, column = _moved(part, rows, row, column)
    return "\n".join(line.rstrip() if line.strip() else "" for line in rows)


def _moved(part: str, rows: list[str], row: int, column: int) -> tuple[str, int, int]:
    line = rows[row]
    if part == "\r":
        return line, row, 0
    if part == "\x08":
        return line, row, max(0, column - 1)
    if part.startswith("\x1b["):
        if part[-1] == "K":
            return line[:column] if part[2:-1] in ("", "0") else "", row, column
        if part[-1] == "A":
            return line, max(0, row - int(part[2:-1] or 1)), column
        return line, row, column  # colours and the rest: dropped in overwritten text
    return line[:column].ljust(column) + part + line[column + len(part) :], row, column + len(part)


def updates(text: str) -> tuple[int, int]:
    """Return (progress updates, lines they fold into) of printed text: the pieces between carriage returns."""
    seen = kept = 0
    for line in text.replace("\r\n", "\n").split("\n"):
        pieces = [piece for piece in line.split("\r") if piece.strip()]
        if len(pieces) > 1:
            seen, kept = seen + len(pieces), kept + 1
    return seen, kept


def joined(text: Any) -> str:
    """Return a notebook's multi-line text, which is a string or a list of strings, as one string."""
    return "".join(str(part) for part in text) if isinstance(text, list) else str(text or "")


def streams(cell: dict[str, Any]) -> list[str]:
    """Return a cell's printed text, each run of outputs to the same stream as one piece."""
    pieces: list[str] = []
    last = None
    for output in outputs_of(cell):
        name = output.get("name") if output.get("output_type") == "stream" else None
        if name and name == last:
            pieces[-1] += joined(output.get("text"))
        elif name:
            pieces.append(joined(output.get("text")))
        last = name
    return pieces


# ---- cells


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the code cells that the author wrote: without the one that papermill injects, in order."""
    return [c for c in cells_of(notebook) if c.get("cell_type") == "code" and INJECTED_TAG not in tags(c)]


def cells_of(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells of a notebook, leaving out what is none: a damaged file may hold anything."""
    found = notebook.get("cells")
    return [cell for cell in found if isinstance(cell, dict)] if isinstance(found, list) else []


def outputs_of(cell: dict[str, Any]) -> list[dict[str, Any]]:
    found = cell.get("outputs")
    return [output for output in found if isinstance(output, dict)] if isinstance(found, list) else []


def within(value: Any, *keys: str) -> Any:
    """Return what lies at the end of these keys, None where any of them is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def tags(cell: dict[str, Any]) -> list[str]:
    found = within(cell, "metadata", "tags")
    return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []


def runnable(cell: dict[str, Any]) -> bool:
    """Tell whether a code cell has anything to run; an empty one never gets an execution count."""
    return bool(joined(cell.get("source")).strip())


def error_of(cell: dict[str, Any]) -> tuple[str, str] | None:
    """Return (name, first line of the text) of the exception that a cell shows, None when it shows none."""
    for output in outputs_of(cell):
        if output.get("output_type") == "error":
            text = joined(output.get("evalue")).strip()
            return str(output.get("ename", "error")), text.splitlines()[0] if text else ""
    return None


def failure(name: str, text: str) -> tuple[str, str]:
    """Return (status, message) of an exception in a cell: failed, or out_of_memory when an allocation failed."""
    message = f"{name}: {text}" if text else name
    return ("out_of_memory" if MEMORY.search(message) else "failed"), message


# ---- reading


def recognise(evidence: Evidence) -> bool:
    found = evidence.json
    return isinstance(found, dict) and "nbformat" in found and isinstance(found.get("cells"), list)


def read(evidence: Evidence) -> Reading:
    notebook = evidence.json
    cells = [cell for cell in code_cells(notebook) if runnable(cell)]
    without = sum(cell.get("execution_count") is None for cell in cells)
    end = _ending(notebook, cells)
    numbers: dict[str, Any] = {
        "code_cells": len(cells),
        "cells_without_execution_count": without,
        "cells_failed": max(sum(1 for cell in cells if error_of(cell)), int(end["status"] in CODES)),
    }
    found = _fault(end, cells, numbers) + _injected_on_top(notebook)
    pieces = [piece for cell in cells for piece in streams(cell)]
    found += _progress(pieces, numbers)
    lines = [line for piece in pieces for line in fold(piece).splitlines() if line.strip()]
    headline = finding("NOTEBOOK_READ", file=evidence.name, cells=len(cells), ran=len(cells) - without)
    return Reading("notebook", None, numbers, found, headline, {"output_lines": lines})


def _fault(end: dict[str, Any], cells: list[dict[str, Any]], numbers: dict[str, Any]) -> list[Finding]:
    if end["status"] not in CODES:
        return []
    place, variant = end.get("place"), end.get("variant")
    cell = cells[place].get("id", "unnamed") if place is not None else None
    numbers["code_cell"] = None if place is None else place + 1
    if place is None:
        numbers["code_cell_reason"] = "it ended before its first cell, or the cell is not in this copy"
    if end["status"] == "timed_out" and not variant:
        numbers["limit_s"] = end.get("limit_s")
    return [
        finding(CODES[end["status"]], numbers=dict(numbers), variant=variant, cell=cell, message=end.get("message"))
    ]


def _progress(pieces: list[str], numbers: dict[str, Any]) -> list[Finding]:
    counted = [updates(piece) for piece in pieces]
    seen, kept = sum(one[0] for one in counted), sum(one[1] for one in counted)
    if not seen:
        return []
    folded = {"progress_updates": seen, "lines_kept": kept, "updates_dropped": seen - kept}
    numbers.update(folded)
    return [finding("PROGRESS_FOLDED", numbers=folded)]


def _injected_on_top(notebook: dict[str, Any]) -> list[Finding]:
    """A value was injected although no cell is tagged: papermill put it on top, and the notebook's own lines won."""
    every = [tag for cell in cells_of(notebook) for tag in tags(cell)]
    if INJECTED_TAG in every and TAG not in every:
        return [finding("PARAMETERS_TAG_MISSING", variant="executed")]
    return []


def _ending(notebook: dict[str, Any], cells: list[dict[str, Any]]) -> dict[str, Any]:
    """Return {status, place among the code cells, message, ...} from the best evidence that a notebook holds."""
    ours = within(notebook, "metadata", "rocmlab")
    if isinstance(within(ours, "status"), str):
        places = [index for index, cell in enumerate(cells) if cell.get("id") == ours.get("cell")]
        return {**ours, "place": places[0] if places else None}
    for index, cell in enumerate(cells):
        error = error_of(cell)
        if error and error[0] == "KeyboardInterrupt" and within(notebook, "metadata", "papermill"):
            return {"status": "timed_out", "place": index, "variant": "interrupted"}
        if error:
            status, message = failure(*error)
            return {"status": status, "place": index, "message": message}
    dead = _died_at(cells)
    if dead is not None:
        return {"status": "crashed", "place": dead, "message": "it ended here without an exception"}
    return {"status": "ok"}


def _died_at(cells: list[dict[str, Any]]) -> int | None:
    """Return the cell in which the kernel died: the last one that papermill started, if it or a later one never ended.

    Without papermill's times nothing follows: a notebook of which only some cells were run looks the same.
    """
    started = [i for i, c in enumerate(cells) if within(c, "metadata", "papermill", "start_time")]
    if not started:
        return None
    last = started[-1]
    return last if any(cell.get("execution_count") is None for cell in cells[last:]) else None
