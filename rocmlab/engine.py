"""Run one notebook through papermill and say honestly how it ended.

Bare papermill records a crashed or timed-out notebook as completed. Here the kernel is a process of our own choosing
(this interpreter), its C-level output goes to a log, its exit status is asked for, a watchdog ends its whole process
tree at a limit, and the executed copy says in its first cell what happened.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import nbformat
import psutil
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from nbclient.exceptions import DeadKernelError
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, NotebookExecutionManager, papermill_engines
from papermill.execute import execute_notebook

from rocmlab import isolate, results
from rocmlab.findings import finding, say
from rocmlab.readers import notebooks

KERNEL = "python3"
START_LIMIT_S = 120  # the first import of a kernel on a slow disk behind a virus scanner
LAST_WORDS_S = 1.0  # for the stack of a hanging kernel to reach its log
GIVE_UP_S = 15.0  # a process that a driver holds cannot be killed; the report goes on without it
KEPT_PRINT = 200_000  # characters of one cell's printed text; the head and the tail are kept
LOG_LINES = 15
LOG_BYTES = 2_000_000
NOISE = re.compile(
    r"kernel is running over TCP without encryption|NOTE: When using the `ipython kernel`", re.IGNORECASE
)
THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+")
CELL_FRAME = re.compile(r"[\\/]ipykernel_\d+[\\/]")
MACHINERY = re.compile(r"[\\/](ipykernel|zmq|tornado)[\\/]")
LEFT_OUT = re.compile(r"\n\.\.\. (\d+) characters left out \.\.\.\n")
IMAGES = ("image/png", "image/jpeg", "image/gif")
# A hanging kernel writes the Python stack of all its threads to its log when it gets this signal, also while it is
# inside C code; `faulthandler` has no counterpart on Windows.
STACK_SIGNAL = getattr(signal, "SIGUSR1", None)
ON_STACK_SIGNAL = '__import__("faulthandler").register(__import__("signal").SIGUSR1, file=__import__("sys").__stderr__)'


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


class _ThisInterpreter(KernelSpecManager):
    """Knows one kernel, the running interpreter, whatever a user-level kernelspec of the same name points to."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3", language="python", name=kernel_name)


class Execution:
    """One notebook while it runs: papermill works in a thread, this object is what the watchdog sees of it."""

    def __init__(self, notebook: dict[str, Any], run: Path, log: Path) -> None:
        self.notebook = nbformat.from_dict(copy.deepcopy(notebook))
        self.run, self.log = run, log
        self.cell: dict[str, Any] | None = None
        self.cell_began = self.began = time.monotonic()
        self.process: subprocess.Popen[bytes] | None = None
        self.family: dict[int, psutil.Process] = {}
        self.error: BaseException | None = None
        self.ended_by_us: str | None = None  # why the watchdog ended the kernel
        self.limit_s: float | None = None  # the limit that was reached

    def end(self, why: str, limit_s: float | None = None) -> None:
        """End the kernel and everything it started; `why` becomes the message."""
        self.ended_by_us, self.limit_s = why, limit_s
        if self.process is None or self.process.poll() is not None:
            return
        self.watch_family()
        if STACK_SIGNAL is not None:
            with contextlib.suppress(OSError):
                self.process.send_signal(STACK_SIGNAL)
                time.sleep(LAST_WORDS_S)
        isolate.end_tree(self.process.pid)

    def watch_family(self) -> None:
        """Remember the kernel's descendants: once it is dead, nobody can tell any more who its orphans are."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(psutil.Error):
                self.family.update({one.pid: one for one in psutil.Process(self.process.pid).children(recursive=True)})

    def end_orphans(self) -> None:
        """End what a kernel left behind when it died."""
        for one in self.family.values():
            isolate.end_tree(one) if one.is_running() else None
        if self.process is not None and hasattr(os, "killpg"):
            with contextlib.suppress(OSError):  # the kernel leads a process group of its own
                os.killpg(self.process.pid, signal.SIGKILL)


class _Client(PapermillNotebookClient):
    """papermill's client with this interpreter as the kernel, an eye on its process and a bound on printed text."""

    execution: Execution

    def create_kernel_manager(self) -> Any:
        self.km = self.kernel_manager_class(
            kernel_name=KERNEL, kernel_spec_manager=_ThisInterpreter(), config=self.config
        )
        return self.km

    def start_new_kernel(self, **keywords: Any) -> None:
        super().start_new_kernel(**keywords)
        self.execution.process = self.km.provisioner.process
        if self.execution.ended_by_us:  # the limit was reached while it started
            self.execution.end(self.execution.ended_by_us, self.execution.limit_s)

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        output = super().process_message(msg, cell, cell_index)
        if output is None or output.get("output_type") != "stream":
            return output
        if len(cell.outputs) > 1 and cell.outputs[-2].get("name") == output["name"]:
            cell.outputs[-2]["text"] += cell.outputs.pop()["text"]
        if len(cell.outputs[-1]["text"]) > KEPT_PRINT:
            cell.outputs[-1]["text"] = shortened(cell.outputs[-1]["text"])
        return cell.outputs[-1]


