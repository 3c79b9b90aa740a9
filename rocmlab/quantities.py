"""Every quantity that a run's records hold, with the settings it was taken at. Pure: a run folder in, items out.

A ratio needs equal settings; a key whose value is None applies to the quantity, but is not stated.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocmlab import archs, ceiling, clock, curves, results, roof, speed, sweep
from rocmlab.machines import Machine
from rocmlab.rates import is_number

Rows = list[dict[str, Any]]

# A metric belongs to one question; the same question is asked of every machine, and has one figure.
QUESTIONS = {
    "decode_tok_s": "decode", "e2e_tok_s": "e2e", "end_to_end_tok_s": "e2e", "ttft_ms": "ttft", "tpot_ms": "tpot",
    "prefill_ms": "prefill", "batch_tok_s": "batch", "bandwidth_gb_s": "bandwidth", "train_images_s": "train",
    "forward_ms": "forward",
}  # fmt: skip
TEXT = ("new_tokens", "stop_rule")  # of what is written


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
    def possible(self) -> bool:
        """Tell whether it lies below its roof; 5% above the best that was measured is still possible."""
        return self.roof_pct is None or self.roof_pct <= roof.MOST_PCT[self.roof_kind or "stated"]

    @property
    def rises(self) -> bool:
        """Tell whether more is better: a rate, not a time."""
        return not self.metric.endswith("_ms")


def shape_of(spec: Any) -> str | None:
    """Return the shape of a model, whatever its weights: qwen3-0.6b for Qwen/Qwen3-0.6B and random:qwen3-0.6b."""
    if not spec:
        return None
    if spec == "bundled":
        return "smollm2-135m"
    return re.split(r"[/:\\]", str(spec))[-1].lower().removesuffix("-instruct") or None


def of_run(path: Path, arm: str, machine: Machine) -> list[Item]:
    """Return all quantities of a run folder; `arm` is that of its subject."""
    items = [*_generation(path, arm), *_lengths(path, arm), *_batches(path, arm), *_bandwidth(path, arm)]
    items += _vision(path, arm)
    return items + [one for row in results.rows(path, "reported") if (one := _reported(row, machine))]


def probe_of(path: Path, birth: dict[str, Any]) -> dict[str, Any]:
    """Return a run's device snapshot: the record of notebook 01, else that of run.json, else {}."""
    found = results.rows(path, "snapshot")
    newest = found[-1] if found else birth.get("snapshot")
    return newest if isinstance(newest, dict) else {}


def drivers_of(probe: dict[str, Any]) -> str | None:
    """Return the drivers that the system names, with their versions where it knows them; None where it names none."""
    driver, gpus = probe.get("driver"), probe.get("gpus")
    found = [f"{name} {one}" for name, one in driver.items() if one] if isinstance(driver, dict) else []
    for one in gpus if isinstance(gpus, list) else []:
        if isinstance(one, dict) and one.get("driver"):
            found.append(f"{one.get('vendor') or 'GPU'} {one['driver']}")
    return ", ".join({one.lower(): one for one in found}.values()) or None  # two sources may spell a vendor their way


def _peak(path: Path) -> float | None:
    birth = results.birth(path)
    subject = birth.get("subject")
    return roof.stated(probe_of(path, birth), subject if isinstance(subject, dict) else {})


def _settings(row: dict[str, Any], metric: str, **more: Any) -> dict[str, Any]:
    keys = ("dtype", "batch", "prompt_tokens", "new_tokens", "stop_rule", "visit", "method_version", "evidence_grade")
    found: dict[str, Any] = (
        {"metric": metric, "model": shape_of(row.get("model_spec"))} | {key: row.get(key) for key in keys} | more
    )
    # What comes after the first token changes neither the prefill nor the time to that token.
    return {k: v for k, v in found.items() if k not in TEXT or metric not in ("prefill_ms", "ttft_ms")}


def _middle(values: Iterable[Any]) -> list[float]:
    return [float(one) for one in values if is_number(one) and one == one]


def _generation(path: Path, arm: str) -> list[Item]:
    """Return decode rate, end-to-end rate and time to first token of notebook 03, one item a prompt, arm and dtype."""
    rows = results.rows(path, "generation")
    if not rows:
        return []
    frame, found = speed.table(rows), list[Item | None]()
    for keys, group in frame[frame["visit"] == "steady"].groupby(["device", "dtype", "kind", "prompt_id"], sort=False):
        first, here = rows[int(group.index[0])], "cpu" if keys[0] == "cpu" else "gpu"
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
    return roof.roof(results.rows(path, "ceiling"), _peak(path), row.get("weight_bytes"))


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
    frame, found = curves.steady(rows), list[Item | None]()
    for length, group in frame.groupby("length"):
        marks = {"kind": "hand", "visit": "steady", "length": length, "process": 0}
        first = next(r for r in rows if marks.items() <= r.items() and not r.get("error"))
        for metric in ("prefill_ms", "tpot_ms"):
            given = _settings(first, metric, way="hand-written loop")
            found.append(_item(QUESTIONS[metric], arm, f"{length} tokens", given, group[metric]))
    return [one for one in found if one]


