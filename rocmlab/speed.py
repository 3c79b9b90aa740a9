"""What do the generation records say? Pure: rows of `generation` in, tables out.

`table(rows)` gives one line a generation; `by_prompt`, `measures`, `by_visit`, `by_process` and `by_dtype` the tables
of notebook 03. Decode rate, time to first token and end-to-end rate are three columns and never mixed.
"""

from __future__ import annotations

import itertools
from typing import Any

import pandas as pd

from rocmlab import timing
from rocmlab.rates import gap_ms, longest_gap_ms, rates

COLUMNS = ["arm", "device", "dtype", "kind", "visit", "process", "block", "prompt_id", "prompt_tokens", "new_tokens"]
GAPS = ("itl_ms", "itl_most_ms")  # between the tokens of one text: the median, and the largest
COLUMNS += ["others_cpu_pct", "model", "model_spec", "sensor"]


def table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one line a generation: who, what, ttft_ms, tpot_ms, itl_ms, decode_tok_s, e2e_tok_s, gb_s.

    gb_s counts the weights read for each token and the cache read and written, GB = 1e9 bytes.
    """
    lines = []
    for row in rows:
        rate = rates(row)
        context = (row.get("prompt_tokens") or 0) + (row.get("new_tokens") or 0) / 2
        cache = (row.get("kv_bytes_a_position") or 0) * context
        per_token = (row["weight_bytes"] + cache) if row.get("weight_bytes") else None
        line = {name: row.get(name) for name in COLUMNS}
        line |= {"ttft_ms": 1000 * rate["ttft_s"] if rate["ttft_s"] else None, "tpot_ms": rate["tpot_ms"]}
        line |= {"itl_ms": gap_ms(row), "itl_most_ms": longest_gap_ms(row)}
        line |= {"decode_tok_s": rate["decode_tok_s"], "e2e_tok_s": rate["e2e_tok_s"]}
        line["gb_s"] = per_token / rate["tpot_ms"] / 1e6 if per_token and rate["tpot_ms"] else None
        lines.append(line)
    return pd.DataFrame(lines, columns=[*COLUMNS, "ttft_ms", "tpot_ms", *GAPS, "decode_tok_s", "e2e_tok_s", "gb_s"])


def steady(frame: pd.DataFrame, kind: str = "main") -> pd.DataFrame:
    """Return the steady generations of the main plan, or of the side plan (further dtypes, short task)."""
    return frame[(frame["visit"] == "steady") & (frame["kind"] == kind)]


def main_arms(frame: pd.DataFrame) -> list[str]:
    """Return the arms of the main plan in order: CPU first."""
    found = list(dict.fromkeys(steady(frame)["arm"]))
    return sorted(found, key=lambda arm: arm != "cpu")


def shown(interval: timing.Interval | None, digits: int = 1) -> str:
    """Return "30.2 [29.8, 30.6]"; with fewer than six samples the range, marked by "range"; "-" for none."""
    if interval is None:
        return "-"
    span = f"[{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
    return f"{interval.median:.{digits}f} {span}" + ("" if interval.enough else " range")


def paired(frame: pd.DataFrame, above: str, below: str, kind: str = "main") -> tuple[list[float], list[float]]:
    """Return decode rates of two arms, paired by interleaved block (process, block)."""
    chosen = steady(frame, kind).dropna(subset=["decode_tok_s"])
    wide = chosen.pivot_table(index=["process", "block"], columns="arm", values="decode_tok_s", aggfunc="first")
    if above not in wide or below not in wide:
        return [], []
    wide = wide.dropna(subset=[above, below])
    return list(wide[above]), list(wide[below])


def by_prompt(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one line a prompt: tokens, decode tok/s of each main arm with its interval, and the ratio."""
    chosen, arms, lines = steady(frame), main_arms(frame), []
    for prompt, group in chosen.groupby("prompt_id", sort=False):
        line: dict[str, Any] = {"prompt": prompt, "prompt_tokens": int(group["prompt_tokens"].iloc[0])}
        for arm in arms:
            samples = group[group["arm"] == arm]["decode_tok_s"].dropna()
            line[f"{arm}_decode_tok_s"] = timing.median_interval(list(samples))
        if len(arms) == 2:
            ratio = timing.ratio_interval(*paired(group, arms[1], arms[0]))
            line["ratio"] = ratio
        lines.append(line)
    return pd.DataFrame(lines)


