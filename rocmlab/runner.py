"""`rocmlab report`: run the notebooks that have no result yet, each in its own kernel, and build the page.

Everything that can be refused is refused before the first notebook; whatever a notebook does later, the others still
run, what was measured stays, and `run.json` says how each one ended.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil

from rocmlab import METHOD_VERSION, birth, device, findings, models, parameters, results
from rocmlab.cli import UsageError
from rocmlab.progress import Progress, duration, say, size

COMPLETE = ("ok", "warn")
ALWAYS = ("12", "13")  # they only read what the others measured
CELL_LIMIT_S, NOTEBOOK_LIMIT_S = 900.0, 1800.0
# The runner's own parameters: a params file and --set may give them beside those of the notebooks.
LIMITS = {
    "cell_limit_s": parameters.Parameter("cell_limit_s", None, CELL_LIMIT_S),
    "notebook_limit_s": parameters.Parameter("notebook_limit_s", None, NOTEBOOK_LIMIT_S),
}
MINUTES_UNSAID = 1.0
DISK_PER_NOTEBOOK = 20_000_000  # bytes: executed copy, pages, figures and records of one notebook, generously
DISK_LEFT = 1_000_000
TITLE_MINUTES = re.compile(r"(\d+(?:\.\d+)?)(?:\s*/\s*(\d+(?:\.\d+)?))?\s*min", re.IGNORECASE)
ARCH_NAME = re.compile(r"gfx[0-9a-f]{3,4}|sm_\d{2,3}")
FOLDER_NAME = re.compile(r"\w([\w.+ -]*[\w+-])?")
RESERVED = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d)(\..*)?|interactive|reference")


@dataclass(frozen=True)
class Book:
    """One notebook of the house, as committed."""

    number: str
    stem: str
    content: dict[str, Any]
    declared: dict[str, parameters.Parameter]
    tagged: bool


def report(arguments: argparse.Namespace) -> int:
    """Run and report; return 0, or 1 when a notebook ended badly (with --strict: or something is warn or broken).

    Raises UsageError (exit 2) for whatever cannot be used, before anything runs; KeyboardInterrupt after Ctrl-C.
    """
    _stop_on_terminate()
    _engine()
    house = discover(results.home() / "notebooks")
    books = select(house, arguments.only, arguments.first)
    layers = asked_for(arguments, house, books)
    say("Looking at this machine ...")
    snapshot = device.snapshot()
    subject, notice = choose(snapshot, arguments.arch)
    layers = of_the_card(subject, house) + layers
    values = {book.number: parameters.merge(book.declared, layers) for book in books}
    limits = parameters.merge(LIMITS, layers)[0]
    run = results.home() / "outputs" / folder_name(arguments, subject)
    earlier = resumable(run, arguments.fresh)
    try:
        with locked(run, arguments.fresh):
            facts = birth.certificate(run.name, arguments.arch, subject, snapshot, earlier)
            facts["findings"] = [notice] if notice else []
            bad = _run_all(run, facts, books, values, limits)
            bad |= _page(run, arguments.lang, arguments.strict)
    except OSError as error:
        say(_lost(run, error))
        return 1
    return 1 if bad or (arguments.strict and notice) else 0


def _stop_on_terminate() -> None:
    """A polite end (SIGTERM) is treated as Ctrl-C, so that no kernel is left behind."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)


def _engine() -> ModuleType:
    """Return the module that runs notebooks; its packages are an extra, so they may be missing."""
    try:
        from rocmlab import engine
    except ImportError as error:
        raise UsageError(f"what runs notebooks is not installed ({error}): pip install -e .[notebooks]") from None
    return engine


# ---- what to run


def discover(folder: Path) -> dict[str, Book | str]:
    """Return the notebooks `NN_topic.ipynb` by number, in order; one that cannot be read is the sentence saying so."""
    paths = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise UsageError(f"there are no notebooks in {folder}; run this from a checkout of rocmlab.")
    return {path.name[:2]: _book(path) for path in paths}


