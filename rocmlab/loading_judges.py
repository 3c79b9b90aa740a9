"""Does feeding images hold training up, does pinned memory help, is OpenCL of any use? Judges of notebook 10, pure."""

from __future__ import annotations

import statistics
from typing import Any

from rocmlab import timing, vision_tables, words
from rocmlab.findings import Finding, finding
from rocmlab.rates import is_number
from rocmlab.words import number

GAIN = 1.1  # times as fast: less is not worth a setting


def judge(
    loader: list[dict[str, Any]], transfers: list[dict[str, Any]], opencv: list[dict[str, Any]], eats: float | None
) -> list[Finding]:
    """Return the findings of loader, copies and OpenCV; `eats` is what training takes, in images a second."""
    return [*judge_workers(loader, eats), *judge_pinned(transfers), *judge_opencv(opencv)]


# ---- the loader


def judge_workers(rows: list[dict[str, Any]], eats: float | None) -> list[Finding]:
    """Say what the best number of workers gives over none, and whether that feeds the training measured here."""
    found = [finding("WORKERS_FAILED", which=_reasons(failed))] if (failed := _failed(rows)) else []
    timed = {row["workers"]: row for row in rows if row.get("samples_ms")}
    if 0 not in timed or len(timed) < 2:
        return found
    rates = {count: 1000 * row["batch"] / statistics.median(row["samples_ms"]) for count, row in timed.items()}
    best = max((count for count in rates if count), key=lambda count: rates[count])
    given = {"images_a_second_0": rates[0], "images_a_second_best": rates[best], "workers_best": best}
    found.append(finding(_worth(timed[0], timed[best]), numbers=given | {"times": rates[best] / rates[0]}))
    return found + (_feeding(rates, eats) if eats else [])


def _worth(without: dict[str, Any], best: dict[str, Any]) -> str:
    """Return the code: a gain whose intervals touch is none yet. They cannot take turns, so no ratio is drawn."""
    alone, several = (timing.median_interval(row["samples_ms"]) for row in (without, best))
    assert alone is not None and several is not None
    if alone.median < GAIN * several.median:
        return "WORKERS_NO_GAIN"
    return "WORKERS_HELP" if several.high < alone.low else "WORKERS_UNDECIDED"


def _failed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if not row.get("samples_ms") and "more workers than" not in str(row.get("reason"))]


def _reasons(rows: list[dict[str, Any]]) -> str:
    return "; ".join(f"{row['workers']}: {row.get('reason')}" for row in rows)


def _feeding(rates: dict[int, float], eats: float) -> list[Finding]:
    enough = [count for count in sorted(rates) if rates[count] >= eats]
    given: dict[str, Any] = {
        "eats": eats,
        "feeds_best": max(rates.values()),
        "workers_enough": enough[0] if enough else None,
    }
    if not enough:
        given["workers_enough_reason"] = "none of the numbers tried is enough"
    return [finding("LOADER_FEEDS" if enough else "LOADER_STARVES", numbers=given, tried=max(rates))]


# ---- copies


def judge_pinned(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say whether pinned memory copies faster at the size of one batch, and at the largest one that was measured."""
    size = next((row["batch_bytes"] for row in rows if row.get("batch_bytes")), None)
    ratio = vision_tables.pinned_ratio(rows, size) if size else None
    if size is None or ratio is None:
        return []
    medians = {row["way"]: statistics.median(row["samples_ms"]) for row in rows if row["bytes"] == size}
    best = {way: size / ms / 1e6 for way, ms in medians.items()}
    given = {"pinned_times": ratio.median, "pageable_gb_s": best["pageable"], "pinned_gb_s": best["pinned"]}
    said: dict[str, Any] = {"size": number(size / 2**20, "MiB"), "low": ratio.low, "high": ratio.high}
    if not ratio.enough or ratio.low <= GAIN <= ratio.high:
        return [finding("PINNED_UNDECIDED", numbers=given, **said)]
    return [finding("PINNED_HELPS" if ratio.low > GAIN else "PINNED_NO_GAIN", numbers=given, **said)]


# ---- OpenCV


def judge_opencv(rows: list[dict[str, Any]]) -> list[Finding]:
    """Say whether OpenCV is here, on which OpenCL device, whether the result is the same, and whether it is faster."""
    crashed = [row for row in rows if row.get("installed") is None]
    found = [finding("OPENCV_ENDED", error=row.get("error")) for row in crashed[:1]]
    if any(row.get("installed") is False for row in rows):
        return [*found, finding("OPENCV_ABSENT")]
    working = [row for row in rows if row.get("device_name")]
    if not working:
        here = [row for row in rows if row.get("installed")]
        return [*found, finding("OPENCL_NONE", version=here[0]["version"])] if here else found
    row = working[-1]
    said = {"device": row["device_name"].strip(), "kind": row["device_kind"], "version": row["version"]}
    if row["pixels_apart"]:
        given = {"levels_apart": row["levels_apart"], "pixels_apart": row["pixels_apart"]}
        return [*found, finding("OPENCL_WRONG", numbers=given, **said)]
    return [*found, _opencl_gain(row, said)]


def _opencl_gain(row: dict[str, Any], said: dict[str, Any]) -> Finding:
    ratio = timing.ratio_interval(row["mat_ms"], row["umat_ms"])
    assert ratio is not None
    copied = timing.ratio_interval(row["mat_ms"], row["umat_copied_ms"])
    given: dict[str, Any] = {
        f"{name}_ms": statistics.median(row[f"{name}_ms"]) for name in ("mat", "umat", "umat_copied")
    }
    given |= {"umat_times": ratio.median, "umat_copied_times": copied.median if copied else None}
    given |= {"umat_first_ms": row["umat_first_ms"]}
    if not ratio.enough or ratio.low <= GAIN <= ratio.high:
        return finding("OPENCL_UNDECIDED", numbers=given, low=ratio.low, high=ratio.high, **said)
    return finding("OPENCL_HELPS" if ratio.low > GAIN else "OPENCL_NO_GAIN", numbers=given, **said)


def opencv_table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one line a try: which device, times of the filter, how far the results are apart."""
    lines = []
    for row in rows:
        why: Any = row.get("error") or words.both("opencv_no_device")
        line: dict[str, Any] = {"asked_for": row.get("choice") or words.both("opencv_default")}
        line |= {"opencl_device": (row.get("device_name") or "").strip() or None, "opencl_kind": row.get("device_kind")}
        for name in ("mat", "umat", "umat_copied"):
            line[f"{name}_ms"] = timing.median_interval(row.get(f"{name}_ms") or [])
        line |= {"umat_first_ms": row.get("umat_first_ms"), "levels_apart": row.get("levels_apart")}
        for key in [key for key, value in line.items() if value is None or not is_number(value)]:
            line[f"{key}_reason"] = why if line[key] is None else None
        lines.append(line)
    return lines
