"""What do the records of lengths and batches say? Pure: rows in, tables and fits out.

`by_length`, `by_visit`, `ways`, `stamp_costs` and `line` serve notebook 04; `by_batch` and `sweep` notebook 05. Bytes a
token = unique weights read + cache read + cache written; GB = 1e9.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from rocmlab import timing, words
from rocmlab.first_visits import Visit
from rocmlab.rates import gap_ms, is_number, longest_gap_ms, rates
from rocmlab.timing import Interval

PERCENTILES = (50, 90, 99)
HOST_BOUND = 0.85  # a step that takes this share of its time to queue waits for nothing: methods section 4


# ---- lengths (04)


def generations(rows: list[dict[str, Any]], kind: str = "hand") -> pd.DataFrame:
    """Return one line a text: process, length, visit, block, prefill_ms, ttft_ms, tpot_ms, itl_ms (median), others."""
    lines = []
    for row in rows:
        if row.get("kind") != kind or row.get("error"):
            continue
        rate = rates(row)
        line = {name: row.get(name) for name in ("process", "length", "visit", "block", "new_tokens")}
        line["prefill_ms"] = 1000 * row["t_prefill_s"] if is_number(row.get("t_prefill_s")) else None
        line["ttft_ms"] = 1000 * rate["ttft_s"] if rate["ttft_s"] else None
        line["tpot_ms"], line["e2e_tok_s"] = rate["tpot_ms"], rate["e2e_tok_s"]
        line["itl_ms"], line["itl_most_ms"] = gap_ms(row), longest_gap_ms(row)
        line["context"] = (row.get("prompt_tokens") or 0) + (row.get("new_tokens") or 0) / 2
        lines.append(line)
    names = ["process", "length", "visit", "block", "new_tokens", "prefill_ms", "ttft_ms", "tpot_ms", "e2e_tok_s"]
    return pd.DataFrame(lines, columns=[*names, "itl_ms", "itl_most_ms", "context"])


def steady(rows: list[dict[str, Any]], kind: str = "hand", process: int = 0) -> pd.DataFrame:
    """Return the steady texts of one process: absolute times move between processes, so they are not pooled."""
    frame = generations(rows, kind)
    return frame[(frame["visit"] == "steady") & (frame["process"] == process)]


def gaps_ms(rows: list[dict[str, Any]], length: int) -> list[float]:
    """Return every gap between neighbouring tokens (ITL) of the first process's steady texts of one length."""
    mine = [r for r in rows if r.get("kind") == "hand" and r.get("visit") == "steady" and r.get("process") == 0]
    stamps = [r["token_stamps_s"] for r in mine if r.get("length") == length and r.get("token_stamps_s")]
    return [1000 * (late - early) for one in stamps for early, late in itertools.pairwise(one)]


def bytes_a_token(row: dict[str, Any], context: float, batch: int = 1) -> float | None:
    """Return the bytes that one decode step moves: weights once, and for each row the cache read and one position
    written."""
    if not is_number(row.get("weight_bytes")):
        return None
    return row["weight_bytes"] + batch * (row.get("kv_bytes_a_position") or 0) * (context + 1)


def by_length(rows: list[dict[str, Any]], ceiling_gb_s: float | None, reason: Any = None) -> pd.DataFrame:
    """Return one line a prompt length: prefill, TTFT, TPOT, ITL percentiles, GB/s, MBU; null with a reason."""
    frame, lines = steady(rows), []
    lengths = sorted({r["length"] for r in rows if r.get("kind") == "hand" and r.get("visit") != "cold"})
    head: dict[str, Any] = next((r for r in rows if r.get("kind") == "hand"), {})
    for length in lengths:
        group = frame[frame["length"] == length]
        line: dict[str, Any] = {"length_tokens": length}
        for name in ("prefill_ms", "ttft_ms", "tpot_ms"):
            line[name] = interval(group[name])
        line["prefill_tok_s"] = 1000 * length / line["prefill_ms"].median if line["prefill_ms"] else None
        gaps = pd.Series(gaps_ms(rows, length), dtype=float)
        line |= {f"itl_p{p}_ms": float(gaps.quantile(p / 100)) if len(gaps) else None for p in PERCENTILES}
        moved = bytes_a_token(head, float(group["context"].iloc[0])) if len(group) else None
        line["gb_s"] = moved / line["tpot_ms"].median / 1e6 if moved and line["tpot_ms"] else None
        line["mbu_pct"] = 100 * line["gb_s"] / ceiling_gb_s if line["gb_s"] and ceiling_gb_s else None
        full = any(r.get("error") for r in rows if r.get("kind") == "hand" and r.get("length") == length)
        why = words.both("no_room" if full else "lengths_not_reached")
        line |= {f"{name}_reason": why for name, value in list(line.items()) if value is None}
        if line["gb_s"] and not ceiling_gb_s:
            line["mbu_pct_reason"] = reason or words.both("roof_unknown")
        lines.append(line)
    return pd.DataFrame(lines)


