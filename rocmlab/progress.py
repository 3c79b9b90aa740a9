"""What is running, for how long, and how long will it take? One line rewritten on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from typing import TextIO

REWRITE_S = 0.5


def duration(seconds: float) -> str:
    """Return 42 s, 3 min 05 s or 1 h 02 min."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(count: float) -> str:
    """Return bytes in MB or GB (10^6, 10^9), as file managers show them."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def printable(text: str, stream: TextIO) -> str:
    """Return text that this console can print: what its encoding lacks, as in a path, becomes an escape."""
    encoding = stream.encoding or "ascii"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def say(text: str) -> None:
    """Print one line for the person at the console."""
    print(printable(text, sys.stdout), flush=True)


class Progress:
    """The moving line of one notebook."""

    def __init__(self, label: str, estimate_s: float, stream: TextIO | None = None) -> None:
        self.label, self.estimate_s = label, estimate_s
        self.stream = stream or sys.stdout
        self.live = self.stream.isatty()
        self.cell: str | None = ""  # nothing shown yet
        self.written_at = 0.0
        self.width = 0

    def __call__(self, cell: str | None, seconds: float) -> None:
        now = time.monotonic()
        if self.live:
            if cell == self.cell and now - self.written_at < REWRITE_S:
                return
            self._write(self._line(cell, seconds), "")
        elif cell != self.cell:
            self._write(self._line(cell, seconds), "\n")
        self.cell, self.written_at = cell, now

    def _line(self, cell: str | None, seconds: float) -> str:
        return f"{self.label}  {cell or 'starting'}  {duration(seconds)} of about {duration(self.estimate_s)}"

    def done(self, text: str) -> None:
        """Replace the moving line by the last one."""
        self._write(text, "\n")

    def _write(self, text: str, end: str) -> None:
        text = printable(text, self.stream)
        start = "\r" if self.live else ""
        self.stream.write(f"{start}{text.ljust(self.width)}{end}" if self.live else f"{text}{end}")
        self.width = 0 if end else len(text)
        self.stream.flush()
