"""What do the records of notebook 10 say? Pure: rows in, tables out.

`by_arm` gives one line a network and arm, `beside_claims` what an article claims beside what was measured here, with a
ratio only where both did the same.
"""

from __future__ import annotations

import statistics
from typing import Any

import pandas as pd

from rocmlab import timing, words
from rocmlab.rates import is_number
from rocmlab.timing import Interval

# What an article states, without samples, for batch 32, 224 x 224, FP32. It names Windows wheels of ROCm 5.6 that never
# existed, and no sequence length: these are claims. Milliseconds are of one pass over the batch.
# This is their source: an installed package has no outputs/. The runs in outputs/reference/ that hold them for a
# comparison are kept equal by a test.
CLAIMED_BATCH, CLAIMED_IMAGE, CLAIMED_DTYPE = 32, 224, "float32"
CARDS = ("RX 6800 XT", "RTX 3080")
CLAIMS: dict[str, dict[str, Any]] = {
    "resnet50": {"unit": "items_s", "RX 6800 XT": 312.0, "RTX 3080": 285.0},
    "bert_base": {"unit": "ms", "RX 6800 XT": 42.0, "RTX 3080": 38.0},
    "vgg16": {"unit": "ms", "RX 6800 XT": 56.0, "RTX 3080": 61.0},
}
ELEMENT = {"float16": 2, "bfloat16": 2}  # bytes; the counted ones are those of float32


