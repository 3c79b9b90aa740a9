"""The verbs: `rocmlab check | report | read | compare | bundle | selftest | model`.

Exit codes: 0 it ran (a slow or broken GPU is a finding), 1 a notebook failed or --strict and something is warn or
broken, 2 usage, parameters or an unreadable file.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from rocmlab import __version__
from rocmlab.findings import LANGUAGES

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")  # Chinese and line ends stay


class UsageError(Exception):
    """Something the user typed or named cannot be used; the text says what was seen and what to do. Exit code 2."""


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(
        prog="rocmlab", description="Does this GPU work, why is it slow, and what would make it faster?"
    )
    top.add_argument("--version", action="version", version=f"rocmlab {__version__}")
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")

    check = verbs.add_parser("check", help="the one-minute answer: card, driver, build, and one small launch")
    _shared(check)

    report = verbs.add_parser("report", help="run the notebooks and build the page")
    report.add_argument("--arch", default="auto", help="gfx target that must be there, such as gfx1032 (default: auto)")
    report.add_argument("--name", help="name of the run folder in outputs/ (default: from the card)")
    many: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}  # given twice, both count
    report.add_argument("--params", **many, metavar="FILE", help="YAML files of overrides, in order")
    report.add_argument("--set", **many, metavar="KEY=VALUE", dest="settings", help="single overrides")
    report.add_argument("--only", help="notebooks to run, such as 01,03")
    report.add_argument("--from", dest="first", metavar="NN", help="run from this notebook on")
    report.add_argument("--fresh", action="store_true", help="move an earlier run of this name aside and start anew")
    report.add_argument("--strict", action="store_true", help="exit 1 when something is warn or broken")
    report.add_argument("--lang", choices=LANGUAGES, default="en", help="language of the page")

    read = verbs.add_parser("read", help="say what a trace, a log, a snapshot, a record or a run folder shows")
    read.add_argument("files", nargs="+", metavar="FILE")
    read.add_argument(
        "--window", default="auto", help="part of a trace: auto, linked, device, trace, annotation:NAME (default: auto)"
    )
    _shared(read)

    selftest = verbs.add_parser("selftest", help="plant known faults and see whether they are found")
    selftest.add_argument("--model", default="auto", help="auto, bundled, random:PRESET, a hub id or a local folder")
    selftest.add_argument("--arch", default="auto", help="gfx target that must be there (default: auto)")

    compare = verbs.add_parser("compare", help="set runs side by side: what differs, and where a ratio means something")
    compare.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folders, bundles or run records; the first is 1.00"
    )
    _shared(compare)

    bundle = verbs.add_parser("bundle", help="pack a run into one zip that may be sent: under 10 MB, nothing private")
    bundle.add_argument("run", metavar="RUN", help="the run folder")
    bundle.add_argument("--out", metavar="FILE", help="the zip to write (default: beside the folder)")

    model = verbs.add_parser("model", help="fetch and prepare the bundled model")
    model.add_argument("--model", default="bundled", help="bundled, random:PRESET, a hub id or a local folder")
    return top


def _shared(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--json", action="store_true", help="one JSON object a line, for programs")
    verb.add_argument("--lang", choices=LANGUAGES, default="en")


def calm() -> None:
    """Let a console under GBK or code page 1252 replace what it cannot show: printing must never fail."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def plain(text: str) -> str:
    """Return a text without characters that steer a terminal: files of other people are shown as well."""
    return CONTROL.sub("?", text)


