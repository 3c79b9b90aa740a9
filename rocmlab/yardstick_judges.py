"""Is it the device or the engine? Judges of what llama.cpp and torch do with the same weights, pure.

`judge(rows, torch_rows)` takes rows of the table `yardstick`; `table(rows)` shows them.
"""

from __future__ import annotations

import statistics
from typing import Any

import pandas as pd

from rocmlab import curves, timing, words
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.rates import is_number, rates
from rocmlab.timing import Interval

Row = dict[str, Any]
FASTER, SLOWER = 1.25, 0.8  # beyond these one engine is called faster
SAME_BYTES_PCT = 10.0  # two files of one model in one dtype differ by less


def judge(rows: list[Row], torch_rows: list[Row] | None = None) -> list[Finding]:
    """Return the findings, worst first. `torch_rows` (of the table `lengths`) serve where torch is not in `rows`."""
    ran = [row for row in rows if row["status"] == "OK" and row.get("decode_tok_s")]
    others = [row for row in ran if row["engine"] != "torch"]
    found = [_lacking(row) for row in rows if row["status"] != "OK"]
    if others:
        eager = [row for row in ran if row["engine"] == "torch"] + from_lengths(torch_rows or [])
        for side in ("CPU", "GPU"):
            mine = [row for row in others if _side(row) == side]
            beside = next((row for row in eager if _side(row) == side), None)
            if mine:
                found += [_compared(side, mine, beside), *_quantised(side, mine)]
    shares = [row["others_cpu_pct"] for row in rows if row.get("others_cpu_pct") is not None]
    if shares and max(shares) > timing.OTHERS_PCT:
        numbers = {"others_cpu_pct": statistics.median(shares), "others_cpu_max_pct": max(shares)}
        found.append(finding("OTHER_WORK", numbers=numbers))
    return worst_first(found)


def from_lengths(rows: list[Row]) -> list[Row]:
    """Return torch as one row, from the steady texts of notebook 04 at its shortest prompt; [] for another model."""
    mine = [
        r for r in rows if r.get("kind") == "hand" and r.get("visit") == "steady" and r.get("model_spec") == "bundled"
    ]
    shortest = min((r["length"] for r in mine), default=None)
    told = [rates(r)["decode_tok_s"] for r in mine if r["length"] == shortest and not r.get("error")]
    good = [one for one in told if is_number(one)]
    if not good:
        return []
    row = {"engine": "torch", "backend": "eager", "device": "CPU" if mine[0]["device"] == "cpu" else mine[0]["device"]}
    row |= {"quantisation": mine[0]["dtype"], "model_bytes": mine[0]["weight_bytes"], "decode_tok_s": good}
    return [row | {"status": "OK", "prefill_tok_s": []}]


def _side(row: Row) -> str:
    return "CPU" if str(row.get("device")).upper() == "CPU" else "GPU"


def _lacking(row: Row) -> Finding:
    what = " ".join(str(part) for part in (row["engine"], row.get("quantisation")) if part)
    variant = None if row["status"] == "ABSENT" else "failed"
    return finding("YARDSTICK_ABSENT", variant=variant, what=what, status=row["status"], reason=row.get("reason"))


def like(others: list[Row], eager: Row) -> tuple[Row | None, str]:
    """Return (the row to compare torch with, how): as many bytes (same), else more bytes (more), else fewer (fewer)."""
    sized = [row for row in others if row.get("model_bytes") and eager.get("model_bytes")]
    near = [row for row in sized if abs(row["model_bytes"] / eager["model_bytes"] - 1) <= SAME_BYTES_PCT / 100]
    more = [row for row in sized if row["model_bytes"] > eager["model_bytes"]]
    if near:
        return max(near, key=lambda row: statistics.median(row["decode_tok_s"])), "same"
    if more:
        return min(more, key=lambda row: row["model_bytes"]), "more"
    return (max(sized, key=lambda row: row["model_bytes"]), "fewer") if sized else (None, "")


