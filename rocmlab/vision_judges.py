"""Are the networks right, what makes them faster, what is claimed elsewhere? Judges of notebook 10, pure.

`judge(rows, ...)` takes the records of one run and returns findings; each can come out more than one way.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

from rocmlab import curve_judges, timing, vision_tables, words
from rocmlab.findings import Finding, finding
from rocmlab.rates import is_number
from rocmlab.tolerance import EPSILON, SLACK
from rocmlab.words import number

# Roundings one after the other: convolutions or products, norms, activations, sums.
DEPTH = {"resnet50": 107, "bert_base": 96, "vgg16": 32}
TERMS = 4608  # of the longest sum in a convolution, 512 x 3 x 3
# A gradient jumps wherever rounding turns a ReLU over. Worst layer of right arms, on a CPU: 0.013 in float32, 0.1
# in float16, 0.34 in bfloat16; one that is lost is 1 apart.
GRADIENT_ERROR = {"float32": 0.05, "float16": 0.4, "bfloat16": 0.7}
# Of thousands of outputs roundings average out, which those of a single loss do not. Right arms of the whole networks
# reach a sixth of what this allows (0.012 in bfloat16, 5e-7 in float32, on a CPU); SLACK would pass a quarter too much.
OUTPUT_SLACK = 1.0
GAIN, GAIN_OF_FEW = 1.05, 1.2  # times as fast; the second where there are too few samples for an interval
FIRST_TIMES = 3.0
NARROW = ("float16", "bfloat16")
OVER_PCT = 105.0  # of a ceiling that was measured: beyond its scatter another path than the ceiling's is at work


def judge(
    rows: list[dict[str, Any]], gemms: dict[str, float] | None = None, gb_s: float | None = None
) -> list[Finding]:
    """Return the findings of the networks."""
    found = [*judge_failed(rows), *judge_values(rows), *judge_batches(rows), *judge_first(rows)]
    found += [one for dtype in NARROW for one in judge_dtype(rows, dtype)]
    found += [*judge_layout(rows), *judge_claims(rows), *judge_roofs(rows, gemms or {}, gb_s)]
    return found + curve_judges.judge_conditions(rows)


def name(model: str) -> dict[str, str]:
    """Return a network and its work in both languages."""
    return words.both(f"vision_{model}")


def listed(parts: list[dict[str, str]]) -> dict[str, str]:
    """Join parts of a sentence in both languages."""
    return {"en": "; ".join(one["en"] for one in parts), "zh": "；".join(one["zh"] for one in parts)}


def _said(model: str, rest: str) -> dict[str, str]:
    return {lang: f"{text} {rest}" for lang, text in name(model).items()}


# ---- right or wrong


def allowed(model: str, dtype: str, slack: float = SLACK) -> float:
    """Return how far a loss or an output may lie from float64, relative to the norm: roundings add up as their root."""
    narrow = EPSILON.get(dtype, EPSILON["float32"])
    return slack * (math.sqrt(DEPTH[model]) * narrow + math.sqrt(TERMS) * EPSILON["float32"])


def faults(row: dict[str, Any]) -> list[str]:
    """Return what is wrong in the check of one arm, in words; [] where all is right."""
    check, dtype = row.get("check") or {}, row["dtype"]
    if check and not check.get("finite", True):
        return ["not finite"]
    found = []
    for key, bound in (
        ("loss_error", allowed(row["model"], dtype)),
        ("output_error", allowed(row["model"], dtype, OUTPUT_SLACK)),
        ("gradient_error", GRADIENT_ERROR.get(dtype, GRADIENT_ERROR["float32"])),
    ):
        if is_number(check.get(key)) and check[key] > bound:
            found.append(f"{key.removesuffix('_error')} {check[key]:.2g} > {bound:.2g}")
    return found


def judge_values(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say which networks differ from float64 on the CPU by more than rounding, or that none does."""
    checked = [row for row in rows if row.get("kind") == "first" and row.get("check")]
    wrong = [(row, said) for row in checked if (said := faults(row))]
    if wrong:
        parts = [_said(row["model"], f"{row['arm']}: {', '.join(said)}") for row, said in wrong]
        return [finding("LOSS_WRONG", numbers={"wrong": len(wrong), "checked": len(checked)}, which=listed(parts))]
    if not checked:
        return []
    worst = {dtype: max((_worst(r) for r in checked if r["dtype"] == dtype), default=None) for dtype in
             ("float32", *NARROW)}  # fmt: skip
    given = {f"{dtype}_error": value for dtype, value in worst.items() if value is not None}
    told = ", ".join(f"{dtype} {value:.2g}" for dtype, value in worst.items() if value is not None)
    return [finding("LOSSES_RIGHT", numbers={"checked": len(checked), **given}, told=told)]