def main(argv: list[str] | None = None) -> int:
    """Run one verb and return its exit code."""
    calm()
    arguments = parser().parse_args(argv)
    try:
        return VERBS[arguments.verb](arguments)
    except UsageError as error:
        print(plain(f"rocmlab: {error}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("rocmlab: stopped by Ctrl-C; what was measured is kept.", file=sys.stderr)
        return 130


def read(arguments: argparse.Namespace) -> int:
    """Answer for each file; exit 2 when one could not be opened or is of no known kind, the others are read still."""
    from rocmlab import readers

    worst = 0
    for name in arguments.files:
        try:
            answer = readers.answer(Path(name), arguments.lang, arguments.window)
        except OSError as error:
            print(f"rocmlab: cannot open {name}: {error.strerror or error}", file=sys.stderr)
            worst = 2
            continue
        except readers.WindowError as error:
            print(f"rocmlab: {name}: {error}", file=sys.stderr)
            worst = 2
            continue
        if answer["kind"] == "unknown":
            worst = 2
        print(json.dumps(answer, ensure_ascii=True, allow_nan=False) if arguments.json else plain(_shown(answer)))
    return worst


def _shown(answer: dict[str, Any]) -> str:
    mark = {"ok": "[ok]", "warn": "[!]", "broken": "[!!]", "unknown": "[?]"}[answer["status"]]
    lines = [f"{mark} {answer['file']} ({answer['kind']}): {answer['verdict']}", f"    {answer['sentence']}"]
    if answer["advice"]:
        lines.append(f"    -> {answer['advice']}")
    for key, value in answer["numbers"].items():
        if not key.endswith("_reason"):
            shown = f"unknown ({answer['numbers'].get(f'{key}_reason', 'no reason given')})" if value is None else value
            lines.append(f"    {key:<28} {shown}")
    return "\n".join(lines)


def compare(arguments: argparse.Namespace) -> int:
    """Print what differs first, then what may be concluded. Raises UsageError for what is no run."""
    from rocmlab import comparison, results, sides

    if len(arguments.runs) < 2:
        raise UsageError("compare: name at least two runs; the first is what the others are compared with.")
    every = []
    for name in arguments.runs:
        try:
            every.append(sides.load(Path(name)))
        except ValueError as error:
            raise UsageError(f"cannot compare {name}: {error}.") from None
        except OSError as error:
            raise UsageError(f"cannot open {name}: {error.strerror or error}") from None
    every = sides.named_apart(every)
    if arguments.json:
        data = results.clean(comparison.as_data(every, arguments.lang))
        print(json.dumps(data, ensure_ascii=True, allow_nan=False))
    else:
        print(plain(comparison.console(every, arguments.lang)))
    return 0


def bundle(arguments: argparse.Namespace) -> int:
    """Pack a run folder and say where the zip is and what is not in it."""
    from rocmlab import bundle

    try:
        path, manifest = bundle.make(Path(arguments.run), Path(arguments.out) if arguments.out else None)
    except ValueError as error:
        raise UsageError(f"cannot bundle {arguments.run}: {error}.") from None
    except OSError as error:
        raise UsageError(f"cannot bundle {arguments.run}: {error.strerror or error}") from None
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {len(manifest['files'])} files, nothing private that is known.")
    for name, reason in manifest["left_out"].items():
        print(f"left out: {name} ({reason})")
    print("Look into it before you send it. `rocmlab read` and `rocmlab compare` open it again.")
    return 0


def check(arguments: argparse.Namespace) -> int:
    from rocmlab import device

    return device.check(lang=arguments.lang, as_json=arguments.json)


def report(arguments: argparse.Namespace) -> int:
    from rocmlab import runner

    return runner.report(arguments)


def model(arguments: argparse.Namespace) -> int:
    from rocmlab import models

    return models.prepare(arguments.model)


def selftest(arguments: argparse.Namespace) -> int:
    from rocmlab import selftest as planted

    return planted.run(arguments.model, arguments.arch)


VERBS = {
    "check": check, "report": report, "read": read, "compare": compare, "bundle": bundle, "selftest": selftest,
    "model": model,
}  # fmt: skip

if __name__ == "__main__":
    # `python -m rocmlab.cli` runs this file under another name, whose UsageError would not be the one that is raised.
    from rocmlab.cli import main as entry

    sys.exit(entry())