def _compared(side: str, others: list[Row], eager: Row | None) -> Finding:
    """Compare torch with the other engine over as many bytes a token as can be had."""
    row, how = like(others, eager) if eager else (None, "")
    if eager is None or row is None:
        best = max(others, key=lambda one: statistics.median(one["decode_tok_s"]))
        given = {"other_tok_s": statistics.median(best["decode_tok_s"]), "other_gb_s": gb_s(best)}
        return finding(
            "YARDSTICK_ALONE", numbers=_null(given), side=side, engine=best["engine"], kind=best["quantisation"]
        )
    mine, his = (curves.interval(one["decode_tok_s"]) for one in (row, eager))
    assert isinstance(mine, Interval) and isinstance(his, Interval)
    given = {"other_tok_s": mine.median, "torch_tok_s": his.median, "times": mine.median / his.median}
    given |= {
        "low": mine.low / his.high,
        "high": mine.high / his.low,
        "other_gb_s": gb_s(row),
        "torch_gb_s": gb_s(eager),
    }
    fills = [statistics.median(one["prefill_tok_s"]) if one.get("prefill_tok_s") else None for one in (row, eager)]
    given |= {"other_prefill_tok_s": fills[0], "torch_prefill_tok_s": fills[1]}
    said = {"side": side, "engine": row["engine"], "backend": row["backend"], "kind": row["quantisation"] or "unknown"}
    said |= {"dtype": eager["quantisation"], "how": words.both(f"yardstick_{how}")}
    enough = mine.enough and his.enough
    if how != "fewer" and enough and given["low"] > FASTER:
        return finding("YARDSTICK_FASTER", numbers=_null(given), variant=side.lower(), **said)
    if how == "same" and enough and given["high"] < SLOWER:
        return finding("YARDSTICK_SLOWER", numbers=_null(given), **said)
    if how == "same" and enough and given["low"] >= SLOWER and given["high"] <= FASTER:
        return finding("YARDSTICK_EQUAL", numbers=_null(given), **said)
    return finding("YARDSTICK_UNDECIDED", numbers=_null(given), **said)


def _quantised(side: str, others: list[Row]) -> list[Finding]:
    """Say what fewer bytes alone bring: the same engine, the same device, the quantised weights against float32."""
    sized = sorted((row for row in others if row.get("model_bytes")), key=lambda row: row["model_bytes"])
    if len(sized) < 2 or sized[-1]["model_bytes"] < 1.5 * sized[0]["model_bytes"]:
        return []
    small, large = sized[0], sized[-1]
    fast, slow = (curves.interval(row["decode_tok_s"]) for row in (small, large))
    assert isinstance(fast, Interval) and isinstance(slow, Interval)
    given = {"small_tok_s": fast.median, "large_tok_s": slow.median, "times_faster": fast.median / slow.median}
    given |= {"low": fast.low / slow.high, "high": fast.high / slow.low}
    given["times_fewer_bytes"] = large["model_bytes"] / small["model_bytes"]
    said = {"small": small["quantisation"], "large": large["quantisation"], "side": side}
    variant = None if given["low"] > 1 else "no_help" if given["high"] <= FASTER else "undecided"
    return [finding("YARDSTICK_FEWER_BYTES", numbers=given, variant=variant, **said)]


def gb_s(row: Row) -> float | None:
    """Return the bytes of weights that writing moves, in GB/s; None without a size."""
    if not row.get("model_bytes") or not row.get("decode_tok_s"):
        return None
    return statistics.median(row["decode_tok_s"]) * row["model_bytes"] / 1e9


def _null(given: dict[str, Any]) -> dict[str, Any]:
    return given | {f"{key}_reason": "not measured" for key, value in given.items() if value is None}


def table(rows: list[Row]) -> pd.DataFrame:
    """Return one line an engine, device and quantisation, for people; what is absent has its reason."""
    lines = []
    for row in rows:
        line: Row = {"engine": row["engine"], "backend": row.get("backend") or "-", "device": row.get("device") or "-"}
        line |= {"quantisation": row.get("quantisation") or "-", "threads": row.get("threads")}
        line["model_gb"] = row["model_bytes"] / 1e9 if row.get("model_bytes") else None
        for name in ("prefill_tok_s", "decode_tok_s"):
            line[name] = curves.interval(row.get(name) or [])
        line["yardstick_gb_s"] = gb_s(row)
        why = row.get("reason") or words.both("yardstick_untold")
        lines.append(line | {f"{key}_reason": why for key, value in list(line.items()) if value is None})
    return pd.DataFrame(lines, dtype=object)


OWN = ("backend", "device", "threads", "prefill_tok_s", "decode_tok_s")
LABELS = (
    {name: words.both(f"column_yardstick_{name}") for name in OWN}
    | {name: words.both(f"column_{name}") for name in ("engine", "quantisation", "model_gb", "yardstick_gb_s")}
)  # fmt: skip