class _Engine(Engine):
    """The engine that papermill calls; `execution` comes through papermill's keyword arguments."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, execution: Any = None, **keywords: Any
    ) -> None:
        execution.notebook = nb_man.nb
        started = nb_man.cell_start

        def cell_start(cell: Any, cell_index: int | None = None, **more: Any) -> None:
            execution.cell, execution.cell_began = cell, time.monotonic()
            started(cell, cell_index, **more)

        nb_man.cell_start = cell_start
        arguments = ["--IPKernelApp.capture_fd_output=False"]
        if STACK_SIGNAL is not None:
            arguments.append(f"--IPKernelApp.exec_lines={ON_STACK_SIGNAL}")
        client = _Client(
            nb_man, kernel_name=kernel_name, timeout=None, startup_timeout=START_LIMIT_S, extra_arguments=arguments
        )
        client.execution = execution
        with execution.log.open("ab") as log:
            client.execute(cwd=str(execution.run), env=kernel_environment(), stdout=log, stderr=log)


papermill_engines.register("rocmlab", _Engine)
# Its warnings (a parameter that its own parser does not see, a dead kernel) are wrong or said better here.
logging.getLogger("papermill").setLevel(logging.CRITICAL)


def kernel_environment() -> dict[str, str]:
    """Return the environment of a kernel: it can import this package, and leaves a stack in its log on a crash."""
    package = str(Path(__file__).resolve().parent.parent)
    before = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([package, before] if before else [package])
    return {**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", "PYTHONUTF8": "1"}


# ---- running


def execute(
    notebook: dict[str, Any],
    *,
    name: str,
    log: str,
    run: Path,
    parameters: dict[str, Any],
    cell_limit_s: float,
    notebook_limit_s: float,
    progress: Callable[[str | None, float], None] = lambda cell, seconds: None,
) -> Result:
    """Execute a notebook in the run folder `run` and keep the executed copy as `notebooks/<name>.ipynb`.

    Its kernel works in `run`; what it writes at C level goes to `logs/<log>`. Whatever the notebook does is a Result,
    never an exception. Raises OSError when the run folder cannot be written to begin with, and Interrupted (a
    KeyboardInterrupt) after having ended the kernel and kept the copy.
    """
    log_path = run / "logs" / log
    log_path.parent.mkdir(parents=True, exist_ok=True)
    log_path.unlink(missing_ok=True)
    execution = Execution(notebook, run, log_path)
    scratch = run / "notebooks" / f".{name}.partial.ipynb"
    scratch.parent.mkdir(parents=True, exist_ok=True)
    before = _oom_kills()
    thread = threading.Thread(target=_work, args=(execution, scratch, parameters), daemon=True)
    thread.start()
    interrupted = False
    try:
        _watch(thread, execution, cell_limit_s, notebook_limit_s, progress)
    except KeyboardInterrupt:
        interrupted = True
        execution.end("stopped by Ctrl-C")
        thread.join(GIVE_UP_S)
    execution.end_orphans()
    result = _result(execution, stopped=interrupted, oom=_oom_kills() > before)
    with contextlib.suppress(OSError):
        scratch.unlink(missing_ok=True)
    try:
        keep(execution, result, run / "notebooks" / f"{name}.ipynb")
    except OSError as error:
        why = f"its executed copy could not be written: {error.strerror or error}"
        result = replace(result, status="failed", message=why) if result.status == "ok" else result
    if interrupted:
        raise Interrupted(result)
    return result


class Interrupted(KeyboardInterrupt):
    """Ctrl-C while a notebook ran; `result` says where."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


