"""Recorded runs that every report is set beside: small run folders in outputs/reference/, committed with the program.

`python -m rocmlab.reference RUN DEST` makes one from a full run folder: what a comparison reads, under 200 KB.
`rows(...)` gives the lines of a table of notebook 03. Numbers that others reported are runs of grade "reported".
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

from rocmlab import alike, ceiling, quantities, results, sides, timing, words
from rocmlab.rates import is_number
from rocmlab.sides import Side

MOST_BYTES = 200_000
SNAPSHOT = ("schema", "platform", "python", "torch_version", "torch_version_hip", "torch_version_cuda", "driver", "env",
            "host", "system_gpus")  # fmt: skip
DEVICE = ("index", "name", "gcnArchName", "total_memory", "major", "minor", "is_integrated", "multi_processor_count")
GPU = ("name", "vendor", "pci_id", "arch", "driver")
BIRTH = ("schema", "name", "method_version", "rocmlab_version", "started", "ended", "subject", "versions", "git",
         "variables", "load")  # fmt: skip
# Of a record: what is bulky and not compared. Times from which rates are computed stay, as raw as they were taken.
DROPPED = {"token_stamps_s", "token_ids", "logits", "cores", "memory", "core", "load", "row_tokens", "sensor", "work"}
TABLES = ("generation", "lengths", "batches", "ceiling", "vision", "reported")


def folder() -> Path:
    """Return where the reference runs are."""
    return results.home() / "outputs" / "reference"


def every(but: str = "") -> list[Side]:
    """Return every reference run that can be read, except one of the name given: a run is no reference of itself."""
    found = []
    for path in sorted(folder().glob("*/run.json")):
        try:
            side = sides.of_folder(path.parent, path.parent.name)
        except (ValueError, TypeError, KeyError, StopIteration):
            continue  # a damaged one must never cost a reader his own page; the tests read them all
        if side.label != but and side.items:
            found.append(side)
    return found


# ---- beside the table of notebook 03

ROWS = {"decode_tok_s": "measure_decode_tok_s", "e2e_tok_s": "measure_e2e_tok_s"}


def rows(model_spec: Any, but: str = "") -> list[dict[str, Any]]:
    """Return lines (measure, cpu, gpu, row_class) of every reference of the same model shape: rates with their dtypes.

    A rate is the median over all prompts of the main task; the columns without one say why.
    """
    found = []
    for side in every(but):
        for metric, label in ROWS.items():
            line = _row(side, metric, label, quantities.shape_of(model_spec))
            found += [line] if line else []
    return found


def _row(side: Side, metric: str, label: str, shape: str | None) -> dict[str, Any] | None:
    """Return one line, None where the run has no such rate of this model."""
    by_arm = {arm: [i for i in side.items if i.arm == arm and i.metric == metric] for arm in ("cpu", "gpu")}
    by_arm = {arm: [i for i in mine if i.settings.get("model") == shape] for arm, mine in by_arm.items()}
    if not shape or not any(by_arm.values()):
        return None
    dtypes: dict[str, Any] = {}
    line: dict[str, Any] = {}
    for arm, mine in by_arm.items():
        # The items of the main task come first; those of further dtypes are another, shorter task.
        main = [one for one in mine if alike.differing(one, mine[0])[0] in ([], ["prompt_tokens"])]
        if main:
            dtypes[arm] = main[0].settings.get("dtype")
        line |= {arm: None, f"{arm}_reason": words.both("reference_no_side")}
        samples = [sample for one in main for sample in one.samples]
        if samples:
            line[arm] = timing.median_interval(samples)
        elif main:
            line |= {arm: main[0].value, f"{arm}_low": main[0].low, f"{arm}_high": main[0].high}
    grade = words.both("compare_reported" if side.reported else "compare_reference")
    measure = {}
    for lang in words.LANGUAGES:
        unknown = words.word("reference_dtype_unknown", lang)
        said = ", ".join(f"{arm.upper()} {dtype or unknown}" for arm, dtype in dtypes.items())
        given = {"measure": words.word(label, lang), "grade": grade[lang], "dtypes": said}
        who = f"{side.machine.name} ({side.machine.arch})" if side.machine.arch != "cpu" else str(side.machine.name)
        measure[lang] = words.word("reference_row", lang, who=who, **given)
    return {"measure": measure, **line, "row_class": "reference"}


# ---- making one


def thin(run: Path, target: Path) -> Path:
    """Write the small form of a run folder and return its path.

    Raises ValueError for no run folder, a target that is not empty, or a result above 200 KB.
    """
    birth = results.birth(run)
    if birth.get("schema") != results.BIRTH_SCHEMA:
        raise ValueError(f"{run} is no run folder: it has no run.json of schema {results.BIRTH_SCHEMA}")
    if target.exists() and any(target.iterdir()):
        raise ValueError(f"{target} is not empty; name a new folder")
    probe = results.rows(run, "snapshot")[-1:] or [birth.get("snapshot") or {}]
    kept = {key: birth[key] for key in BIRTH if key in birth} | {"name": target.name, "snapshot": _snapshot(probe[0])}
    (target / "records").mkdir(parents=True, exist_ok=True)
    results.write_json(target / "run.json", kept)
    for table in TABLES:
        lines = [_record(row) for row in results.rows(run, table) if _wanted(table, row)]
        if lines:
            text = "".join(results.line(one) for one in lines)
            results.write_text(target / "records" / f"{table}.jsonl", text)
    size = sum(one.stat().st_size for one in target.rglob("*") if one.is_file())
    if size > MOST_BYTES:
        raise ValueError(
            f"{target} has {size} bytes, more than {MOST_BYTES}; measure fewer prompts, lengths or batches"
        )
    return target


def _snapshot(probe: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {key: probe.get(key) for key in SNAPSHOT}
    found["devices"] = [{k: d.get(k) for k in DEVICE} for d in probe.get("devices") or [] if isinstance(d, dict)]
    found["gpus"] = [{key: gpu.get(key) for key in GPU} for gpu in probe.get("gpus") or [] if isinstance(gpu, dict)]
    windows = probe.get("windows")
    if isinstance(windows, dict):
        found["windows"] = {key: windows.get(key) for key in ("caption", "display_driver")}
    return found


def _wanted(table: str, row: dict[str, Any]) -> bool:
    """Tell whether a comparison reads a record: steady ones, without failures; sizes past the caches."""
    if table == "ceiling":
        return bool(row.get("samples_ms")) and row.get("bytes", 0) >= ceiling.PAST_CACHE
    if row.get("error") or (table == "lengths" and (row.get("kind") != "hand" or row.get("process") != 0)):
        return False
    if table == "batches" and (row.get("kind") != "item" or row.get("padded")):
        return False
    if table == "vision":
        return row.get("kind") in ("steady", "queued")
    return table == "reported" or row.get("visit") == "steady"


def _record(row: dict[str, Any]) -> dict[str, Any]:
    """Return a record without what is bulky; of a pass over many steps the median stays, which is what is compared."""
    kept = {key: value for key, value in row.items() if key not in DROPPED}
    steps = [one for one in kept.get("step_ms") or [] if is_number(one)]
    return kept | ({"step_ms": [statistics.median(steps)]} if steps else {})


def main(arguments: list[str]) -> int:
    """Make a reference from a run folder; return 2 with a sentence when it cannot be made."""
    if len(arguments) != 2:
        print("usage: python -m rocmlab.reference RUN DEST", file=sys.stderr)
        return 2
    run, target = (Path(one) for one in arguments)
    try:
        thin(run, target)
        side = sides.of_folder(target)
    except (ValueError, OSError) as error:
        print(f"rocmlab.reference: {error}", file=sys.stderr)
        return 2
    size = sum(one.stat().st_size for one in target.rglob("*") if one.is_file())
    print(f"{target}: {len(side.items)} quantities, {size / 1000:.0f} KB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
