"""01: what card, driver and build is this, and can it compute?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rocmlab import advice, environment, factsheet, gpus, words
from rocmlab.findings import Finding, finding
from rocmlab.sections import Section, Table, question, snapshot

# Column of a table: the key of its heading in words.yaml.
HEADS = {
    "list": "says_list",
    "says": "says",
    "date": "says_date",
    "limit": "limit",
    "source": "source",
    "way": "way",
    "needs": "needs",
    "known": "known_here",
    "today": "today",
}


def section(run: Path) -> Section:
    """What card, driver and build is this, and can it compute?"""
    probe = gpus.tidy(snapshot(run))
    if not probe.get("schema") and not probe.get("platform") and not probe.get("torch_version"):
        return Section("01", question("01"), missing=words.both("reason_no_records", notebook="01"))
    found = environment.judge(probe)
    works = answer_works(probe, found)
    return Section(
        notebook="01",
        question=question("01"),
        findings=[works, *(one for one in found if one is not works)],
        tables=tables(probe),
        how=words.both("how_01"),
        answers={"works": works},
    )


def answer_works(probe: dict[str, Any], found: list[Finding]) -> Finding:
    """Return what decides "does it work": a fault that stops it, else the launch and whether lesser faults exist."""
    decisive = [f for f in found if f["sort"] == "answer" or f["status"] in ("broken", "unknown")]
    if decisive:
        return decisive[0]
    warned = [f for f in found if f["status"] == "warn"]
    chosen, passed = gpus.subject(probe), gpus.launches(probe)
    launch = passed.get(chosen["index"]) or {}
    if not launch.get("ok"):
        return finding("LAUNCH_NOT_TRIED")
    op = (probe.get("launch_probe") or {}).get("op") or "a small product"
    words = {"card": chosen["name"], "arch": chosen["arch"], "op": op}
    numbers = {"max_abs_err": launch.get("max_abs_err")}
    if warned:
        return finding("LAUNCH_RIGHT_BUT", count=len(warned), numbers=numbers, **words)
    return finding("LAUNCH_RIGHT", numbers=numbers, **words)


def tables(probe: dict[str, Any]) -> list[Table]:
    """Return the machine's facts; on a machine with an AMD card also support, limits, ways out and older advice."""
    facts = pd.DataFrame(factsheet.rows(probe), columns=["fact", "value"])
    made = [Table("machine", words.both("machine"), facts, labels={key: words.both(key) for key in ("fact", "value")})]
    arch = advice.target_of(probe)
    if arch:
        made.append(_table("support", advice.support(probe), arch=arch))
        made.append(_table("limits", advice.limits(probe), arch=arch))
        made.append(_table("ways", advice.ways_out(probe)))
    if advice.amd_here(probe):
        made.append(_table("older", advice.older()))
    return [one for one in made if len(one.frame)]


def _table(name: str, rows: list[dict[str, Any]], **placeholders: Any) -> Table:
    frame = pd.DataFrame(rows)
    heads = {**HEADS, **({"says": "older_says"} if name == "older" else {})}
    labels = {column: words.both(heads[column]) for column in frame.columns}
    return Table(name, words.both(name, **placeholders), frame, labels=labels)
