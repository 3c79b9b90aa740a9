"""Which notebooks are there, which are asked for, what may they be given, and how long do they take?"""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmlab import findings, parameters, results
from rocmlab.cli import UsageError

CELL_LIMIT_S, NOTEBOOK_LIMIT_S = 1800.0, 3600.0  # far above any estimate: a slow card is not a hang
# The runner's own parameters: a params file and --set may give them beside those of the notebooks.
LIMITS = {
    "cell_limit_s": parameters.Parameter("cell_limit_s", None, CELL_LIMIT_S),
    "notebook_limit_s": parameters.Parameter("notebook_limit_s", None, NOTEBOOK_LIMIT_S),
}
MINUTES_UNSAID = 1.0
TITLE_MINUTES = re.compile(r"(?:(\d+(?:\.\d+)?)\s*/\s*)?(\d+(?:\.\d+)?)\s*min", re.IGNORECASE)


@dataclass(frozen=True)
class Book:
    """One notebook of the house, as committed."""

    number: str
    stem: str
    content: dict[str, Any]
    declared: dict[str, parameters.Parameter]
    tagged: bool


def discover(folder: Path) -> dict[str, Book | str]:
    """Return the notebooks `NN_topic.ipynb` by number, in order; one that cannot be read is the sentence saying so."""
    paths = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise UsageError(f"there are no notebooks in {folder}; run this from a checkout of rocmlab.")
    return {path.name[:2]: _book(path) for path in paths}


def _book(path: Path) -> Book | str:
    import nbformat

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        nbformat.validate(nbformat.from_dict(content))
        declared = parameters.declared(content, path.name)
    except UsageError as error:
        return str(error)
    except (nbformat.ValidationError, AttributeError, TypeError, KeyError):
        return f"{path.name} is JSON but not a notebook; restore it from the repository."
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


def estimate(book: Book, subject: dict[str, Any], earlier: dict[str, Any]) -> float:
    """Return how many seconds a notebook will take: as long as last time in this folder, else what its title says.

    The title's first figure in minutes is that of two CPU cores, the last one that of a gaming card: "3 / 2 min", or
    "3 min on two cores, 6 min on a gaming card".
    """
    if earlier.get("status") in ("ok", "warn") and earlier.get("seconds"):
        return float(earlier["seconds"])
    title = parameters.source_of(book.content["cells"][0]) if book.content["cells"] else ""
    minutes = [float(figure) for pair in TITLE_MINUTES.findall(title) for figure in pair if figure]
    if not minutes:
        minutes = [0.5 if "half a minute" in title else MINUTES_UNSAID]
    return 60 * (minutes[0] if subject["device"] == "cpu" else minutes[-1])
