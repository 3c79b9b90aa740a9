"""What one run brings to a comparison: its machine, what it ran on, and every quantity with the settings it was taken at.

`of_folder(path)` reads a run folder, `of_record(record)` a single rocmlab-run-1 file, `to_rows` and `of_rows` write a
side into records and read it back, so that a page can be rebuilt where the other runs are not. Nothing is measured.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocmlab import archs, bundle, ceiling, clock, curves, machines, readers, results, roof, speed
from rocmlab.machines import Machine
from rocmlab.rates import is_number
from rocmlab.readers import measurements
from rocmlab.readers.records import RUN_SCHEMA

Rows = list[dict[str, Any]]

# A metric belongs to one question; the same question is asked of every machine, and has one figure.
QUESTIONS = {
    "decode_tok_s": "decode", "e2e_tok_s": "e2e", "end_to_end_tok_s": "e2e", "ttft_ms": "ttft", "tpot_ms": "tpot",
    "prefill_ms": "prefill", "batch_tok_s": "batch", "bandwidth_gb_s": "bandwidth", "train_images_s": "train",
    "forward_ms": "forward",
}  # fmt: skip
TEXT = ("new_tokens", "stop_rule")  # of what is written
SUBJECT = ("machine", "os", "device")  # what a comparison is about


@dataclass(frozen=True)
class Item:
    """One quantity: `settings` hold what must be equal for a ratio (a key with None: it applies, but is not stated)."""

    question: str
    arm: str  # gpu or cpu
    what: str  # which of its kind: prompt, length, batch, model
    settings: dict[str, Any]
    value: float
    samples: list[float] = field(default_factory=list)
    low: float | None = None
    high: float | None = None
    roof_pct: float | None = None
    roof_kind: str | None = None
    gb_s: float | None = None
    processes: int = 1

    @property
    def metric(self) -> str:
        return str(self.settings.get("metric"))

    @property
    def rises(self) -> bool:
        """Tell whether more is better: a rate, not a time."""
        return not self.metric.endswith("_ms")


@dataclass(frozen=True)
class Side:
    """One run: `factors` hold what may explain a difference (system, torch, driver, ...); None is unknown."""

    label: str
    machine: Machine
    subject_arm: str
    factors: dict[str, Any]
    items: list[Item]
    claims: list[dict[str, str]] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)

    @property
    def reported(self) -> bool:
        """Tell whether its numbers were read somewhere and not measured by this program."""
        return any(one.settings.get("evidence_grade") == "reported" for one in self.items)


def load(path: Path) -> Side:
    """Return the side of a run folder, a bundle or a run record, by its content.

    Raises ValueError for anything else, with what was seen; OSError when it cannot be opened.
    """
    if path.is_dir():
        return of_folder(path)
    with path.open("rb") as file:
        head = file.read(4)
    if head.startswith(b"PK") or path.suffix.lower() == ".zip":
        with bundle.opened(path) as folder:
            return of_folder(folder)
    record = readers.Evidence(path).json
    schema = record.get("schema") if isinstance(record, dict) else None
    if schema == results.BIRTH_SCHEMA:
        return of_folder(path.parent)
    if schema != RUN_SCHEMA:
        raise ValueError(f"{path.name}: neither a run folder, nor a bundle, nor a run record ({RUN_SCHEMA})")
    return of_record(measurements.finite(record)[0], path.name)


# ---- from a run folder


def of_folder(path: Path, label: str = "") -> Side:
    """Return the side of a run folder. Raises ValueError when it is none."""
    birth = results.birth(path)
    if birth.get("schema") != results.BIRTH_SCHEMA:
        raise ValueError(f"{path.name}: not a run folder (no run.json of schema {results.BIRTH_SCHEMA})")
    subject, probe = _dict(birth.get("subject")), _probe(path, birth)
    label = label or str(birth.get("name") or path.name)
    arm = "cpu" if subject.get("device") == "cpu" else "gpu"
    machine = _machine(label, subject, probe)
    items = [*_generation(path, arm, subject), *_lengths(path, arm), *_batches(path, arm), *_bandwidth(path, arm)]
    items += [one for row in results.rows(path, "reported") if (one := _reported(row, machine))]
    claims = [one for one in birth.get("claims") or [] if isinstance(one, dict)]
    notes = {key: birth.get(key) for key in ("source", "started", "method_version")}
    return Side(label, machine, arm, factors(birth, probe), items, claims, notes)


def _probe(path: Path, birth: dict[str, Any]) -> dict[str, Any]:
    found = results.rows(path, "snapshot")
    return _dict(found[-1] if found else birth.get("snapshot"))


def _machine(label: str, subject: dict[str, Any], probe: dict[str, Any]) -> Machine:
    """Return the subject as a machine; its PCI id where the system lists one GPU of that target only."""
    listed = [_dict(one) for one in probe.get("gpus") or []]
    mine = [one for one in listed if one.get("pci_id") and one.get("arch") == subject.get("arch")]
    pci = subject.get("pci_id") or (mine[0]["pci_id"] if len(mine) == 1 else None)
    device = {"name": subject.get("name"), "arch": subject.get("arch"), "total_memory": subject.get("memory_bytes")}
    return machines.of_device(label, device, pci)


def factors(birth: dict[str, Any], probe: dict[str, Any]) -> dict[str, Any]:
    """Return what may explain a difference, apart from the device: each a text, None where it is unknown."""
    versions, driver, windows = (
        _dict(one) for one in (birth.get("versions"), probe.get("driver"), probe.get("windows"))
    )
    host = _dict(probe.get("host"))
    drivers = [f"{name} {one}" for name, one in driver.items() if one]
    drivers += [f"{one['vendor']} {one['driver']}" for one in map(_dict, probe.get("gpus") or []) if one.get("driver")]
    env = probe.get("env") if isinstance(probe.get("env"), dict) else birth.get("variables")
    return {
        "os": probe.get("platform"),
        "torch_version": probe.get("torch_version") or versions.get("torch"),
        "hip_version": probe.get("torch_version_hip"),
        "cuda_version": probe.get("torch_version_cuda"),
        "driver": windows.get("display_driver") or ", ".join(dict.fromkeys(drivers)) or None,
        "transformers_version": versions.get("transformers"),
        "python_version": probe.get("python") or versions.get("python"),
        "cpu": host.get("cpu"),
        "variables": "; ".join(f"{k}={v}" for k, v in env.items()) if isinstance(env, dict) else None,
    }


def shape_of(spec: Any) -> str | None:
    """Return the shape of a model, whatever its weights: qwen3-0.6b for Qwen/Qwen3-0.6B and random:qwen3-0.6b."""
    if not spec:
        return None
    if spec == "bundled":
        return "smollm2-135m"
    return re.split(r"[/:\\]", str(spec))[-1].lower().removesuffix("-instruct") or None


def _settings(row: dict[str, Any], metric: str, **more: Any) -> dict[str, Any]:
    keys = ("dtype", "batch", "prompt_tokens", "new_tokens", "stop_rule", "visit", "method_version", "evidence_grade")
    found = {"metric": metric, "model": shape_of(row.get("model_spec"))} | {key: row.get(key) for key in keys} | more
    # What comes after the first token changes neither the prefill nor the time to that token.
    return {k: v for k, v in found.items() if k not in TEXT or metric not in ("prefill_ms", "ttft_ms")}


def _middle(values: Iterable[Any]) -> list[float]:
    return [float(one) for one in values if is_number(one) and one == one]


def _generation(path: Path, arm: str, subject: dict[str, Any]) -> list[Item]:
    """Return decode rate, end-to-end rate and time to first token of notebook 03, one item a prompt, arm and dtype."""
    rows = results.rows(path, "generation")
    if not rows:
        return []
    frame, found = speed.table(rows), []
    frame["row"] = rows
    for keys, group in frame[frame["visit"] == "steady"].groupby(["device", "dtype", "kind", "prompt_id"], sort=False):
        first, here = dict(group["row"].iloc[0]), "cpu" if keys[0] == "cpu" else "gpu"
        limit = _roof(path, first) if here == arm else None
        what = str(keys[3]).replace("_", " ")
        for metric in ("decode_tok_s", "e2e_tok_s", "ttft_ms"):
            given = _settings(first, metric, way="generate()")
            item = _item(QUESTIONS[metric], here, what, given, group[metric], len(set(group["process"])))
            found += [_with_roof(item, group["gb_s"], limit)] if item and metric == "decode_tok_s" else [item]
    return [one for one in found if one]


def _item(
    question: str, arm: str, what: str, settings: dict[str, Any], samples: Iterable[Any], processes: int = 1
) -> Item | None:
    good = _middle(samples)
    return Item(question, arm, what, settings, statistics.median(good), good, processes=processes) if good else None


def _roof(path: Path, row: dict[str, Any]) -> roof.Roof:
    """Return what the subject's memory can do, as notebook 04 has it."""
    birth = results.birth(path)
    peak = roof.stated(_probe(path, birth), _dict(birth.get("subject")))
    return roof.roof(results.rows(path, "ceiling"), peak, row.get("weight_bytes"))


