"""`rocmlab report`: run the notebooks that have no result yet, each in its own kernel, and build the page.

Everything that can be refused is refused before the first notebook; whatever a notebook does later, the others still
run, what was measured stays, and `run.json` says how each one ended.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import shutil
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rocmlab import birth, device, findings, house, models, parameters, results, runfolder
from rocmlab.cli import UsageError
from rocmlab.progress import Progress, duration, say, size

COMPLETE = ("ok", "warn")
ALWAYS = ("12", "13")  # they only read what the others measured
DISK_PER_NOTEBOOK = 20_000_000  # bytes: executed copy, pages, figures and records of one notebook, generously
DISK_LEFT = 1_000_000
ARCH_NAME = re.compile(r"gfx[0-9a-f]{3,4}|sm_\d{2,3}")


@dataclass(frozen=True)
class Order:
    """One notebook as it shall be run: all its values, those that papermill injects, and what the result depends on."""

    book: house.Book
    values: dict[str, Any]
    given: dict[str, Any]
    key: str
    estimate_s: float

    @property
    def number(self) -> str:
        return self.book.number


def report(arguments: argparse.Namespace) -> int:
    """Run and report; return 0, or 1 when a notebook ended badly (with --strict: or something is warn or broken).

    Raises UsageError (exit 2) for whatever cannot be used, before anything runs; KeyboardInterrupt after Ctrl-C.
    """
    _stop_on_terminate()
    _engine()
    known = house.discover(results.home() / "notebooks")
    books = house.select(known, arguments.only, arguments.first)
    layers = house.asked_for(arguments, known, books)
    say("Looking at this machine ...")
    snapshot = device.snapshot()
    subject, notice = choose(snapshot, arguments.arch)
    layers = house.of_the_card(subject, known) + layers
    limits = parameters.merge(house.LIMITS, layers)[0]
    run = results.home() / "outputs" / runfolder.folder_name(arguments, subject)
    earlier = runfolder.resumable(run, arguments.fresh)
    settled = [parameters.merge(book.declared, layers)[0] for book in books]
    _refuse(settled)
    _offer_model(settled, subject)
    try:
        with runfolder.locked(run, arguments.fresh):
            facts = birth.certificate(run.name, arguments.arch, subject, snapshot, earlier)
            facts.update(findings=[notice] if notice else [], limits=limits)
            bad = _run_all(run, facts, [_order(book, layers, facts) for book in books], limits)
            bad |= _page(run, arguments.lang, arguments.strict)
    except OSError as error:
        say(_lost(run, error))
        return 1
    return 1 if bad or (arguments.strict and notice) else 0


def _stop_on_terminate() -> None:
    """Being ended politely (SIGTERM, a closed terminal) is treated as Ctrl-C, so that no kernel is left behind."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        return
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == signal.SIG_DFL:  # nohup ignores SIGHUP: leave it so
            signal.signal(number, stop)


def _engine() -> ModuleType:
    """Return the module that runs notebooks; its packages are an extra, so they may be missing."""
    try:
        from rocmlab import engine
    except ImportError as error:
        raise UsageError(f"what runs notebooks is not installed ({error}): pip install -e .[notebooks]") from None
    return engine


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


# ---- running


def _order(book: house.Book, layers: list[parameters.Layer], facts: dict[str, Any]) -> Order:
    """Settle one notebook's values. The kernel works inside the run folder, so `run_dir` is "." and no path gets in."""
    subject, snapshot = facts["subject"], facts["snapshot"]
    values, overridden = parameters.merge(book.declared, layers)
    own = {"run_dir": ".", "arch": subject["arch"]}
    given = {**{name: value for name, value in own.items() if name in book.declared}, **overridden}
    key = birth.key({**values, **given}, subject, snapshot, _model(values, subject))
    seconds = house.estimate(book, subject, facts["notebooks"].get(book.number, {}))
    return Order(book, {**values, **given}, given, key, seconds)


def _run_all(run: Path, facts: dict[str, Any], orders: list[Order], limits: dict[str, float]) -> bool:
    """Run what has no complete result of the same key; return True when a notebook ended badly."""
    todo = [order for order in orders if not _complete(run, order, facts["notebooks"].get(order.number, {}))]
    announce(run, facts, orders, todo)
    for order in todo:
        facts["parameters"][order.number] = order.values
        facts["notebooks"][order.number] = {"status": "skipped", "message": "it was not reached", "seconds": None}
    if todo:  # a run from which everything is kept stays as it was born
        write(run, facts)
    for place, order in enumerate(todo, 1):
        _run_one(run, facts, order, limits, f"[{place}/{len(todo)}] {order.book.stem}")
    if todo:
        write(run, facts, ended=True)
    say("")
    for order in orders:
        say(line(order, facts["notebooks"][order.number], kept=order not in todo))
    return any(facts["notebooks"][order.number]["status"] not in COMPLETE for order in orders)