MEASURES = ("ttft_ms", "tpot_ms", "itl_p50_ms", "itl_p90_ms", "itl_p99_ms", "decode_tok_s", "e2e_tok_s", "gb_s")


def measures(frame: pd.DataFrame, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return one line a measure (TTFT, TPOT, ITL percentiles, decode and end-to-end rate, GB/s), one column an arm."""
    by_arm = {arm: _measures_of(frame, rows, arm) for arm in main_arms(frame)}
    return pd.DataFrame([{"measure": name} | {arm: by_arm[arm][name] for arm in by_arm} for name in MEASURES])


def _measures_of(frame: pd.DataFrame, rows: list[dict[str, Any]], arm: str) -> dict[str, Any]:
    group = steady(frame)[steady(frame)["arm"] == arm]
    gaps = gaps_ms([r for r in rows if r.get("arm") == arm and r.get("visit") == "steady" and r.get("kind") == "main"])
    found: dict[str, Any] = {
        name: timing.median_interval(list(group[name].dropna())) for name in MEASURES if name in group
    }
    for name, share in (("itl_p50_ms", 0.5), ("itl_p90_ms", 0.9), ("itl_p99_ms", 0.99)):
        found[name] = float(pd.Series(gaps).quantile(share)) if gaps else None
    return found


def gaps_ms(rows: list[dict[str, Any]]) -> list[float]:
    """Return all gaps between neighbouring tokens (ITL) of some records, in ms."""
    gaps: list[float] = []
    for row in rows:
        stamps = row.get("token_stamps_s") or []
        gaps += [1000 * (late - early) for early, late in itertools.pairwise(stamps)]
    return gaps


def by_visit(frame: pd.DataFrame) -> pd.DataFrame:
    """Return decode tok/s of each main arm for the cold, the first and the steady visit, never averaged together."""
    lines = []
    for arm in main_arms(frame):
        line: dict[str, Any] = {"arm": arm}
        for visit in ("cold", "first", "steady"):
            group = frame[(frame["arm"] == arm) & (frame["visit"] == visit) & (frame["kind"] == "main")]
            line[f"{visit}_tok_s"] = timing.median_interval(list(group["decode_tok_s"].dropna()))
        lines.append(line)
    return pd.DataFrame(lines)


def by_process(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the median decode tok/s of every process and main arm: two states of a machine show only here."""
    medians = steady(frame).groupby(["process", "arm"])["decode_tok_s"].median().unstack("arm")
    medians = medians[[arm for arm in main_arms(frame) if arm in medians]]
    return medians.add_suffix("_decode_tok_s").reset_index()


def by_dtype(frame: pd.DataFrame) -> pd.DataFrame:
    """Return decode tok/s of every arm of the side plan, same short task, interleaved: like for like stands here."""
    side, lines = steady(frame, "side"), []
    for arm, group in side.groupby("arm", sort=False):
        interval = timing.median_interval(list(group["decode_tok_s"].dropna()))
        device = "CPU" if group["device"].iloc[0] == "cpu" else "GPU"
        median = interval.median if interval else None
        line = {"arm": arm, "runs_on": device, "dtype": group["dtype"].iloc[0], "decode_tok_s": interval}
        lines.append(line | {"median": median})
    return pd.DataFrame(lines, columns=["arm", "runs_on", "dtype", "decode_tok_s", "median"])
