"""The copy of a notebook that was executed, and its kernel's log: what does a reader find there afterwards?

Papermill's statuses are repaired, a banner says what went wrong, the JSON is valid and nothing personal is in it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from rocmlab import results
from rocmlab.ending import Result, papermill_state
from rocmlab.findings import finding, say
from rocmlab.readers import notebooks

KEPT_PRINT = 200_000  # characters of one cell's printed text; the head and the tail are kept
LOG_LINES = 15
LOG_BYTES = 2_000_000
NOISE = re.compile(r"Kernel is running over TCP without encryption|KeyboardInterrupt caught in kernel")
THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+")
CELL_FRAME = re.compile(r"[\\/]ipykernel_\d+[\\/]")
MACHINERY = re.compile(r"[\\/](ipykernel|zmq|tornado)[\\/]")
LEFT_OUT = re.compile(r"\n\.\.\. (\d+) characters left out \.\.\.\n")
IMAGES = ("image/png", "image/jpeg", "image/gif")


def keep(executed: dict[str, Any], result: Result, path: Path, run: str, log: Path) -> None:
    """Write the executed copy: statuses repaired, a banner when something went wrong, valid JSON, nothing personal."""
    tidy_log(log)
    notebook = json.loads(json.dumps(executed))
    notebook["cells"] = [c for c in notebook["cells"] if "papermill-error-cell-tag" not in notebooks.tags(c)]
    repair(notebook, result)
    metadata = notebook["metadata"]
    metadata["rocmlab"] = {"run": run, **result.as_row()}
    metadata.setdefault("papermill", {}).update(input_path=path.name, output_path=f"notebooks/{path.name}")
    if result.status != "ok":
        notebook["cells"][:0] = banner(result, last_lines(log))
    results.write_text(
        path, json.dumps(private(results.clean(notebook)), ensure_ascii=False, indent=1, allow_nan=False)
    )


def repair(notebook: dict[str, Any], result: Result) -> None:
    """Give every cell its true status: pending when it never began, failed where the notebook ended.

    A cell whose kernel died has no execution count, whatever the kernel had announced before.
    """
    for cell in notebook["cells"]:
        state = papermill_state(cell)
        if state and not state.get("start_time"):
            state["status"] = "pending"
        if result.cell is not None and cell.get("id") == result.cell:
            cell["metadata"].setdefault("papermill", {}).update(status="failed", exception=True)
            if result.status in ("crashed", "timed_out") and cell["cell_type"] == "code":
                cell["execution_count"] = None
    if result.status != "ok":
        notebook["metadata"].setdefault("papermill", {})["exception"] = True


def banner(result: Result, last: str) -> list[dict[str, Any]]:
    """Return the first cells of a copy that did not end well: status, cell, cause and the log's last lines."""
    numbers = {"code_cell": result.code_cell, "limit_s": result.limit_s}
    found = finding(notebooks.CODES[result.status], numbers=numbers, cell=result.cell, message=result.message)
    title = {"en": "Last lines of the kernel's log", "zh": "kernel 日志的最后几行"}
    cells = []
    for lang in ("en", "zh"):
        said = say(found, lang)
        text = f"**{result.status}** {said['sentence']} {said['advice']}"
        if last:
            text += f"\n\n{title[lang]}:\n\n```text\n{last}\n```"
        cells.append(
            {
                "cell_type": "markdown",
                "id": f"status-{lang}",
                "metadata": {"tags": [notebooks.BANNER_TAG, f"lang-{lang}"]},
                "source": text,
            }
        )
    return cells


def private(value: Any) -> Any:
    """Redact every string except pictures, whose base64 text must not be touched."""
    if isinstance(value, dict):
        return {key: item if key in IMAGES else private(item) for key, item in value.items()}
    if isinstance(value, list):
        return [private(item) for item in value]
    return results.redact(value) if isinstance(value, str) else value


def tidy_log(log: Path) -> None:
    """Redact the kernel's log, drop its harmless first line, keep head and tail of a flood."""
    try:
        size = log.stat().st_size
        with log.open("rb") as file:
            data = file.read(LOG_BYTES)
            if size > 2 * LOG_BYTES:
                data += f"\n... {size - 2 * LOG_BYTES} bytes left out ...\n".encode()
                file.seek(size - LOG_BYTES)
            data += file.read()
    except OSError:
        return
    lines = data.decode("utf-8", errors="replace").splitlines()
    text = "\n".join(line for line in lines if not NOISE.search(line)).strip("\n")
    text = text.replace(str(results.home()), "<checkout>")  # a library's warning names the file that it comes from
    results.write_text(log, results.redact(text) + "\n" if text else "")


def last_lines(log: Path) -> str:
    """Return what a reader needs of a log: from the crash report on where there is one, else the last lines."""
    try:
        lines = without_machinery(log.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ""
    fatal = [index for index, line in enumerate(lines) if line.startswith("Fatal Python error")]
    start = max(fatal[-1] - 3, 0) if fatal else max(len(lines) - LOG_LINES, 0)
    return "\n".join(line[:300] for line in lines[start : start + LOG_LINES]).replace("```", "'''")


def without_machinery(lines: list[str]) -> list[str]:
    """Drop from Python stacks what belongs to Jupyter: its own threads, and its frames below those of the cell."""
    kept: list[str] = []
    stack: list[str] | None = None
    for line in [*lines, ""]:
        if THREAD.match(line):
            kept, stack = kept + _frames(stack), [line]
        elif stack is not None and line.startswith("  "):
            stack.append(line)
        else:
            kept, stack = [*kept, *_frames(stack), line], None
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip("\n").splitlines()


def _frames(stack: list[str] | None) -> list[str]:
    if stack is None:
        return []
    cells = [number for number, line in enumerate(stack) if CELL_FRAME.search(line)]
    if cells:
        return stack[: cells[-1] + 1]
    return [] if any(MACHINERY.search(line) for line in stack) else stack


def shortened(text: str) -> str:
    """Return printed text with progress updates folded, and head and tail only when it still is a flood."""
    text = notebooks.fold(text)
    if len(text) <= KEPT_PRINT:
        return text
    head, tail = text[: KEPT_PRINT // 4], text[-KEPT_PRINT // 4 :]
    middle = text[len(head) : -len(tail)]
    dropped = len(LEFT_OUT.sub("", middle)) + sum(int(number) for number in LEFT_OUT.findall(middle))
    return f"{head}\n... {dropped} characters left out ...\n{tail}"