def _run_one(run: Path, facts: dict[str, Any], order: Order, limits: dict[str, float], label: str) -> None:
    """Run one notebook and write down how it ended, at once. Raises KeyboardInterrupt, and OSError on a full disk."""
    engine = _engine()
    progress = Progress(label, order.estimate_s)
    names = {"name": order.book.stem, "log": f"{order.number}.log"}
    try:
        ended = engine.execute(
            order.book.content, run=run, parameters=order.given, progress=progress, **names, **limits
        )
    except engine.Interrupted as stop:
        facts["notebooks"][order.number] = _row(stop.result, order.key)
        progress.done(line(order, facts["notebooks"][order.number]))
        write(run, facts, ended=True)
        say(f"Stopped. What was measured is in {run}; the same command goes on from there.")
        raise KeyboardInterrupt from None
    facts["notebooks"][order.number] = _children(run, order.number, _row(ended, order.key))
    progress.done(line(order, facts["notebooks"][order.number]))
    write(run, facts)
    if shutil.disk_usage(run).free < DISK_LEFT:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# How a measuring child ended, as the status of its notebook: what was measured stays, and the next run tries again.
CHILD_STATUS = {"OUT_OF_MEMORY": "out_of_memory", "TIMEOUT": "timed_out", "ERROR": "failed"}


def _children(run: Path, number: str, row: dict[str, Any]) -> dict[str, Any]:
    """Let a notebook with a measuring process that died be no success: its row says how, the next run tries again."""
    names = [path.stem for path in (run / "records").glob("*.jsonl") if path.stem.endswith(("processes", "_ended"))]
    rows = [one for name in sorted(names) for one in results.rows(run, name) if one.get("notebook") == number]
    ended = [one for one in rows if one.get("status") != "OK"]
    if row["status"] != "ok" or not ended:
        return row
    first = ended[0]
    message = f"{len(ended)} of {len(rows)} measuring processes ended early: {first['status']}, {first['words']}"
    return row | {"status": CHILD_STATUS.get(first["status"], "crashed"), "message": message}


def _row(ended: Any, key: str) -> dict[str, Any]:
    return {**ended.as_row(), "ended": results.now(), "key": key}


def _model(values: dict[str, Any], subject: dict[str, Any]) -> str | None:
    """Return which model these values stand for on this device; None for a notebook without one."""
    if "model" not in values:
        return None
    hub_model = {"hub_model": values["hub_model"]} if values.get("hub_model") else {}
    settled = models.settle(str(values["model"]), accelerator=subject["device"] != "cpu", **hub_model)
    return ", ".join(f"{spec} {models.identity(spec)}" for spec in (settled.speed, settled.text) if spec)


def _refuse(orders: list[dict[str, Any]]) -> None:
    """Refuse values that no notebook can work with, before anything runs; names and types have been checked already."""
    for values in orders:
        for name in ("prompts", "repeats", "processes", "new_tokens", "text_tokens", "side_repeats", "side_new_tokens"):
            least = 2 if name == "new_tokens" else 1
            if isinstance(values.get(name), int) and values[name] < least:
                raise UsageError(f"{name} is {values[name]}; it must be at least {least}.")
        reason = models.refusal(str(values["model"])) if values.get("model") else None
        if reason:
            raise UsageError(f"model: {reason}")


def _offer_model(orders: list[dict[str, Any]], subject: dict[str, Any]) -> None:
    """Ask once, at a terminal, for the hub model that `auto` stands for on an accelerator."""
    wanted = [values["hub_model"] for values in orders if values.get("model") == "auto" and values.get("hub_model")]
    if wanted and subject["device"] != "cpu":
        models.offer(wanted[0])


def _complete(run: Path, order: Order, row: dict[str, Any]) -> bool:
    executed = run / "notebooks" / f"{order.book.stem}.ipynb"
    equal = row.get("status") in COMPLETE and row.get("key") == order.key and executed.exists()
    return equal and order.number not in ALWAYS


def announce(run: Path, facts: dict[str, Any], orders: list[Order], todo: list[Order]) -> None:
    """Say, before anything runs, on what, into which folder, for how long and with how much disk."""
    subject = facts["subject"]
    say(f"Device under study: {subject['name']} ({subject['arch']}): {subject['why']}.")
    for found in facts["findings"]:
        said = findings.say(found)
        say(f"[!] {said['sentence']} {said['advice']}")
    need, free = len(todo) * DISK_PER_NOTEBOOK, shutil.disk_usage(run).free
    seconds = sum(order.estimate_s for order in todo)
    kept = f" ({len(orders) - len(todo)} kept from before)" if len(todo) < len(orders) else ""
    say(f"{len(todo)} notebook(s) to run{kept}, about {duration(seconds)}, at most {size(need)} of {size(free)} free.")
    say(f"Run folder: {run}")
    if free < need:
        say("[!] The disk is nearly full: free some space, or the report may stop in the middle.")


def line(order: Order, row: dict[str, Any], kept: bool = False) -> str:
    """Return the last word on one notebook: number and topic, status, seconds, and why."""
    seconds = f"{row['seconds']:.1f} s" if row.get("seconds") is not None else "-"
    words = [f"{order.book.stem:<20} {row['status']:<14} {seconds:>9}"]
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
    say(f"To paste: {path.parent / 'summary.md'} into a forum, {path.parent / 'bug-report.md'} into a bug report")
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