def _book(path: Path) -> Book | str:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
            return f"{path.name} is JSON but not a notebook; restore it from the repository."
        declared = parameters.declared(content, path.name)
    except UsageError as error:
        return str(error)
    except (ValueError, RecursionError) as error:
        return f"{path.name} is not a notebook (not JSON: {error}); restore it from the repository."
    except OSError as error:
        return f"cannot open {path.name}: {error.strerror or error}."
    return Book(path.name[:2], path.stem, content, declared, parameters.cell_of(content) is not None)


def select(house: dict[str, Book | str], only: str | None, first: str | None) -> list[Book]:
    """Return the notebooks asked for, in order. Raises UsageError for a number that is not there or a damaged file."""
    wanted = [number.strip().zfill(2) for number in (only or "").split(",") if number.strip()]
    start = first.strip().zfill(2) if first else ""
    for number in [*wanted, *([start] if start else [])]:
        if number not in house:
            raise UsageError(f"there is no notebook {number}; there are {', '.join(house)}.")
    chosen = [found for number, found in house.items() if number >= start and (not wanted or number in wanted)]
    for found in chosen:
        if isinstance(found, str):
            raise UsageError(found)
    if not chosen:
        raise UsageError(f"--only {only} and --from {first} leave no notebook to run.")
    return [found for found in chosen if isinstance(found, Book)]


def asked_for(arguments: argparse.Namespace, house: dict[str, Book | str], books: list[Book]) -> list[parameters.Layer]:
    """Read --params and --set, and refuse what no notebook can take before the machine is looked at."""
    layers = [parameters.from_file(_params_path(name)) for name in arguments.params]
    if arguments.settings:
        layers.append(parameters.from_settings(arguments.settings))
    if layers:
        for book in books:
            if not book.tagged:
                said = findings.say(findings.finding("PARAMETERS_TAG_MISSING", file=f"{book.stem}.ipynb"))
                raise UsageError(f"{said['code']}: {said['sentence']} {said['advice']}")
    parameters.refuse_unknown(layers, _declared(house))
    for book in books:
        parameters.merge(book.declared, layers)
    limits = parameters.merge(LIMITS, layers)[0]
    for name, value in limits.items():
        if value <= 0:
            raise UsageError(f"{name} must be above 0 seconds, not {value:g}.")
    return layers


def _params_path(name: str) -> Path:
    path = Path(name)
    beside = results.home() / "params" / path.name
    return path if path.exists() or path.parent != Path() or not beside.exists() else beside


def _declared(house: dict[str, Book | str]) -> dict[str, dict[str, parameters.Parameter]]:
    found = {number: book.declared for number, book in house.items() if isinstance(book, Book)}
    return {**found, "limits": LIMITS}


def of_the_card(subject: dict[str, Any], house: dict[str, Book | str]) -> list[parameters.Layer]:
    """Return the house's own overrides for the device under study, from params/<arch>.yaml, where there is one."""
    path = results.home() / "params" / f"{subject['arch']}.yaml"
    if not path.is_file():
        return []
    layer = parameters.from_file(path)
    parameters.refuse_unknown([layer], _declared(house))
    return [layer]


# ---- on what


def choose(snapshot: dict[str, Any], asked: str) -> tuple[dict[str, Any], findings.Finding | None]:
    """Return (device under study, notice or None). Raises UsageError when another accelerator is there instead."""
    if asked not in ("auto", "cpu") and not ARCH_NAME.fullmatch(asked):
        hint = (
            f"; did you mean gfx{asked}?" if ARCH_NAME.fullmatch(f"gfx{asked}") else ", such as gfx1032, cpu or auto."
        )
        raise UsageError(f"--arch {asked}: not the name of a target{hint}")
    subject = device.subject(snapshot, asked)
    if asked in ("auto", "cpu") or subject["device"] != "cpu":
        return subject, None
    present = {device.arch_of(one): one.get("name") for one in snapshot.get("devices") or []}
    if present and asked not in present:
        seen = ", ".join(f"{arch} ({name})" for arch, name in present.items())
        raise UsageError(f"{asked} was asked for, but this machine has {seen}: leave --arch out, or name that one.")
    variant = "no_launch" if asked in present else None
    return subject, findings.finding("ARCH_ABSENT", variant=variant, asked=asked, cpu=subject["name"])