def arms(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return (model, arm) in the order in which they were tried."""
    return list(dict.fromkeys((r["model"], r["arm"]) for r in rows if r.get("kind") in ("first", "failed")))


def of(rows: list[dict[str, Any]], model: str, arm: str, kind: str) -> list[dict[str, Any]]:
    """Return the rows of one kind of one arm, in the order of measurement; of several trials the last."""
    mine = [r for r in rows if r.get("kind") == kind and r.get("model") == model and r.get("arm") == arm]
    last = max((r.get("trial") or 0 for r in mine), default=0)
    return [r for r in mine if (r.get("trial") or 0) == last]


def steps_ms(rows: list[dict[str, Any]], model: str, arm: str, kind: str = "steady") -> list[float]:
    """Return the samples of an arm in ms a step; kind `best` takes queued steps, else single ones."""
    if kind == "best":
        return steps_ms(rows, model, arm, "queued") or steps_ms(rows, model, arm)
    return [r["ms"] for r in of(rows, model, arm, kind) if is_number(r.get("ms"))]


def rate(rows: list[dict[str, Any]], model: str, arm: str) -> Interval | None:
    """Return images or sequences a second of an arm: steps queued one behind the other, as a training loop does."""
    first = of(rows, model, arm, "first")
    samples = steps_ms(rows, model, arm, "best")
    return timing.median_interval([1000 * first[0]["batch"] / ms for ms in samples]) if first and samples else None


def gemm_rates(rows: list[dict[str, Any]], device: str | None) -> dict[str, float]:
    """Return the best measured FLOP/s of a matrix product by dtype, on this device, from the table gemm_rate."""
    best: dict[str, float] = {}
    for row in rows:
        samples = [ms for ms in row.get("samples_ms") or [] if is_number(ms) and ms > 0]
        flops = row.get("flops") or 2 * (row.get("m") or 0) * (row.get("n") or 0) * (row.get("k") or 0)
        if samples and flops and row.get("dtype") and row.get("device", device) == device:
            reached = flops / statistics.median(samples) * 1000
            best[row["dtype"]] = max(best.get(row["dtype"], 0.0), reached)
    return best


def by_arm(rows: list[dict[str, Any]], gemms: dict[str, float], gb_s: float | None) -> pd.DataFrame:
    """Return one line a network and arm: batch, first run, step, rate, shares of the roofs, peak memory, error."""
    return pd.DataFrame([_line(rows, model, arm, gemms, gb_s) for model, arm in arms(rows)])


def _line(
    rows: list[dict[str, Any]], model: str, arm: str, gemms: dict[str, float], gb_s: float | None
) -> dict[str, Any]:
    first, failed = of(rows, model, arm, "first"), of(rows, model, arm, "failed")
    line: dict[str, Any] = {"network": words.both(f"vision_{model}"), "network_arm": arm}
    why = failed[-1]["error"] if failed else words.both("none_plain")
    row: dict[str, Any] = first[0] if first else {}
    line |= {"batch": row.get("batch"), "first_run_ms": row.get("first_ms")}
    line["step_ms"] = timing.median_interval(steps_ms(rows, model, arm))
    line["items_a_second"] = rate(rows, model, arm)
    shares = roof_shares(row, line["items_a_second"], gemms, gb_s)
    peak = row.get("peak_bytes")
    line |= shares | {"peak_gib": peak / 2**30 if peak else None}
    line |= {"error": _error(row)}
    reasons = {
        "arithmetic_pct": words.both("vision_no_gemm"),
        "memory_pct": words.both("roof_unknown"),
        "peak_gib": words.both("vision_no_peak"),
    }
    for key in [key for key, value in line.items() if value is None]:
        line[f"{key}_reason"] = reasons.get(key, why) if row else why
    return line


def _error(row: dict[str, Any]) -> float | None:
    """Return the worse of an arm's errors against float64, relative to the norm."""
    found = [value for key, value in (row.get("check") or {}).items() if key.endswith("_error") and is_number(value)]
    return max(found, default=None)


def roof_shares(
    row: dict[str, Any], reached: Interval | None, gemms: dict[str, float], gb_s: float | None
) -> dict[str, float | None]:
    """Return {arithmetic_pct, memory_pct}: FLOP/s over the best matrix product, bytes/s over the memory's ceiling."""
    if not reached or not row.get("flops"):
        return {"arithmetic_pct": None, "memory_pct": None}
    steps = reached.median / row["batch"]
    top = gemms.get(row["dtype"])
    moved = row["bytes"] * ELEMENT.get(row["dtype"], 4) / 4
    return {
        "arithmetic_pct": 100 * row["flops"] * steps / top if top else None,
        "memory_pct": 100 * moved * steps / gb_s / 1e9 if gb_s else None,
    }


# ---- beside the claims


def plain_arm(rows: list[dict[str, Any]], model: str) -> str | None:
    """Return the arm that does what the article says it did: float32, the default layout; None if it has no time."""
    return CLAIMED_DTYPE if steps_ms(rows, model, CLAIMED_DTYPE) else None


def differs(rows: list[dict[str, Any]], model: str) -> dict[str, str] | None:
    """Return why a claim and the measurement are not the same work, None where they are."""
    arm = plain_arm(rows, model)
    if arm is None:
        return words.both("vision_not_measured")
    row = of(rows, model, arm, "first")[0]
    if row.get("device") == "cpu":
        return words.both("vision_cpu_not_gpu")
    if row.get("size") != "full":
        return words.both("vision_other_network")
    if model == "bert_base":
        return words.both("vision_no_length")
    if row.get("batch") != CLAIMED_BATCH or row.get("image_px") != CLAIMED_IMAGE:
        return words.both("vision_other_size", batch=row.get("batch"), image=row.get("image_px"))
    return None


def measured(rows: list[dict[str, Any]], model: str) -> Interval | None:
    """Return what was measured in the unit of the claim: items a second, or ms a pass."""
    arm = plain_arm(rows, model)
    if arm is None:
        return None
    if CLAIMS[model]["unit"] == "items_s":
        return rate(rows, model, arm)
    return timing.median_interval(steps_ms(rows, model, arm, "best"))


def beside_claims(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one line a claim: measured here in float32, claimed for two cards, and how many times as fast this is."""
    lines = []
    for model, claim in CLAIMS.items():
        here, why = measured(rows, model), differs(rows, model)
        line: dict[str, Any] = {"quantity": words.both(f"vision_claim_{model}"), "here": here}
        line |= {"claimed_amd": claim["RX 6800 XT"], "claimed_nvidia": claim["RTX 3080"]}
        for name, card in (("amd_ratio", "RX 6800 XT"), ("nvidia_ratio", "RTX 3080")):
            line[name] = None if why or here is None else _faster(here.median, claim[card], claim["unit"])
            line[f"{name}_reason"] = why
        line["here_reason"] = words.both("vision_not_measured")
        lines.append(line)
    return pd.DataFrame(lines)


def _faster(here: float, claimed: float, unit: str) -> float:
    return here / claimed if unit == "items_s" else claimed / here


def bars(rows: list[dict[str, Any]], side: str) -> pd.DataFrame:
    """Return network, who, items_s of what was measured (float32 and the fastest 16-bit arm) and of both claims."""
    found = []
    for model, claim in CLAIMS.items():
        name = words.word(f"vision_{model}", "en")
        narrow = [a for m, a in arms(rows) if m == model and not a.startswith("float32") and rate(rows, m, a)]
        fastest = max(narrow, key=lambda a: rate(rows, model, a).median, default=None)  # type: ignore[union-attr]
        for who, arm in ((f"{side} float32", CLAIMED_DTYPE), (f"{side}, fastest 16 bit", fastest)):
            got = rate(rows, model, arm) if arm else None
            found.append({"network": name, "who": who, "items_a_second": got.median if got else None,
                          "items_a_second_low": got.low if got else None,
                          "items_a_second_high": got.high if got else None})  # fmt: skip
        for card in CARDS:
            value = claim[card] if claim["unit"] == "items_s" else 1000 * CLAIMED_BATCH / claim[card]
            found.append({"network": name, "who": f"claim, {card}", "items_a_second": value})
    return pd.DataFrame(found)


# ---- loader and copies


def by_workers(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one line a number of workers: ms a batch, images a second, start."""
    lines = []
    for row in rows:
        samples = row.get("samples_ms") or []
        line = {"workers": row["workers"], "batch_ms": timing.median_interval(samples)}
        line["images_a_second"] = timing.median_interval([1000 * row["batch"] / ms for ms in samples])
        line["loader_start_ms"] = row.get("start_ms")
        lines.append(
            line | {f"{key}_reason": row.get("reason") for key in ("batch_ms", "images_a_second", "loader_start_ms")}
        )
    return pd.DataFrame(lines)


def by_transfer(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one line a size: GB/s from ordinary and from pinned memory to the card, and the ratio of the two."""
    lines = []
    for size in sorted({row["bytes"] for row in rows}):
        mine = {row["way"]: row for row in rows if row["bytes"] == size}
        line: dict[str, Any] = {"size_mib": size / 2**20}
        for way, row in mine.items():
            line[f"{way}_gb_s"] = timing.median_interval([size / ms / 1e6 for ms in row["samples_ms"]])
            line[f"{way}_gb_s_reason"] = row.get("reason")
        line["pinned_ratio"] = pinned_ratio(rows, size)
        lines.append(line)
    return pd.DataFrame(lines)


def pinned_ratio(rows: list[dict[str, Any]], size: int) -> Interval | None:
    """Return time of a copy from ordinary memory over that from pinned memory, paired by block."""
    found = {row["way"]: row["samples_ms"] for row in rows if row["bytes"] == size}
    both = [found.get("pageable") or [], found.get("pinned") or []]
    return timing.ratio_interval(*both) if both[0] and len(both[0]) == len(both[1]) else None
