"""What one run brings to a comparison: its machine, what it ran on, and every quantity with its settings.

`of_folder(path)` reads a run folder, `of_record(record)` a single rocmlab-run-1 file, `to_rows` and `of_rows` write a
side into records and read it back, so that a page can be rebuilt where the other runs are not. Nothing is measured.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocmlab import bundle, gpus, machines, quantities, readers, results
from rocmlab.machines import Machine
from rocmlab.quantities import QUESTIONS, Item, shape_of
from rocmlab.rates import is_number
from rocmlab.readers import measurements
from rocmlab.readers.records import RUN_SCHEMA

TABLES = ("generation", "lengths", "batches")  # that name the device
SUBJECT = ("machine", "os", "device")  # what a comparison is about


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


# ---- from a run folder or a record


def of_folder(path: Path, label: str = "") -> Side:
    """Return the side of a run folder. Raises ValueError when it is none."""
    birth = results.birth(path)
    if birth.get("schema") != results.BIRTH_SCHEMA:
        raise ValueError(f"{path.name}: not a run folder (no run.json of schema {results.BIRTH_SCHEMA})")
    return _of_birth(path, birth, label)


def own(path: Path) -> Side:
    """Return the side of this very run, also in JupyterLab, where a folder has records and no run.json."""
    birth = results.birth(path)
    if not birth:
        probe = quantities.probe_of(path, {})
        devices = {row.get("device") for table in TABLES for row in results.rows(path, table)}
        guess = {"device": "cuda:0"} if any(str(one).startswith("cuda") for one in devices) else {"device": "cpu"}
        birth = {"subject": gpus.subject(probe) if probe else guess | {"arch": None}}
    return _of_birth(path, birth, path.name)


def _of_birth(path: Path, birth: dict[str, Any], label: str) -> Side:
    label = label or short(birth.get("name") or path.name)
    try:
        return _understood(path, birth, label)
    except (KeyError, TypeError, AttributeError, IndexError, StopIteration, ArithmeticError, ValueError) as error:
        raise ValueError(f"{path.name}: its records cannot be understood ({type(error).__name__}: {error})") from None


def short(name: Any) -> str:
    """Return a name in one line that leaves room in tables and figures for what it names."""
    return " ".join(str(name).split())[:40].strip()


def _understood(path: Path, birth: dict[str, Any], label: str) -> Side:
    subject, probe = _dict(birth.get("subject")), quantities.probe_of(path, birth)
    arm = "cpu" if subject.get("device") == "cpu" else "gpu"
    machine = _machine(label, subject, probe)
    items = quantities.of_run(path, arm, machine)
    claims = [one for one in birth.get("claims") or [] if isinstance(one, dict)]
    notes = {key: birth.get(key) for key in ("source", "started", "method_version")}
    return Side(label, machine, arm, factors(birth, probe), items, claims, notes)


def _machine(label: str, subject: dict[str, Any], probe: dict[str, Any]) -> Machine:
    """Return the subject as a machine; its PCI id where the system lists one GPU of that target only."""
    listed = [_dict(one) for one in probe.get("gpus") or []]
    mine = [one for one in listed if one.get("pci_id") and one.get("arch") == subject.get("arch")]
    pci = subject.get("pci_id") or (mine[0]["pci_id"] if len(mine) == 1 else None)
    device = {"name": subject.get("name"), "arch": subject.get("arch"), "total_memory": subject.get("memory_bytes")}
    return machines.of_device(label, device, pci)


def factors(birth: dict[str, Any], probe: dict[str, Any]) -> dict[str, Any]:
    """Return what may explain a difference, apart from the device: each a text, None where it is unknown."""
    versions, windows = _dict(birth.get("versions")), _dict(probe.get("windows"))
    host = _dict(probe.get("host"))
    env = probe.get("env") if isinstance(probe.get("env"), dict) else birth.get("variables")
    return {
        "os": probe.get("platform"),
        "torch_version": probe.get("torch_version") or versions.get("torch"),
        "hip_version": probe.get("torch_version_hip"),
        "cuda_version": probe.get("torch_version_cuda"),
        "driver": windows.get("display_driver") or quantities.drivers_of(probe),
        "transformers_version": versions.get("transformers"),
        "python_version": probe.get("python") or versions.get("python"),
        "cpu": host.get("cpu"),
        "variables": "; ".join(f"{k}={v}" for k, v in env.items()) if isinstance(env, dict) else None,
    }


RUN_SETTINGS = ("model", "dtype", "batch", "prompt_tokens", "new_tokens", "stop_rule", "metric")
RUN_FACTORS = (
    "os", "torch_version", "hip_version", "cuda_version", "driver", "transformers_version", "python_version", "cpu",
    "variables", "model_revision", "attention_backend",
)  # fmt: skip
RUN_MORE = ("way", "visit", "synchronized", "method_version", "evidence_grade", "image_px")


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
    name = short(record.get("machine") or label)
    machine = machines.of_device(name, device, record.get("pci_id"))
    arm = "gpu" if machine.arch not in (None, "cpu") or machine.name else "cpu"
    given = record.get("samples")
    samples = [float(one) for one in given if is_number(one)] if isinstance(given, list) else []
    what = f"{settings['prompt_tokens']} + {settings['new_tokens']} tokens"
    item = Item(QUESTIONS.get(metric, metric), arm, what, settings, float(value), samples)
    return Side(name, machine, arm, {key: record.get(key) for key in RUN_FACTORS}, [item], notes={"file": label})


# ---- into records and back


def record(run: results.Run, others: list[str]) -> list[str]:
    """Append the sides of other runs to the table `compared` and return a line for each, or why it cannot be read.

    A relative path starts at the checkout, because a notebook runs inside its run folder. Paths are not recorded.
    """
    run.append("compared", {"kind": "chosen", "count": len(others)})
    told: list[str] = []
    found: list[Side] = []
    for name in others:
        path = Path(name).expanduser()
        path = path if path.is_absolute() or not (results.home() / path).exists() else results.home() / path
        try:
            side = load(path)
        except (ValueError, OSError) as error:
            said = str(getattr(error, "strerror", None) or error)
            run.append("compared", {"kind": "unread", "file": path.name, "error": said})
            told.append(f"{path.name}: not compared, {said}")
            continue
        found.append(side)
    for side in named_apart(found):
        if side.items:
            run.append("compared", to_rows(side))
        told.append(f"{side.label}: {len(side.items)} quantities")
    return told or ["no other run was named; reference runs stand beside this one"]


def to_rows(side: Side) -> list[dict[str, Any]]:
    """Return a side as rows of the table `compared`: one line an item, the side's own facts repeated."""
    head: dict[str, Any] = {"side": side.label, "machine": dataclasses.asdict(side.machine), "arm": side.subject_arm}
    head |= {"factors": side.factors, "claims": side.claims, "notes": side.notes}
    return [head | {"item": dataclasses.asdict(one)} for one in side.items]


def of_rows(rows: list[dict[str, Any]]) -> list[Side]:
    """Return the sides that the table `compared` holds; a row of another form is left out."""
    by_label: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if isinstance(row.get("machine"), dict) and isinstance(row.get("item"), dict):
            by_label.setdefault(str(row.get("side")), []).append(row)
    found = []
    for label, mine in by_label.items():
        first, items = mine[0], [_made(Item, row["item"]) for row in mine]
        facts = (_dict(first.get("factors")), items, first.get("claims") or [], _dict(first.get("notes")))
        found.append(Side(label, _made(Machine, first["machine"]), str(first.get("arm")), *facts))
    return found


def _made(kind: Any, given: dict[str, Any]) -> Any:
    """Return a dataclass from what a record holds of it; what a later version added is left out."""
    return kind(**{one.name: given[one.name] for one in dataclasses.fields(kind) if one.name in given})


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
