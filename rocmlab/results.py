"""Where everything measured is kept: one folder a run, append-only records, and nothing personal in them.

`run = results.start("03", run_dir)` in a notebook; `run.append("generation", rows)` as soon as a row exists;
`results.rows(run.path, "generation")` gives back the newest attempt, also when the last line was cut by a crash.
"""

from __future__ import annotations

import getpass
import json
import math
import os
import re
import socket
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rocmlab import METHOD_VERSION, redaction

BIRTH_SCHEMA = "rocmlab-birth-1"
INTERACTIVE = "interactive"
FOLDERS = ("records", "figures", "notebooks", "pages", "logs", "traces")
# Account and host names that are ordinary words: replacing them everywhere would damage the text.
ORDINARY_NAMES = {"root", "user", "admin", "administrator", "runner", "ubuntu", "debian", "test", "localhost", "home"}


def home() -> Path:
    """Return the checkout that holds notebooks/ and params/: above the package, else the current folder."""
    checkout = Path(__file__).resolve().parent.parent
    return checkout if (checkout / "notebooks").is_dir() else Path.cwd()


def now() -> str:
    """Return the time with its zone, to the second: 2026-12-01T05:53:37+00:00."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Run:
    """A run folder as one notebook sees it; `attempt` tells this execution's rows from those of earlier ones."""

    path: Path
    notebook: str
    attempt: str

    def append(self, table: str, rows: list[dict[str, Any]] | dict[str, Any]) -> None:
        """Append rows to `records/<table>.jsonl`, flushed to disk before returning."""
        rows = [rows] if isinstance(rows, dict) else rows
        stamp = {"run": self.path.name, "notebook": self.notebook, "attempt": self.attempt}
        lines = [line({**stamp, "method_version": METHOD_VERSION, "at": now(), **row}) for row in rows]
        file_path = self.path / "records" / f"{table}.jsonl"
        file_path.parent.mkdir(parents=True, exist_ok=True)
        with file_path.open("a", encoding="utf-8", newline="\n") as file:
            # A crash may have left half a line: start a fresh one, so that only the cut record is lost.
            file.write(("" if _ends_clean(file_path) else "\n") + "".join(lines))
            file.flush()
            os.fsync(file.fileno())

    def where(self) -> dict[str, Any]:
        """Return what a child process is given to append to this run: `Run(Path(run_dir), notebook, attempt)`."""
        return {"run_dir": str(self.path), "notebook": self.notebook, "attempt": self.attempt}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return this attempt's rows of a table, in the order of measurement."""
        return [row for row in rows(self.path, table) if row.get("attempt") == self.attempt]


def start(notebook: str, run_dir: str = "") -> Run:
    """Open the run folder for one notebook; without `run_dir` (JupyterLab) it is `outputs/interactive`."""
    path = Path(run_dir).resolve() if run_dir else home() / "outputs" / INTERACTIVE
    for folder in FOLDERS:
        (path / folder).mkdir(parents=True, exist_ok=True)
    return Run(path, notebook, f"{time.time_ns()}")


def _ends_clean(path: Path) -> bool:
    if not path.exists() or path.stat().st_size == 0:
        return True
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def line(record: dict[str, Any]) -> str:
    """Return one record as a line of valid JSON: redacted, NaN and infinities as null with a reason."""
    return json.dumps(redact(clean(record)), ensure_ascii=False, allow_nan=False) + "\n"


def clean(value: Any) -> Any:
    """Replace NaN and infinities by null, with `<key>_reason` beside them where they stand in an object."""
    if isinstance(value, dict):
        cleaned: dict[str, Any] = {}
        for key, item in value.items():
            cleaned[str(key)] = clean(item)
            if isinstance(item, float) and not math.isfinite(item):
                cleaned[f"{key}_reason"] = f"was {item}, not a number"
        return cleaned
    if isinstance(value, (list, tuple)):
        return [clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def parse_lines(text: str) -> tuple[list[dict[str, Any]], int]:
    """Return (records, damaged lines) of JSON-lines text; a line that is not a JSON object is counted, never raised."""
    records, damaged = [], 0
    for raw in text.splitlines():
        if not raw.strip():
            continue
        try:
            record = json.loads(raw)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            records.append(record)
        else:
            damaged += 1
    return records, damaged


def rows(run: Path, table: str) -> list[dict[str, Any]]:
    """Return the newest attempt's rows of a table; [] when it was never measured."""
    path = run / "records" / f"{table}.jsonl"
    if not path.exists():
        return []
    records, _ = parse_lines(path.read_text(encoding="utf-8", errors="replace"))
    newest = max((r.get("attempt", "") for r in records), default="")
    return [r for r in records if r.get("attempt", "") == newest]


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all; retried because virus scanners on Windows hold fresh files for a moment."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    scratch.write_text(text, encoding="utf-8", newline="\n")
    for wait_s in (0.05, 0.2, 1.0, None):
        try:
            scratch.replace(path)
            return
        except PermissionError:
            if wait_s is None:
                scratch.unlink(missing_ok=True)
                raise
            time.sleep(wait_s)


def write_json(path: Path, value: Any) -> None:
    """Write redacted, valid JSON atomically."""
    write_text(path, json.dumps(redact(clean(value)), ensure_ascii=False, indent=1, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Return a JSON file's content, or None when it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def birth(run: Path) -> dict[str, Any]:
    """Return the run's birth certificate (`run.json`), {} when it has none."""
    found = read_json(run / "run.json")
    return found if isinstance(found, dict) else {}


def _patterns() -> list[tuple[re.Pattern[str], str]]:
    user, host, folder = _quiet(getpass.getuser), _quiet(socket.gethostname), _quiet(lambda: str(Path.home()))
    found: list[tuple[re.Pattern[str], str]] = []
    if len(folder) > 3:
        forms = {folder, folder.replace("\\", "/"), folder.replace("\\", "\\\\")}
        found.append((re.compile("|".join(re.escape(f) for f in sorted(forms)) + r"(?![\w-])"), "~"))
    # Anybody's home folder, also one that came in with a tool's output.
    found.append((re.compile(r"(?i)([a-z]:[\\/]+users[\\/]+|/home/|/Users/)[^\\/\s\"':;,]+"), r"\1<user>"))
    for name, mark in ((user, "<user>"), (host, "<host>"), (host.split(".")[0], "<host>")):
        if len(name) > 2 and name.lower() not in ORDINARY_NAMES:
            found.append((re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])"), mark))
    return [*found, *redaction.SECRETS]


def _quiet(ask: Any) -> str:
    try:
        return ask() or ""
    except (OSError, KeyError, RuntimeError, ImportError):
        return ""


def redact(value: Any) -> Any:
    """Replace user, host, home folders, tokens, serials and MACs in every string of a value; keys and numbers stay."""
    return _redacted(value, _patterns())


def _redacted(value: Any, patterns: list[tuple[re.Pattern[str], str]]) -> Any:
    if isinstance(value, str):
        for pattern, mark in patterns:
            value = pattern.sub(mark, value)
        return value
    if isinstance(value, dict):
        return {key: redaction.private(key, item) or _redacted(item, patterns) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redacted(item, patterns) for item in value]
    return value