def _with_roof(item: Item, gb_s: Iterable[Any], limit: roof.Roof | None) -> Item:
    rates = _middle(gb_s)
    if not rates:
        return item
    rate = statistics.median(rates)
    if not limit or not limit.gb_s:
        return dataclasses.replace(item, gb_s=rate)
    return dataclasses.replace(item, gb_s=rate, roof_pct=100 * rate / limit.gb_s, roof_kind=limit.kind)


def _lengths(path: Path, arm: str) -> list[Item]:
    """Return prefill and time a token of notebook 04, one item a prompt length."""
    rows = results.rows(path, "lengths")
    frame, found = curves.steady(rows), []
    for length, group in frame.groupby("length"):
        marks = {"kind": "hand", "visit": "steady", "length": length, "process": 0}
        first = next(r for r in rows if marks.items() <= r.items() and not r.get("error"))
        for metric in ("prefill_ms", "tpot_ms"):
            given = _settings(first, metric, way="hand-written loop")
            found.append(_item(QUESTIONS[metric], arm, f"{length} tokens", given, group[metric]))
    return [one for one in found if one]


def _batches(path: Path, arm: str) -> list[Item]:
    """Return the throughput of notebook 05, one item a context and batch."""
    rows = [r for r in results.rows(path, "batches") if r.get("kind") == "item" and not r.get("error")]
    rows = [r for r in rows if r.get("visit") == "steady" and not r.get("padded") and r.get("step_ms")]
    found = []
    for key in dict.fromkeys((r["context"], r["batch"]) for r in rows):
        mine = [r for r in rows if (r["context"], r["batch"]) == key]
        rates = [1000 * key[1] / statistics.median(steps) for r in mine if (steps := _middle(r["step_ms"]))]
        given = _settings(mine[0], "batch_tok_s", way="hand-written loop", new_tokens=mine[0].get("new_tokens_each"))
        found.append(_item("batch", arm, f"batch {key[1]}, {key[0]} tokens", given, rates))
    return [one for one in found if one]


