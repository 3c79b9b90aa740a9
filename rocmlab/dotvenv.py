"""The folder `.venv`: what it holds, and pip in it with the output in a log. Standard library only.

`.venv/rocmlab.json` is the note that one set-up leaves to the next; its `state` is "working" until all is done.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

from rocmlab import interpreter, wheels

COMING = "coming"  # as `ours` in the note: pip is just bringing it, so whatever lies there is no loss


class Stop(Exception):
    """The set-up cannot go on; the text says what was seen and what to do."""


class Venv:
    """`<root>/.venv`, which need not exist yet."""

    def __init__(self, root: Path) -> None:
        self.root, self.path = root, root / ".venv"
        self.python = interpreter.inside(self.path)
        self.log = self.path / "setup.log"
        self.constraints = self.path / "constraints.txt"
        try:
            self.note: dict[str, Any] = json.loads((self.path / "rocmlab.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self.note = {}

    def torch(self) -> str:
        """Return the version of the torch inside, "" when there is none."""
        return interpreter.torch_on_disk(self.path)

    def foreign(self) -> str:
        """Return the version of a torch inside that somebody else than the set-up put there, "" when there is none."""
        ours = self.note.get("ours", "")
        return "" if ours in (COMING, self.torch()) else self.torch()

    def has(self, package: str) -> bool:
        pattern = f"{package.replace('-', '_')}-*.dist-info"
        return any(any(folder.glob(pattern)) for folder in interpreter.packages(self.path))

    def shown(self, path: Path) -> Path:
        return path.relative_to(self.root) if path.is_relative_to(self.root) else path

    def write(self, **changes: Any) -> None:
        """Change entries of the note, whole or not at all."""
        self.note = {**self.note, **changes}
        scratch = self.path / "rocmlab.json.tmp"
        scratch.write_text(json.dumps(self.note, indent=1), encoding="utf-8")
        scratch.replace(self.path / "rocmlab.json")

    def make(self, goal: dict[str, Any]) -> None:
        """Make it, anew if need be, on the Python that the goal names."""
        if self.path.exists():
            print(f"  {self.path.name} was cut short, moved or stands on another Python: made anew", flush=True)
            shutil.rmtree(self.path)
        self.path.mkdir()
        self.note = {}
        self.write(**goal, state="working")
        if self.child([goal["python"], "-m", "venv", self.path]) != 0:
            text = self.log.read_text(encoding="utf-8", errors="replace")
            hint = " On Debian and Ubuntu: sudo apt install python3-venv." if "ensurepip" in text else ""
            raise Stop(f"{goal['python']} could not make a virtual environment.{hint} The log: {self.log}")
        self.constraints.write_text("", encoding="utf-8")
        # The pip that comes with Python 3.11 needs three times as long to find out what is wanted.
        self.pip("newest pip", "install", "--upgrade", "pip", must=False)

    def pip(self, what: str, verb: str, *words: str, must: bool = True, env: dict[str, str] | None = None) -> bool:
        """Run pip in .venv, its output into the log; one line on the console, with a dot every 10 s."""
        print(f"  {what} ", end="", flush=True)
        began = time.monotonic()
        limits = ["--constraint", self.constraints] if verb == "install" else []
        code = self.child([self.python, "-m", "pip", verb, *limits, *words], dots=True, env=env)
        print(f" {time.monotonic() - began:.0f} s" if code == 0 else " failed", flush=True)
        if code and must:
            text = self.log.read_text(encoding="utf-8", errors="replace")[-20_000:].rpartition("\n$ ")[2]
            reason = wheels.explain(text, self.constraints.read_text(encoding="utf-8").strip())
            raise Stop(f"{what}: {reason}. The log: {self.log}")
        return code == 0

    def child(self, command: list[Any], *, dots: bool = False, env: dict[str, str] | None = None) -> int:
        """Run a command in the checkout, its output appended to the log; return its exit code."""
        words = [str(word) for word in command]
        with self.log.open("ab") as log:
            log.write(f"\n$ {' '.join(words)}\n".encode())
            log.flush()
            env = env or interpreter.environment()
            process = subprocess.Popen(
                words, cwd=self.root, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
            try:
                while True:
                    try:
                        return process.wait(timeout=10)
                    except subprocess.TimeoutExpired:
                        print("." if dots else "", end="", flush=True)
            finally:
                process.kill()  # does nothing when it has ended; it must not go on after Ctrl-C
                process.wait()

    def output(self, *words: object) -> str:
        """Return what the Python in .venv prints; "" when it fails."""
        command = [str(word) for word in (self.python, *words)]
        done = subprocess.run(command, env=interpreter.environment(), capture_output=True, timeout=120)
        return done.stdout.decode("utf-8", errors="replace")