# ---- where


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


# ---- running


def _run_all(
    run: Path,
    facts: dict[str, Any],
    books: list[Book],
    values: dict[str, tuple[dict[str, Any], dict[str, Any]]],
    limits: dict[str, float],
) -> bool:
    """Run what has no complete result of the same key; return True when a notebook ended badly."""
    engine = _engine()
    earlier = {number: dict(row) for number, row in facts["notebooks"].items()}
    keys = {book.number: _key(book, values[book.number][0], facts) for book in books}
    todo = [book for book in books if not _complete(run, book, earlier.get(book.number, {}), keys[book.number])]
    estimates = {book.number: estimate(book, facts["subject"], earlier.get(book.number, {})) for book in books}
    announce(run, facts, books, todo, estimates)
    for book in todo:
        facts["parameters"][book.number] = values[book.number][0]
        facts["notebooks"][book.number] = {"status": "skipped", "message": "it has not been run yet", "seconds": None}
    write(run, facts)
    for place, book in enumerate(todo):
        progress = Progress(f"[{place + 1}/{len(todo)}] {book.stem}", estimates[book.number])
        given = _given(book, values[book.number][1], facts["subject"])
        try:
            ended = engine.execute(
                book.content,
                name=book.stem,
                log=f"{book.number}.log",
                run=run,
                parameters=given,
                progress=progress,
                **limits,
            )
        except engine.Interrupted as stop:
            facts["notebooks"][book.number] = _row(stop.result, keys[book.number])
            for left in todo[place + 1 :]:
                facts["notebooks"][left.number]["message"] = "the report was stopped before it began"
            write(run, facts, ended=True)
            progress.done(f"{book.stem}  stopped")
            say(f"Stopped. What was measured is in {run}; the same command goes on from there.")
            raise KeyboardInterrupt from None
        facts["notebooks"][book.number] = _row(ended, keys[book.number])
        progress.done(line(book, facts["notebooks"][book.number]))
        write(run, facts)
        if shutil.disk_usage(run).free < DISK_LEFT:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    write(run, facts, ended=True)
    say("")
    for book in books:
        say(line(book, facts["notebooks"][book.number], kept=book not in todo))
    return any(facts["notebooks"][book.number]["status"] not in COMPLETE for book in books)


def _row(ended: Any, key: str) -> dict[str, Any]:
    return {**ended.as_row(), "ended": results.now(), "key": key}


def _key(book: Book, values: dict[str, Any], facts: dict[str, Any]) -> str:
    return birth.key(values, facts["subject"], facts["snapshot"], _model(values, facts["subject"]))


def _model(values: dict[str, Any], subject: dict[str, Any]) -> str | None:
    """Return which model these values stand for on this device; None for a notebook without one."""
    if "model" not in values:
        return None
    hub_model = {"hub_model": values["hub_model"]} if values.get("hub_model") else {}
    settled = models.settle(str(values["model"]), accelerator=subject["device"] != "cpu", **hub_model)
    return f"speed: {settled.speed}, text: {settled.text}"


def _complete(run: Path, book: Book, row: dict[str, Any], key: str) -> bool:
    executed = run / "notebooks" / f"{book.stem}.ipynb"
    equal = row.get("status") in COMPLETE and row.get("key") == key and executed.exists()
    return equal and book.number not in ALWAYS