def _bandwidth(path: Path, arm: str) -> list[Item]:
    """Return the measured ceiling of the subject's memory."""
    rows = results.rows(path, "ceiling")
    birth = results.birth(path)
    peak = roof.stated(_probe(path, birth), _dict(birth.get("subject")))
    best = ceiling.bandwidth(rows, peak) if roof.disturbed(rows) is None else None
    if best is None:
        return []
    row = next(r for r in rows if r.get("way") == best.way and r.get("bytes") == best.bytes)
    settings = {"metric": "bandwidth_gb_s", "visit": "steady"}
    settings |= {key: row.get(key) for key in ("method_version", "evidence_grade")}
    samples = [best.bytes / ms / 1e6 for ms in clock.kept(row["samples_ms"])[0]]
    item = _item("bandwidth", arm, "copy or read", settings, samples)
    if item and peak:
        item = dataclasses.replace(item, gb_s=best.gb_s, roof_pct=100 * best.gb_s / peak, roof_kind="stated")
    return [item] if item else []


# ---- numbers that somebody reported, and single records


def _reported(row: dict[str, Any], machine: Machine) -> Item | None:
    """Return one number as its source states it: settings that it does not state are null."""
    metric, value = row.get("metric"), row.get("value")
    if metric not in QUESTIONS or not is_number(value):
        return None
    settings = _settings(row, str(metric)) | {key: row[key] for key in ("image_size", "way") if key in row}
    settings["evidence_grade"] = "reported"
    if QUESTIONS[metric] in ("train", "forward"):
        settings = {key: one for key, one in settings.items() if key not in (*TEXT, "prompt_tokens")}
    arm, low, high = str(row.get("arm") or "gpu"), row.get("low"), row.get("high")
    item = Item(QUESTIONS[metric], arm, str(row.get("what") or ""), settings, float(value), low=low, high=high)
    known = archs.product(machine.arch, machine.name, machine.memory_bytes) if arm == "gpu" else None
    if is_number(row.get("weight_bytes")) and metric in ("decode_tok_s", "e2e_tok_s"):
        peak = roof.Roof(known["bandwidth_gbs"] if known else None, "stated")
        item = _with_roof(item, [row["weight_bytes"] * value / 1e9], peak)
    return item