def prefill_growth(rows: list[dict[str, Any]]) -> dict[int, Interval]:
    """Return {length: prefill over that of the shortest prompt in the same steady round}, of the first process."""
    wide = steady(rows).pivot_table(index="block", columns="length", values="prefill_ms", aggfunc="first")
    lengths = [int(length) for length in wide.columns]
    found = {length: interval(wide[length] / wide[min(lengths)]) for length in lengths}
    return {length: one for length, one in found.items() if one}


def interval(samples: Any) -> Interval | None:
    """Return the median with its interval of what is there."""
    return timing.median_interval([float(one) for one in samples if is_number(one) and one == one])


def by_visit(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one line a length: TTFT and the median gap (ITL) at the first and the second visit and steady, and the
    largest gap of the first, all of one process."""
    frame = generations(rows)
    frame = frame[frame["process"] == 0]
    lines = []
    for length, group in frame[frame["visit"] != "cold"].groupby("length"):
        line: dict[str, Any] = {"length_tokens": length}
        for name in ("ttft", "itl"):
            for visit in ("first", "second"):
                line[f"{name}_{visit}_ms"] = _only(group, visit, f"{name}_ms")
            line[f"{name}_steady_ms"] = interval(group[group["visit"] == "steady"][f"{name}_ms"])
        line["itl_first_most_ms"] = _only(group, "first", "itl_most_ms")
        lines.append(line)
    return pd.DataFrame(lines)


def first_visits(rows: list[dict[str, Any]], later: str = "second") -> list[Visit]:
    """Return the first visit of each length beside its second, or beside its steady ones where there are any."""
    found = []
    for line in by_visit(rows).to_dict("records"):
        first, second, steady_ms = (line[f"itl_{name}_ms"] for name in ("first", "second", "steady"))
        usual = steady_ms.median if later == "steady" and steady_ms else second
        if is_number(first) and is_number(usual) and first == first and usual == usual:
            found.append(Visit(first, usual, line["itl_first_most_ms"]))
    return found


def _only(group: pd.DataFrame, visit: str, column: str) -> float | None:
    values = group[group["visit"] == visit][column].dropna()
    return float(values.iloc[0]) if len(values) else None


def by_process(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the median steady TPOT of each process at the shortest length."""
    frame = generations(rows)
    frame = frame[frame["visit"] == "steady"]
    if frame.empty:
        return pd.DataFrame(columns=["process", "tpot_ms"])
    frame = frame[frame["length"] == frame["length"].min()]
    return pd.DataFrame([{"process": p, "tpot_ms": interval(g["tpot_ms"])} for p, g in frame.groupby("process")])


def ways(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Return TPOT in ms of generate() and of the hand-written loop, paired by interleaved block."""
    both = [generations(rows, kind).dropna(subset=["tpot_ms"]).set_index("block")["tpot_ms"] for kind in
            ("generate", "by_hand")]  # fmt: skip
    shared = [block for block in both[0].index if block in both[1].index]
    return [float(both[0][b]) for b in shared], [float(both[1][b]) for b in shared]


def by_way(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one line for generate() and one for the hand-written loop: TTFT, TPOT, end-to-end rate."""
    lines = []
    for kind, name in (("by_hand", "hand-written loop"), ("generate", "generate()")):
        frame = generations(rows, kind)
        if len(frame):
            columns = ("ttft_ms", "tpot_ms", "e2e_tok_s")
            lines.append({"way": name} | {column: interval(frame[column]) for column in columns})
    return pd.DataFrame(lines)


@dataclass(frozen=True)
class Line:
    """TPOT = a + b x context: a_ms at context 0, b_us a position with its 95% interval, largest residual in percent.

    `enough` is False where a length has fewer than six texts: drawn again they show less scatter than there is.
    """

    a_ms: float
    b_us: float
    b_low_us: float
    b_high_us: float
    residual_pct: float
    n: int
    enough: bool = True


def flat_to(times_ms: dict[int, float], factor: float) -> int:
    """Return the largest size up to which none, itself included, takes over `factor` times as long as the smallest."""
    sizes = sorted(times_ms)
    most = factor * times_ms[sizes[0]]
    return list(itertools.takewhile(lambda size: times_ms[size] <= most, sizes))[-1]


def line(frame: pd.DataFrame) -> Line | None:
    """Fit TPOT over context by least squares on the medians of each length; None below three lengths.

    The interval of b comes from drawing the texts of each length again (bootstrap): texts scatter, contexts do not.
    """
    frame = frame.dropna(subset=["tpot_ms"])
    groups = [list(g["tpot_ms"]) for _, g in frame.groupby("context")]
    contexts = sorted(frame["context"].unique())
    if len(contexts) < 3:
        return None
    a, b = _fit(contexts, [statistics.median(g) for g in groups])
    draw = random.Random(timing.BOOTSTRAP_SEED)
    slopes = sorted(
        _fit(contexts, [statistics.median(draw.choices(g, k=len(g))) for g in groups])[1]
        for _ in range(timing.BOOTSTRAP_ROUNDS)
    )
    cut = round(0.025 * timing.BOOTSTRAP_ROUNDS)
    off = [abs(statistics.median(g) / (a + b * x) - 1) for x, g in zip(contexts, groups, strict=True) if a + b * x > 0]
    worst = 100 * max(off) if off else float("inf")
    return Line(a, 1000 * b, 1000 * slopes[cut], 1000 * slopes[-cut - 1], worst, len(frame),
                enough=min(len(g) for g in groups) >= timing.MIN_REPEATS)  # fmt: skip


def _fit(xs: Sequence[float], ys: Sequence[float]) -> tuple[float, float]:
    slope, intercept = statistics.linear_regression(xs, ys)
    return intercept, slope


def stamp_costs(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one line a case: ms a step with and without stamps, the cost in percent, and what bound the step."""
    lines = []
    for case in dict.fromkeys(row["case"] for row in rows):
        mine = [r for r in rows if r["case"] == case]
        with_, without = (_by_block(mine, stamped) for stamped in (True, False))
        shared = [block for block in with_ if block in without]
        if not shared:
            continue
        ratio = timing.ratio_interval([with_[b] for b in shared], [without[b] for b in shared])
        assert ratio is not None
        queued = statistics.median(r["first_queued_ms"] * r["steps"] / r["ms"] for r in mine if not r["stamped"])
        on_cpu = mine[0].get("device") == "cpu"
        line: dict[str, Any] = {"case": case, "stamped_ms": interval(with_.values())}
        line |= {"unstamped_ms": interval(without.values()), "injected_ms": mine[0]["injected_ms"]}
        cost, low, high = (100 * (end - 1) for end in (ratio.median, ratio.low, ratio.high))
        line["cost_pct"] = Interval(cost, low, high, ratio.n, ratio.enough)
        line["bound_by"] = "CPU" if on_cpu else "host" if queued >= HOST_BOUND else "device"
        lines.append(line)
    return pd.DataFrame(lines)


def _by_block(rows: list[dict[str, Any]], stamped: bool) -> dict[int, float]:
    return {r["block"]: r["ms"] / r["steps"] for r in rows if r["stamped"] is stamped}