def _given(book: Book, overridden: dict[str, Any], subject: dict[str, Any]) -> dict[str, Any]:
    """Return what papermill injects: the overrides, the device under study and the run folder, where declared.

    The kernel works inside the run folder, so its path is "." and never enters the executed copy.
    """
    own = {"run_dir": ".", "arch": subject["arch"]}
    return {**{name: value for name, value in own.items() if name in book.declared}, **overridden}


def estimate(book: Book, subject: dict[str, Any], earlier: dict[str, Any]) -> float:
    """Return how many seconds a notebook will take: as long as last time in this folder, else what its title says.

    The title gives minutes, "3 min", or CPU and accelerator apart, "3 / 2 min".
    """
    if earlier.get("status") in COMPLETE and earlier.get("seconds"):
        return float(earlier["seconds"])
    title = parameters.source_of(book.content["cells"][0]) if book.content["cells"] else ""
    found = TITLE_MINUTES.search(title)
    if not found:
        return 60 * (0.5 if "half a minute" in title else MINUTES_UNSAID)
    on_cpu = subject["device"] == "cpu" or not found.group(2)
    return 60 * float(found.group(1) if on_cpu else found.group(2))


def announce(
    run: Path, facts: dict[str, Any], books: list[Book], todo: list[Book], estimates: dict[str, float]
) -> None:
    """Say, before anything runs, on what, into which folder, for how long and with how much disk."""
    subject = facts["subject"]
    say(f"Device under study: {subject['name']} ({subject['arch']}): {subject['why']}.")
    for found in facts["findings"]:
        said = findings.say(found)
        say(f"[!] {said['sentence']} {said['advice']}")
    need, free = len(todo) * DISK_PER_NOTEBOOK, shutil.disk_usage(run).free
    seconds = sum(estimates[book.number] for book in todo)
    kept = f" ({len(books) - len(todo)} kept from before)" if len(todo) < len(books) else ""
    say(f"{len(todo)} notebook(s) to run{kept}, about {duration(seconds)}, at most {size(need)} of {size(free)} free.")
    say(f"Run folder: {run}")
    if free < need:
        say("[!] The disk is nearly full: free some space, or the report may stop in the middle.")


def line(book: Book, row: dict[str, Any], kept: bool = False) -> str:
    """Return the last word on one notebook: number and topic, status, seconds, and why."""
    seconds = f"{row['seconds']:.1f} s" if row.get("seconds") is not None else "-"
    words = [f"{book.stem:<20} {row['status']:<14} {seconds:>9}"]
    if kept:
        words.append("kept from before")
    if row.get("message"):
        words.append(f"cell {row['cell']}: {row['message']}" if row.get("cell") else row["message"])
    return "  ".join(words)


def write(run: Path, facts: dict[str, Any], ended: bool = False) -> None:
    """Write run.json, whole or not at all."""
    if ended:
        facts["ended"] = results.now()
    results.write_json(run / "run.json", facts)


# ---- the page


def _page(run: Path, lang: str, strict: bool) -> bool:
    """Build the page and print its path; return True when that failed, or when --strict finds something."""
    try:
        from rocmlab import report as page

        path = page.build(run, lang)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        say(f"The page could not be built ({reason}). The records are kept in {run}; the same command tries again.")
        return True
    say("")
    say(f"Page: {path}")
    return strict and bool(_statuses(results.read_json(run / "findings.json")) & {"warn", "broken"})


def _statuses(value: Any) -> set[str]:
    """Return every `status` that stands in findings.json, at whatever depth."""
    if isinstance(value, dict):
        own = {value["status"]} if isinstance(value.get("status"), str) else set()
        return own.union(*(_statuses(item) for item in value.values()))
    return set().union(*(_statuses(item) for item in value)) if isinstance(value, list) else set()


def _lost(run: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        seen = "The disk is full, so the report stopped"
    else:
        seen = f"The run folder can no longer be written ({error.strerror or error}), so the report stopped"
    return f"{seen}. What was measured until then is kept in {run}; mend that, and the same command goes on from there."
