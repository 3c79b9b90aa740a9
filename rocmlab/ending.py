"""How did a notebook end? From what the watchdog saw, the exit status of the kernel and the cells: one Result."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbclient.exceptions import DeadKernelError

from rocmlab import isolate
from rocmlab.readers import notebooks

if TYPE_CHECKING:
    from rocmlab.engine import Execution


@dataclass(frozen=True)
class Result:
    """How one notebook ended: status ok, failed, crashed, timed_out or out_of_memory.

    `cell` is the id of the cell where it ended and `code_cell` its number among the author's code cells, from 1;
    `exit` and `signal` are the kernel's, where it ended by itself.
    """

    status: str
    seconds: float
    cell: str | None = None
    code_cell: int | None = None
    message: str | None = None
    exit: int | None = None
    signal: str | None = None
    limit_s: float | None = None

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


def judge(execution: Execution, *, stopped: bool, oom: bool) -> Result:
    """Return how it ended; `stopped` by Ctrl-C, `oom` when the out-of-memory killer ended a process meanwhile."""
    seconds = round(time.monotonic() - execution.began, 3)
    code = execution.process.poll() if execution.process is not None else None
    failed = next((c for c in execution.notebook.cells if papermill_state(c).get("status") == "failed"), None)
    if execution.ended_by_us and not failed:
        status = "failed" if stopped else "timed_out"
        message = execution.ended_by_us + (f" of {execution.limit_s:g} s" if execution.limit_s else "")
        return replace(_at(execution, execution.cell, status, seconds, message), limit_s=execution.limit_s)
    if failed is not None:
        status, message = notebooks.failure(*(notebooks.error_of(failed) or ("error", "without a message")))
        return _at(execution, failed, status, seconds, message)
    error = execution.error
    if error is None:
        return Result("ok", seconds)
    if isinstance(error, OSError):
        what = "the kernel could not be started" if execution.process is None else "its copy could not be written"
        return _at(execution, execution.cell, "failed", seconds, f"{what}: {error.strerror or error}")
    if code is not None or isinstance(error, (DeadKernelError, RuntimeError)):
        return _dead(execution, seconds, code, oom)
    return _at(execution, execution.cell, "failed", seconds, f"{type(error).__name__}: {error}".splitlines()[0])


def _dead(execution: Execution, seconds: float, code: int | None, oom: bool) -> Result:
    if code is None:
        last = str(execution.error).splitlines()[0] if str(execution.error) else "the kernel gave no answer"
        return _at(execution, execution.cell, "crashed", seconds, last)
    kind, words = isolate.meaning(code)
    out = kind == "KILLED" and oom
    words = "ended by the system's out-of-memory killer" if out else words
    status = "out_of_memory" if out else "crashed"
    return _at(execution, execution.cell, status, seconds, words, code, _signal(code))


def _signal(code: int) -> str | None:
    try:
        return signal.Signals(-code).name if code < 0 else None
    except ValueError:
        return str(-code)


def _at(
    execution: Execution,
    cell: dict[str, Any] | None,
    status: str,
    seconds: float,
    message: str,
    code: int | None = None,
    by: str | None = None,
) -> Result:
    cells = [c for c in notebooks.code_cells(execution.notebook) if notebooks.runnable(c)]
    number = next((n for n, c in enumerate(cells, 1) if c is cell or (cell and c.get("id") == cell.get("id"))), None)
    return Result(status, seconds, name(cell), number, message, code, by)


def papermill_state(cell: dict[str, Any]) -> dict[str, Any]:
    return cell.get("metadata", {}).get("papermill") or {}


def name(cell: dict[str, Any] | None) -> str | None:
    return cell.get("id", "unnamed") if cell is not None else None


def oom_kills() -> int:
    """Return how many processes the kernel's out-of-memory killer has ended since boot; 0 where nobody counts them."""
    try:
        text = Path("/proc/vmstat").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found.group(1)) if found else 0
