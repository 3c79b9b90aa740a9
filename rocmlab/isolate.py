"""Run this in a child process with a time limit, and say honestly how it ended.

`outcome = isolate.call("rocmlab.machine:describe", limit_s=60)`. A crash, a hang or a kill of the child is a
row, never the end of the notebook. The child's function gets plain JSON values and returns one.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from rocmlab import bytecode

KEPT_CHARACTERS = 20_000  # of each output stream; enough for a stack, small enough for a record

# Windows ends a process with an NTSTATUS; the names are those of Microsoft's ntstatus.h.
WINDOWS_CODES = {
    0xC0000005: ("CRASH", "access violation"),
    0xC0000135: ("DLL_NOT_FOUND", "a DLL needed at start was not found"),
    0xC0000139: ("DLL_NOT_FOUND", "a DLL lacks an expected entry point"),
    0xC0000142: ("DLL_NOT_FOUND", "a DLL failed to initialise"),
    0xC000001D: ("CRASH", "illegal instruction"),
    0xC0000094: ("CRASH", "integer division by zero"),
    0xC00000FD: ("CRASH", "stack overflow"),
    0xC0000374: ("CRASH", "heap corruption"),
    0xC0000409: ("CRASH", "stack buffer overrun or fail-fast abort"),
    0xC000013A: ("KILLED", "ended by Ctrl-C"),
}
# What the usual signals mean, beside their names.
SIGNALS = {
    "SIGSEGV": "segmentation fault",
    "SIGABRT": "abort, as the HIP runtime and rocBLAS end a process",
    "SIGILL": "illegal instruction",
    "SIGBUS": "bus error",
    "SIGFPE": "arithmetic fault",
}


@dataclass(frozen=True)
class Outcome:
    """How a child ended: status OK, ERROR, CRASH, KILLED, DLL_NOT_FOUND or TIMEOUT; `words` says it for a reader."""

    status: str
    words: str
    exit_code: int | None
    seconds: float
    result: Any
    error: str | None
    stdout: str
    stderr: str

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


def meaning(exit_code: int, system: str | None = None) -> tuple[str, str]:
    """Return (status, words) of a child's exit code: POSIX signals as -N or 128 + N, Windows codes signed or not.

    `system` is "windows" or "linux" where it is known: on Windows 139 is no signal.
    """
    if exit_code == 0:
        return "OK", "ended normally"
    unsigned = exit_code & 0xFFFFFFFF
    if unsigned in WINDOWS_CODES:
        status, words = WINDOWS_CODES[unsigned]
        return status, f"{words} (0x{unsigned:08X})"
    number = -exit_code if -65 < exit_code < 0 else exit_code - 128 if 128 < exit_code < 193 else 0
    if number and system != "windows":
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        if number == 9:
            return "KILLED", f"ended by {name}, most often the out-of-memory killer"
        if number in (2, 15):
            return "KILLED", f"ended by {name}"
        shell = " seen through a shell" if exit_code > 0 else ""
        said = f": {SIGNALS[name]}" if name in SIGNALS else ""
        return "CRASH", f"ended by {name}{shell}{said}"
    if unsigned >= 0xC0000000:
        return "CRASH", f"ended by Windows code 0x{unsigned:08X}"
    usual = ", as after an ordinary exception" if exit_code == 1 else ""  # what Python itself ends with
    return "ERROR", f"exit code {exit_code}{usual}"


def end_tree(process: psutil.Process | int) -> None:
    """Kill a process and all its descendants; those already gone are no error."""
    try:
        top = psutil.Process(process) if isinstance(process, int) else process
        family = [*top.children(recursive=True), top]
    except psutil.NoSuchProcess:
        return
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            one.kill()
    psutil.wait_procs(family, timeout=3)


def child_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a child: UTF-8, a stack on a crash, and not the notebook's drawing back end."""
    env = {**os.environ, "PYTHONUTF8": "1", "PYTHONFAULTHANDLER": "1", **bytecode.variables(), **(extra or {})}
    env.pop("MPLBACKEND", None)
    return env


def call(
    target: str,
    arguments: dict[str, Any] | None = None,
    *,
    limit_s: float,
    env: dict[str, str] | None = None,
    streams: Path | None = None,
) -> Outcome:
    """Call `"module:function"` with keyword arguments in a fresh Python; never raises for what the child does.

    `streams` names a folder in which the whole output is kept, as the files stdout and stderr.
    """
    with tempfile.TemporaryDirectory(prefix="rocmlab-", ignore_cleanup_errors=True) as folder:
        request, response = Path(folder, "request.json"), Path(folder, "response.json")
        request.write_text(json.dumps({"target": target, "arguments": arguments or {}}), encoding="utf-8")
        command = [sys.executable, "-m", "rocmlab.isolate", str(request), str(response)]
        kept = streams or Path(folder)
        code, seconds, stdout, stderr = run(command, limit_s=limit_s, env=child_environment(env), folder=kept)
        try:
            answer = json.loads(response.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            answer = {}
    if code is None:
        status, words = "TIMEOUT", f"still running after {limit_s:g} s, ended"
    elif answer.get("error"):
        status, words = "ERROR", answer["error"].splitlines()[-1]
    else:
        status, words = meaning(code)
    return Outcome(status, words, code, seconds, answer.get("result"), answer.get("error"), stdout, stderr)


def run(command: list[str], *, limit_s: float, env: dict[str, str], folder: Path) -> tuple[int | None, float, str, str]:
    """Run a command; return (exit code or None at the limit, seconds, stdout, stderr). Output goes by file, so that a
    child that floods or that leaves grandchildren holding its pipes cannot block us."""
    with Path(folder, "stdout").open("wb") as out, Path(folder, "stderr").open("wb") as err:
        began = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=env)
        try:
            code: int | None = process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            if process.poll() is None:
                end_tree(process.pid)
                # A process that the driver holds in the kernel cannot be ended; waiting for it would hang us too.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=1)
        seconds = time.monotonic() - began
    return code, seconds, _tail(Path(folder, "stdout")), _tail(Path(folder, "stderr"))


def record(run: Any, table: str, what: str, outcome: Outcome) -> dict[str, Any]:
    """Append how one measuring child ended to a table of a run (results.Run), and return it as a row to show."""
    row = {"what": what, "status": outcome.status, "words": outcome.words, "seconds": round(outcome.seconds, 1)}
    if "out of memory" in f"{outcome.error} {outcome.stderr}".lower() and outcome.status != "OK":
        row["status"] = "OUT_OF_MEMORY"
    run.append(table, row | {"stderr": outcome.stderr[-2000:] if outcome.status != "OK" else ""})
    return row


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - KEPT_CHARACTERS))
        return file.read().decode("utf-8", errors="replace")


def _serve(request_path: str, response_path: str) -> None:
    request = json.loads(Path(request_path).read_text(encoding="utf-8"))
    module, _, name = request["target"].partition(":")
    try:
        result = getattr(importlib.import_module(module), name)(**request["arguments"])
        answer = {"result": result}
    except Exception as error:
        import traceback

        traceback.print_exc()
        answer = {"error": f"{type(error).__name__}: {error}"}
    Path(response_path).write_text(json.dumps(answer), encoding="utf-8")
    if "error" in answer:
        sys.exit(1)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