def _worst(row: dict[str, Any]) -> float:
    return max((v for k, v in row["check"].items() if k.endswith("_error") and is_number(v)), default=0.0)


def judge_failed(rows: list[dict[str, Any]]) -> list[Finding]:
    """Name the arms that did not run, with their last words."""
    failed = [row for row in rows if row.get("kind") == "failed"]
    if not failed:
        return []
    parts = [_said(row["model"], f"{row['arm']}: {str(row['error']).splitlines()[0][:160]}") for row in failed]
    return [finding("NETWORK_FAILED", numbers={"failed": len(failed)}, which=listed(parts))]


def judge_batches(rows: list[dict[str, Any]]) -> list[Finding]:
    """Name the arms whose batch had to be halved to fit into memory."""
    less = [row for row in rows if row.get("kind") == "first" and row["batch"] < row["asked_batch"]]
    if not less:
        return []
    parts = [_said(row["model"], f"{row['arm']}: {row['asked_batch']} -> {row['batch']}") for row in less]
    return [finding("BATCH_STEPPED_DOWN", numbers={"stepped_down": len(less)}, which=listed(parts))]


def judge_first(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say whether the very first step of a shape takes much longer than a steady one."""
    firsts = []
    for model, arm in vision_tables.arms(rows):
        first, usual = vision_tables.of(rows, model, arm, "first"), vision_tables.steps_ms(rows, model, arm)
        if first and usual and is_number(first[0].get("first_ms")):
            firsts.append((first[0]["first_ms"], statistics.median(usual), model, arm))
    if not firsts:
        return []
    worst, usual_ms, model, arm = max(firsts)
    given = {"first_run_ms": worst, "steady_ms": usual_ms, "first_runs_total_s": sum(one[0] for one in firsts) / 1000}
    slow = any(first > FIRST_TIMES * usual for first, usual, _, _ in firsts)
    said: dict[str, Any] = {
        "which": name(model),
        "arm": arm,
        "first": number(worst, "ms"),
        "usual": number(usual_ms, "ms"),
    }
    return [finding("FIRST_RUN_SLOW" if slow else "FIRST_RUN_SAME", numbers=given, **said)]


# ---- what makes it faster


def gain(rows: list[dict[str, Any]], model: str, before: str, after: str) -> timing.Interval | None:
    """Return how many times as fast `after` is as `before`, from interleaved blocks; None without the same work."""
    samples = [vision_tables.steps_ms(rows, model, arm, "best") for arm in (before, after)]
    batches = [vision_tables.of(rows, model, arm, "first") for arm in (before, after)]
    if not all(samples) or not all(batches) or batches[0][0]["batch"] != batches[1][0]["batch"]:
        return None
    return timing.ratio_interval(*samples) if len(samples[0]) == len(samples[1]) else None


def verdict(ratio: timing.Interval) -> str:
    """Return helps, none (it does not, or costs) or undecided of a gain."""
    bound = GAIN if ratio.enough else GAIN_OF_FEW
    if ratio.low > bound:
        return "helps"
    return "none" if ratio.high < GAIN else "undecided"


def _sorted_gains(pairs: list[tuple[str, timing.Interval | None]]) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for model, ratio in pairs:
        if ratio is not None:
            few = "" if ratio.enough else f"n = {ratio.n}, "
            ends = f"{number(ratio.median, '×')} ({few}{number(ratio.low)}-{number(ratio.high)})"
            found.setdefault(verdict(ratio), []).append(_said(model, ends))
    return found


def _gains(prefix: str, pairs: list[tuple[str, timing.Interval | None]], **said: Any) -> list[Finding]:
    """Return up to three findings: where a change helps, where it does not, and where that cannot be told."""
    codes = {"helps": "HELPS", "none": "NO_GAIN", "undecided": "UNDECIDED"}
    numbers = {f"{model}_gain": ratio.median for model, ratio in pairs if ratio is not None}
    sorted_out = _sorted_gains(pairs)
    return [
        finding(f"{prefix}_{codes[key]}", numbers=numbers, which=listed(sorted_out[key]), **said)
        for key in codes
        if key in sorted_out
    ]


def judge_dtype(rows: list[dict[str, Any]], dtype: str) -> list[Finding]:
    """Say where a 16-bit dtype is faster than float32, in the same layout and batch."""
    models = dict.fromkeys(model for model, _ in vision_tables.arms(rows))
    return _gains("DTYPE", [(model, gain(rows, model, "float32", dtype)) for model in models], dtype=dtype)


def judge_layout(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say where channels_last is faster than the default layout, dtype by dtype."""
    found = []
    for dtype in ("float16", "float32", "bfloat16"):
        pairs = [
            (model, gain(rows, model, dtype, f"{dtype} channels_last"))
            for model in dict.fromkeys(model for model, _ in vision_tables.arms(rows))
        ]
        found += _gains("CHANNELS_LAST", pairs, dtype=dtype)
    return found


def judge_roofs(rows: list[dict[str, Any]], gemms: dict[str, float], gb_s: float | None) -> list[Finding]:
    """Say how near the networks in float32 come to the measured roofs; [] where neither roof is known."""
    parts: list[dict[str, str]] = []
    given: dict[str, Any] = {}
    for model in dict.fromkeys(model for model, _ in vision_tables.arms(rows)):
        first = vision_tables.of(rows, model, "float32", "first")
        reached = vision_tables.rate(rows, model, "float32")
        shares = vision_tables.roof_shares(first[0], reached, gemms, gb_s) if first else {}
        given |= {f"{model}_{key}": value for key, value in shares.items() if value is not None}
        if any(value is not None for value in shares.values()):
            parts.append(
                _said(model, " / ".join(number(shares[f"{roof}_pct"], "%") for roof in ("arithmetic", "memory")))
            )
    over = any(is_number(value) and value > OVER_PCT for key, value in given.items() if key.endswith("arithmetic_pct"))
    variant = "over" if over else None
    return [finding("NETWORK_ROOFS", numbers=given, variant=variant, which=listed(parts))] if parts else []


# ---- beside what is claimed


def judge_claims(rows: list[dict[str, Any]]) -> list[Finding]:
    """Set what an article claims beside what was measured; a ratio only where both did the same."""
    if not vision_tables.arms(rows):
        return []
    table = vision_tables.beside_claims(rows).to_dict("records")
    same = [line for line in table if is_number(line["amd_ratio"]) and line["amd_ratio"] == line["amd_ratio"]]
    if not same:
        why = [line["amd_ratio_reason"] for line in table if line["amd_ratio_reason"]]
        return [finding("CLAIMS_NOT_COMPARED", why=listed(list({one["en"]: one for one in why}.values())))]
    parts = [
        {
            lang: f"{line['quantity'][lang]}: {number(line['amd_ratio'], '×')} / {number(line['nvidia_ratio'], '×')}"
            for lang in ("en", "zh")
        }
        for line in same
    ]
    ratios = {f"{key}_highest": max(line[key] for line in same) for key in ("amd_ratio", "nvidia_ratio")}
    return [finding("BESIDE_CLAIMS", numbers=ratios, which=listed(parts))]