def _work(execution: Execution, scratch: Path, parameters: dict[str, Any]) -> None:
    """Run papermill; in a thread, so that a kernel which cannot be killed does not hold the report."""
    try:
        execute_notebook(
            execution.notebook,
            str(scratch).replace("{", "{{").replace("}", "}}"),  # papermill formats its paths
            parameters=parameters,
            engine_name="rocmlab",
            kernel_name=KERNEL,
            language="python",
            progress_bar=False,
            execution=execution,
        )
    except BaseException as error:
        execution.error = error


def _watch(
    thread: threading.Thread,
    execution: Execution,
    cell_limit_s: float,
    notebook_limit_s: float,
    progress: Callable[[str | None, float], None],
) -> None:
    ended_at = family_at = 0.0
    while thread.is_alive():
        thread.join(0.1)
        now = time.monotonic()
        progress(_id(execution.cell), now - execution.began)
        if now - family_at > 5:
            execution.watch_family()
            family_at = now
        if ended_at:
            if now - ended_at > GIVE_UP_S:
                return
        elif now - execution.began > notebook_limit_s:
            execution.end("the notebook reached its limit", notebook_limit_s)
            ended_at = time.monotonic()
        elif execution.cell is not None and now - execution.cell_began > cell_limit_s:
            execution.end("the cell reached its limit", cell_limit_s)
            ended_at = time.monotonic()


def _id(cell: dict[str, Any] | None) -> str | None:
    return cell.get("id", "unnamed") if cell is not None else None


def _oom_kills() -> int:
    """Return how many processes the kernel's out-of-memory killer has ended since boot; 0 where nobody counts them."""
    try:
        text = Path("/proc/vmstat").read_text(encoding="utf-8")
    except OSError:
        return 0
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found.group(1)) if found else 0


# ---- judging how it ended


def _result(execution: Execution, *, stopped: bool, oom: bool) -> Result:
    seconds = round(time.monotonic() - execution.began, 3)
    code = execution.process.poll() if execution.process is not None else None
    failed = next((c for c in execution.notebook.cells if _papermill(c).get("status") == "failed"), None)
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
        return _at(
            execution, execution.cell, "failed", seconds, f"the executed copy could not be written: {error.strerror}"
        )
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
    return Result(status, seconds, _id(cell), number, message, code, by)


def _papermill(cell: dict[str, Any]) -> dict[str, Any]:
    return cell.get("metadata", {}).get("papermill") or {}


# ---- the executed copy


def keep(execution: Execution, result: Result, path: Path) -> None:
    """Write the executed copy: statuses repaired, a banner when something went wrong, valid JSON, nothing personal."""
    tidy_log(execution.log)
    notebook = json.loads(json.dumps(execution.notebook))
    notebook["cells"] = [c for c in notebook["cells"] if "papermill-error-cell-tag" not in notebooks.tags(c)]
    repair(notebook, result)
    metadata = notebook["metadata"]
    metadata["rocmlab"] = {"run": execution.run.resolve().name, **result.as_row()}
    metadata.setdefault("papermill", {}).update(input_path=path.name, output_path=f"notebooks/{path.name}")
    if result.status != "ok":
        notebook["cells"][:0] = banner(result, last_lines(execution.log))
    results.write_text(
        path, json.dumps(private(results.clean(notebook)), ensure_ascii=False, indent=1, allow_nan=False)
    )


def repair(notebook: dict[str, Any], result: Result) -> None:
    """Give every cell its true status: pending when it never began, failed where the notebook ended.

    A cell whose kernel died has no execution count, whatever the kernel had announced before.
    """
    for cell in notebook["cells"]:
        state = _papermill(cell)
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
