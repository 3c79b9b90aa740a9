"""Run one notebook through papermill and say honestly how it ended.

Bare papermill records a crashed or timed-out notebook as completed. Here the kernel is a process of our own choosing
(this interpreter), its C-level output goes to a log, its exit status is asked for, a watchdog ends its whole process
tree at a limit, and the executed copy says in its first cell what happened.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import psutil
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine, NotebookExecutionManager, papermill_engines
from papermill.execute import execute_notebook

from rocmlab import bytecode, ending, executed, isolate
from rocmlab.ending import Result
from rocmlab.parameters import INJECTED_TAG
from rocmlab.readers import notebooks

KERNEL = "python3"
START_LIMIT_S = 120  # the first import of a kernel on a slow disk behind a virus scanner
LAST_WORDS_S = 1.0  # for the stack of a hanging kernel to reach its log
GIVE_UP_S = 15.0  # a process that a driver holds cannot be killed; the report goes on without it
# A hanging kernel writes the Python stack of all its threads to its log when it gets this signal, also while it is
# inside C code; `faulthandler` has no counterpart on Windows.
STACK_SIGNAL = getattr(signal, "SIGUSR1", None)
ON_STACK_SIGNAL = '__import__("faulthandler").register(__import__("signal").SIGUSR1, file=__import__("sys").__stderr__)'


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
        if len(cell.outputs[-1]["text"]) > executed.KEPT_PRINT:
            cell.outputs[-1]["text"] = executed.shortened(cell.outputs[-1]["text"])
        return cell.outputs[-1]


class _Engine(Engine):
    """The engine that papermill calls; `execution` comes through papermill's keyword arguments."""

    @classmethod
    def execute_managed_notebook(
        cls, nb_man: NotebookExecutionManager, kernel_name: str, execution: Any = None, **keywords: Any
    ) -> None:
        execution.notebook = nb_man.nb
        for cell in nb_man.nb.cells:
            if INJECTED_TAG in notebooks.tags(cell):
                cell["id"] = "given"  # papermill draws a random one; ids here are words
        started = nb_man.cell_start

        def cell_start(cell: Any, cell_index: int | None = None, **more: Any) -> None:
            execution.cell_began = time.monotonic()
            if cell.cell_type == "code":
                execution.cell = cell
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
    own = {"PYTHONPATH": path, "PYTHONFAULTHANDLER": "1", "PYTHONUTF8": "1"}
    return {**os.environ, **own, **bytecode.variables()}


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
    before = ending.oom_kills()
    thread = threading.Thread(target=_work, args=(execution, scratch, parameters), daemon=True)
    interrupted = False
    try:
        thread.start()
        _watch(thread, execution, cell_limit_s, notebook_limit_s, progress)
    except KeyboardInterrupt:
        interrupted = True
        with _deaf():
            execution.end("stopped by Ctrl-C")
            thread.join(GIVE_UP_S)
    execution.end_orphans()
    result = ending.judge(execution, stopped=interrupted, oom=ending.oom_kills() > before)
    with contextlib.suppress(OSError):
        scratch.unlink(missing_ok=True)
    try:
        executed.keep(execution.notebook, result, run / "notebooks" / f"{name}.ipynb", run.resolve().name, log_path)
    except OSError as error:
        why = f"its executed copy could not be written: {error.strerror or error}"
        result = replace(result, status="failed", message=why) if result.status == "ok" else result
    if interrupted:
        raise Interrupted(result)
    return result


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Do not listen to a second, impatient Ctrl-C while the kernel is being ended: it would be left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


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
        progress(ending.name(execution.cell), now - execution.began)
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
