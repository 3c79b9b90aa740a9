"""Where does a run go, may it go on from an earlier one, and is another report writing there?"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from rocmlab import METHOD_VERSION, results
from rocmlab.cli import UsageError
from rocmlab.progress import say

FOLDER_NAME = re.compile(r"\w([\w.+ -]*[\w+-])?")
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?|interactive|reference")


def folder_name(arguments: argparse.Namespace, subject: dict[str, Any]) -> str:
    """Return the name of the run folder: the subject's arch, what else was asked for, and each params file's stem."""
    if arguments.name:
        if not FOLDER_NAME.fullmatch(arguments.name) or RESERVED.fullmatch(arguments.name):
            raise UsageError(f"--name {arguments.name}: use letters, digits, dots, dashes; a plain folder name.")
        return str(arguments.name)
    name = str(subject["arch"])
    if arguments.arch not in ("auto", "cpu") and subject["device"] == "cpu":
        name += f"-for-{arguments.arch}"
    stems = [re.sub(r"[^\w.-]+", "-", Path(file).stem).strip("-.") for file in arguments.params]
    return "-".join([name, *(stem for stem in stems if stem)])


def resumable(run: Path, fresh: bool) -> dict[str, Any]:
    """Return the certificate to go on from, {} for a new run. Raises UsageError for one of another method version."""
    if fresh or not run.exists():
        return {}
    earlier = results.birth(run)
    ways = "use --fresh to move it aside and measure anew, or --name for another folder."
    if not earlier and (run / "run.json").exists():
        raise UsageError(f"{run / 'run.json'} is damaged, so nothing there can be gone on from; {ways}")
    version = earlier.get("method_version", METHOD_VERSION)
    if version != METHOD_VERSION:
        raise UsageError(
            f"{run} was measured by method version {version}, this is version {METHOD_VERSION}: "
            f"its numbers do not mean the same; {ways}"
        )
    return earlier


@contextlib.contextmanager
def locked(run: Path, fresh: bool) -> Iterator[None]:
    """Hold the run folder for this process. Raises UsageError when another run has it or it cannot be written."""
    lock = run / ".lock"
    try:
        _refuse_if_held(lock)
        if fresh and run.exists():
            aside = run.with_name(f"{run.name}-before-{datetime.now(UTC):%Y%m%d-%H%M%S}")
            run.rename(aside)
            say(f"The earlier run was moved to {aside.name}.")
        for folder in results.FOLDERS:
            (run / folder).mkdir(parents=True, exist_ok=True)
        lock.write_text(f"{os.getpid()} {psutil.Process().create_time()}", encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot write in {run}: {error.strerror or error}. Make it writable, or run from a folder of your own."
        ) from None
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()


def _refuse_if_held(lock: Path) -> None:
    try:
        pid, created = lock.read_text(encoding="utf-8").split()
        other = psutil.Process(int(pid))
        held = other.is_running() and abs(other.create_time() - float(created)) < 2
    except (FileNotFoundError, NotADirectoryError, ValueError, psutil.Error):
        return
    if held and int(pid) != os.getpid():
        raise UsageError(f"another report (process {pid}) is writing in {lock.parent}; wait for it, or use --name.")
