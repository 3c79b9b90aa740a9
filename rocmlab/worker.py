"""One child process that answers many requests, and its keeper: a crash, a hang or a kill costs one request.

`with worker.Worker() as keeper: outcome = keeper.call("module:function", {...}, limit_s=30)`. The answer is an
isolate.Outcome, as for a child of its own; after a bad end the next call starts a new worker. Starting Python and torch
once for hundreds of operators is what makes isolation affordable.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from rocmlab import isolate
from rocmlab.isolate import Outcome

START_LIMIT_S = 180  # Python, torch and a driver, from a cold disk


class Worker:
    """Keeps one worker alive. `started` counts workers so far; `first` is called in each new one before anything else.

    `first` is `("module:function", {...})`; a worker whose first call fails is no worker, and call() hands its outcome
    back. Nothing here raises for what the worker does.
    """

    def __init__(
        self,
        *,
        env: dict[str, str] | None = None,
        first: tuple[str, dict[str, Any]] | None = None,
        start_limit_s: float = START_LIMIT_S,
    ) -> None:
        self.env, self.first, self.start_limit_s = env, first, start_limit_s
        self.started, self._asked = 0, 0
        self.begun: Outcome | None = None  # how the first call of the present worker ended
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._folder = tempfile.TemporaryDirectory(prefix="rocmlab-", ignore_cleanup_errors=True)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.retire()
        self._folder.cleanup()

    def call(self, target: str, arguments: dict[str, Any] | None = None, *, limit_s: float) -> Outcome:
        """Call `"module:function"` with keyword arguments (JSON values) in the worker; start one if there is none."""
        self.gone()  # it may have ended while nothing was asked: this request has not been tried yet
        if self._process is None:
            failed = self._start()
            if failed:
                return failed
        return self._ask(target, arguments or {}, limit_s)

    def retire(self) -> None:
        """End the worker; the next call starts a fresh one (after a leak, or an error that stays in the driver)."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        if process.poll() is None:
            isolate.end_tree(process.pid)
            # A process that the driver holds in the kernel cannot be ended; waiting for it would hang us too.
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)

    def gone(self) -> str | None:
        """Return how the worker ended since its last answer, in words; None where it lives. The next call starts one.

        `isolate.meaning` names signals and codes.
        """
        code = self._process.poll() if self._process is not None else None
        if code is None:
            return None
        self.retire()
        return isolate.meaning(code)[1] if code else "ended without a word (exit code 0)"

    def _start(self) -> Outcome | None:
        """Start a worker; return how its first call ended when that was badly."""
        self.started += 1
        self._answers = queue.SimpleQueue()
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rocmlab.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=isolate.child_environment(self.env),
            )
        threading.Thread(target=_listen, args=(self._process, self._answers), daemon=True).start()
        if self.first is None:
            return None
        self.begun = self._ask(*self.first, self.start_limit_s)
        if self.begun.status == "OK":
            return None
        self.retire()
        return self.begun

    @property
    def _errors(self) -> Path:
        return Path(self._folder.name, "stderr")

    def _ask(self, target: str, arguments: dict[str, Any], limit_s: float) -> Outcome:
        process = self._process
        assert process is not None and process.stdin is not None
        offset, began = self._errors.stat().st_size, time.monotonic()
        self._asked += 1
        line = json.dumps({"id": self._asked, "target": target, "arguments": arguments}) + "\n"
        try:
            process.stdin.write(line.encode("utf-8"))
            process.stdin.flush()
            answer = self._answer(began + limit_s)
        except queue.Empty:
            return self._ended("TIMEOUT", f"still running after {limit_s:g} s, ended", None, began, offset)
        except OSError:  # it died between two requests
            answer = None
        if answer is None:
            code = self._exit_code()
            status, words = isolate.meaning(code) if code else ("CRASH", "ended without an answer (exit code 0)")
            return self._ended(status, words, code, began, offset)
        error = answer.get("error")
        status, words = ("ERROR", error.splitlines()[-1]) if error else ("OK", "ended normally")
        seconds = time.monotonic() - began
        return Outcome(status, words, None, seconds, answer.get("result"), error, "", self._said(offset))

    def _answer(self, ends: float) -> dict[str, Any] | None:
        """Wait for the answer to the last request, passing over lines that are none: what Python's own start may print
        before the worker has put its streams apart. None when the worker has ended."""
        while True:
            line = self._answers.get(timeout=max(0.0, ends - time.monotonic()))
            if line is None:
                return None
            answer = _whole(line)
            if answer is not None and answer.get("id") == self._asked:
                return answer

    def _exit_code(self) -> int:
        try:
            return self._process.wait(timeout=10)  # type: ignore[union-attr]
        except subprocess.TimeoutExpired:  # it closed its answers but lives on
            return 0

    def _ended(self, status: str, words: str, code: int | None, began: float, offset: int) -> Outcome:
        process, self._process = self._process, None
        seconds = time.monotonic() - began
        if process is not None and process.poll() is None:
            isolate.end_tree(process.pid)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1)
        if process is not None and process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        return Outcome(status, words, code, seconds, None, None, "", self._said(offset))

    def _said(self, offset: int) -> str:
        """Return what the worker and its libraries wrote since an offset, the end of it where that is much."""
        with self._errors.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(offset, size - isolate.KEPT_CHARACTERS))
            return file.read().decode("utf-8", errors="replace")


def _whole(line: bytes) -> dict[str, Any] | None:
    """Return what a line says, None where it is no object, as when the worker died in the middle of it."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _listen(process: subprocess.Popen[bytes], answers: queue.SimpleQueue[bytes | None]) -> None:
    """Hand on each line of answers; None at the end."""
    with contextlib.suppress(OSError, ValueError):
        for line in process.stdout:  # type: ignore[union-attr]
            answers.put(line)
    answers.put(None)


# ---- inside the worker


def _streams() -> tuple[Any, Any]:
    """Return (requests, answers) on private descriptors; what libraries print goes to stderr, and stdin is empty.

    Private ones are not inherited, so a grandchild that outlives the worker cannot keep the keeper waiting.
    """
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8", newline="\n")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, answers


def _no_dialogs() -> None:
    """Let a crash on Windows end the process at once instead of asking a person."""
    if os.name == "nt":
        import ctypes

        ctypes.windll.kernel32.SetErrorMode(0x8003)  # type: ignore[attr-defined]  # SEM_FAILCRITICALERRORS and others


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    module, _, name = request["target"].partition(":")
    try:
        return {"result": getattr(importlib.import_module(module), name)(**request["arguments"])}
    except Exception as error:
        import traceback

        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}"}


def _serve() -> None:
    _no_dialogs()
    requests, answers = _streams()
    for line in requests:
        request = json.loads(line)
        answers.write(json.dumps({"id": request["id"], **_answer(request)}) + "\n")
        answers.flush()


if __name__ == "__main__":
    _serve()