RUN_SETTINGS = ("model", "dtype", "batch", "prompt_tokens", "new_tokens", "stop_rule", "metric")
RUN_MORE = ("way", "visit", "synchronized", "method_version", "evidence_grade", "image_size")


def of_record(record: dict[str, Any], label: str) -> Side:
    """Return the side of one rocmlab-run-1 record: a single value and its settings. Raises ValueError without one."""
    metric, value = record.get("metric"), record.get("value")
    if not isinstance(metric, str) or not is_number(value):
        raise ValueError(f"{label}: the record names no metric with a number, so there is nothing to compare")
    device = _dict(record.get("device"))
    settings = {key: record.get(key) for key in RUN_SETTINGS} | {k: record[k] for k in RUN_MORE if k in record}
    settings["model"] = shape_of(record.get("model"))
    if "visit" not in settings and is_number(record.get("warmup_runs")):
        settings["visit"] = "steady" if record["warmup_runs"] > 0 else "first"
    name = str(record.get("machine") or label)
    machine = machines.of_device(name, device, record.get("pci_id"))
    arm = "gpu" if machine.arch not in (None, "cpu") or machine.name else "cpu"
    given = record.get("samples")
    samples = _middle(given) if isinstance(given, list) else []
    what = f"{settings['prompt_tokens']} + {settings['new_tokens']} tokens"
    item = Item(QUESTIONS.get(metric, metric), arm, what, settings, float(value), samples)
    keys = ("os", "torch_version", "hip_version", "cuda_version", "driver", "transformers_version", "python_version")
    keys += ("cpu", "variables", "model_revision", "attention_backend")
    return Side(name, machine, arm, {key: record.get(key) for key in keys}, [item], notes={"file": label})


# ---- into records and back


def to_rows(side: Side) -> Rows:
    """Return a side as rows of the table `compared`: one line an item, the side's own facts repeated."""
    head: dict[str, Any] = {"side": side.label, "machine": dataclasses.asdict(side.machine), "arm": side.subject_arm}
    head |= {"factors": side.factors, "claims": side.claims, "notes": side.notes}
    return [head | {"item": dataclasses.asdict(one)} for one in side.items]


def of_rows(rows: Rows) -> list[Side]:
    """Return the sides that the table `compared` holds; a row of another form is left out."""
    by_label: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if isinstance(row.get("machine"), dict) and isinstance(row.get("item"), dict):
            by_label.setdefault(str(row.get("side")), []).append(row)
    found = []
    for label, mine in by_label.items():
        first, items = mine[0], [Item(**row["item"]) for row in mine]
        facts = (_dict(first.get("factors")), items, first.get("claims") or [], _dict(first.get("notes")))
        found.append(Side(label, Machine(**first["machine"]), str(first.get("arm")), *facts))
    return found


def named_apart(every: list[Side]) -> list[Side]:
    """Return the sides with labels of their own: the second of two equal ones gets a number."""
    seen: dict[str, int] = {}
    found = []
    for side in every:
        seen[side.label] = count = seen.get(side.label, 0) + 1
        if count > 1:
            label = f"{side.label} #{count}"
            side = dataclasses.replace(side, label=label, machine=dataclasses.replace(side.machine, label=label))
        found.append(side)
    return found


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