def _batches(path: Path, arm: str) -> list[Item]:
    """Return the throughput of notebook 05, one item a context and batch."""
    every = [r | {"padded": bool(r.get("padded"))} for r in results.rows(path, "batches") if r.get("decode_step_ms")]
    rows = [r for r in every if r.get("kind") == "item" and not r.get("error")]
    rows = [r for r in rows if r.get("visit") == "steady" and not r["padded"]]
    found = []
    for key in dict.fromkeys((r["context"], r["batch"]) for r in rows):
        mine = [r for r in rows if (r["context"], r["batch"]) == key]
        rates = [
            1000 * key[1] / ms for ms in sweep.steps_of(every, {"context": key[0], "batch": key[1], "padded": False})
        ]
        given = _settings(mine[0], "batch_tok_s", way="hand-written loop", new_tokens=mine[0].get("new_tokens_each"))
        found.append(_item("batch", arm, f"batch {key[1]}, {key[0]} tokens", given, rates))
    return [one for one in found if one]


def _bandwidth(path: Path, arm: str) -> list[Item]:
    """Return the measured ceiling of the subject's memory."""
    rows, peak = results.rows(path, "ceiling"), _peak(path)
    best = ceiling.bandwidth(rows, peak) if roof.disturbed(rows) is None else None
    if best is None:
        return []
    row = next(r for r in rows if r.get("way") == best.way and r.get("bytes") == best.bytes)
    settings: dict[str, Any] = {"metric": "bandwidth_gb_s", "visit": "steady"}
    settings |= {key: row.get(key) for key in ("method_version", "evidence_grade")}
    samples = [best.bytes / ms / 1e6 for ms in clock.kept(row["samples_ms"])[0]]
    item = _item("bandwidth", arm, "copy or read", settings, samples)
    if item and peak:
        item = dataclasses.replace(item, gb_s=best.gb_s, roof_pct=100 * best.gb_s / peak, roof_kind="stated")
    return [item] if item else []


def _vision(path: Path, arm: str) -> list[Item]:
    """Return training rate and forward times of notebook 10, one item a network and arm."""
    rows = [r for r in results.rows(path, "vision") if r.get("kind") in ("steady", "queued") and is_number(r.get("ms"))]
    found = []
    for model, way in dict.fromkeys((r["model"], r["arm"]) for r in rows):
        mine = [r for r in rows if (r["model"], r["arm"]) == (model, way)]
        single = [r for r in mine if r["kind"] == "steady"]
        trained = model == "resnet50"
        chosen = [r for r in mine if r["kind"] == "queued"] or single if trained else single
        if not chosen:
            continue
        keys = ("model", "dtype", "batch", "image_px", "length_tokens", "layout", "method_version", "evidence_grade")
        # A network has a length in tokens or a size of pictures, never both.
        idle = "length_tokens" if chosen[0].get("length_tokens") is None else "image_px"
        settings = {key: chosen[0][key] for key in keys if key in chosen[0] and key != idle}
        metric = "train_images_s" if trained else "forward_ms"
        settings |= {"metric": metric, "visit": "steady", "way": f"{chosen[0]['kind']} steps"}
        samples = [1000 * chosen[0]["batch"] / r["ms"] if trained else r["ms"] for r in chosen]
        found.append(_item(QUESTIONS[metric], arm, f"{model}, {way}", settings, samples))
    return [one for one in found if one]


# ---- numbers that somebody reported, and single records


def _reported(row: dict[str, Any], machine: Machine) -> Item | None:
    """Return one number as its source states it: settings that it does not state are null."""
    metric, value = row.get("metric"), row.get("value")
    if metric not in QUESTIONS or not is_number(value):
        return None
    settings = _settings(row, str(metric)) | {key: row[key] for key in ("image_px", "way") if key in row}
    settings["evidence_grade"] = "reported"
    settings.pop("method_version")  # of this program: it does not apply to what others measured
    if QUESTIONS[metric] in ("train", "forward"):
        settings = {k: v for k, v in settings.items() if k not in (*TEXT, "prompt_tokens")}
    arm, low, high = str(row.get("arm") or "gpu"), row.get("low"), row.get("high")
    item = Item(QUESTIONS[metric], arm, str(row.get("what") or ""), settings, float(value), low=low, high=high)
    known = archs.product(machine.arch, machine.name, machine.memory_bytes) if arm == "gpu" else None
    if is_number(row.get("weight_bytes")) and metric in ("decode_tok_s", "e2e_tok_s"):
        peak = roof.Roof(known["bandwidth_gbs"] if known else None, "stated")
        item = _with_roof(item, [row["weight_bytes"] * value / 1e9], peak)
    return item
