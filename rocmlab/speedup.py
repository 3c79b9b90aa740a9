"""Is the GPU faster than the CPU, does the prompt matter, and may the numbers be believed? Judges of notebook 03, pure.

`judge(rows, texts)` takes the records of `generation` and `text` and returns findings; each can come out either way.
"""

from __future__ import annotations

import statistics
from typing import Any

import pandas as pd

from rocmlab import timing
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.speed import by_dtype, main_arms, paired, shown, steady, table
from rocmlab.texts import judge_text

PROMPT_SAME_PCT = 5.0  # largest difference between prompts that still reads as "not the prompt"
FIRST_VISIT_TIMES = 1.3  # a first visit slower than steady by this factor is named


def judge(
    rows: list[dict[str, Any]], texts: list[dict[str, Any]], processes: list[dict[str, Any]] | None = None
) -> list[Finding]:
    """Return the findings of one run's generation, text and process records, worst first; [] when nothing is there."""
    frame = table(rows)
    found = [*judge_processes(processes or []), *judge_text(texts)]
    if not steady(frame).empty:
        found += [*judge_ratio(frame), *judge_prompts(frame), *judge_conditions(rows, frame)]
    return worst_first(found)


def judge_processes(processes: list[dict[str, Any]]) -> list[Finding]:
    """Say how many measuring processes did not end well, and how the first of them ended."""
    ended = [one for one in processes if one["status"] != "OK"]
    if not ended:
        return []
    numbers = {"ended": len(ended), "count": len(processes)}
    return [finding("PROCESS_ENDED", numbers=numbers, words=f"{ended[0]['status']}, {ended[0]['words']}")]


def judge_ratio(frame: pd.DataFrame) -> list[Finding]:
    """Say how fast each side decodes and whether the ratio is above one, with its interval; like for like if known."""
    arms = main_arms(frame)
    middle = {arm: one for arm in arms if (one := timing.median_interval(list(_rates_of(frame, arm))))}
    if len(middle) < len(arms):
        return []
    if len(arms) == 1:
        only = middle[arms[0]]
        words = {"dtype": _dtype(frame, arms[0]), "model": frame["model"].iloc[0], "span": shown(only)}
        return [finding("CPU_ONLY_RATE", numbers={"cpu_decode_tok_s": only.median, "n": only.n}, **words)]
    cpu, gpu = arms
    ratio = timing.ratio_interval(*paired(frame, gpu, cpu))
    if ratio is None:
        return []
    numbers = {"cpu_decode_tok_s": middle[cpu].median, "gpu_decode_tok_s": middle[gpu].median, "ratio": ratio.median}
    numbers |= {"ratio_low": ratio.low, "ratio_high": ratio.high, "n": ratio.n}
    words = {"cpu_dtype": _dtype(frame, cpu), "gpu_dtype": _dtype(frame, gpu), "span": shown(ratio, 2)}
    words["model"] = frame["model"].iloc[0]
    decided = ratio.enough and not ratio.low <= 1 <= ratio.high
    code = "SPEEDUP_UNDECIDED" if not decided else "SPEEDUP" if ratio.low > 1 else "NO_SPEEDUP"
    found = [finding(code, numbers=numbers, **words)]
    return found + _like_for_like(frame, numbers, words)


def _rates_of(frame: pd.DataFrame, arm: str) -> pd.Series:
    chosen = steady(frame)
    return chosen[chosen["arm"] == arm]["decode_tok_s"].dropna()


def _dtype(frame: pd.DataFrame, arm: str) -> str:
    return str(frame[frame["arm"] == arm]["dtype"].iloc[0])


def _like_for_like(frame: pd.DataFrame, numbers: dict[str, Any], words: dict[str, Any]) -> list[Finding]:
    """Both dtypes equal: nothing to say. Else the ratio of equal dtypes and of the best of each side, if measured."""
    if words["cpu_dtype"] == words["gpu_dtype"]:
        return []
    side = by_dtype(frame).dropna(subset=["median"])
    cpu, gpu = side[side["runs_on"] == "CPU"], side[side["runs_on"] == "GPU"]
    both = sorted(set(cpu["dtype"]) & set(gpu["dtype"]))
    if not both:
        keys = ("ratio", "cpu_decode_tok_s", "gpu_decode_tok_s")
        small = {key.replace("_decode", ""): numbers[key] for key in keys}
        return [finding("NOT_LIKE_FOR_LIKE", numbers=small, **words)]
    same = both[-1] if "float32" not in both else "float32"
    pair = [group[group["dtype"] == same].iloc[0]["arm"] for group in (gpu, cpu)]
    best = [group.sort_values("median").iloc[-1] for group in (gpu, cpu)]
    like = timing.ratio_interval(*paired(frame, pair[0], pair[1], "side"))
    top = timing.ratio_interval(*paired(frame, best[0]["arm"], best[1]["arm"], "side"))
    if like is None or top is None:
        return []
    given = {"like_for_like_ratio": like.median, "best_against_best_ratio": top.median}
    spans = {"like_span": shown(like, 2), "best_span": shown(top, 2), "same_dtype": same}
    return [finding("LIKE_FOR_LIKE", numbers=given, best_gpu=best[0]["dtype"], best_cpu=best[1]["dtype"], **spans)]


def judge_prompts(frame: pd.DataFrame) -> list[Finding]:
    """Say for each arm whether the prompt changes the decode rate: same, different, or too noisy to tell."""
    found = []
    for arm in main_arms(frame):
        chosen = steady(frame)
        groups = [g["decode_tok_s"].dropna() for _, g in chosen[chosen["arm"] == arm].groupby("prompt_id")]
        medians = [float(g.median()) for g in groups if len(g)]
        if len(medians) < 2:
            continue
        repeated = all(len(g) > 1 for g in groups)
        spread = 100 * (max(medians) - min(medians)) / statistics.median(medians)
        inside = max(100 * (float(g.max()) - float(g.min())) / float(g.median()) for g in groups if len(g))
        if spread <= PROMPT_SAME_PCT:
            code = "PROMPT_NO_EFFECT"
        else:
            code = "PROMPT_MATTERS" if repeated and inside < spread else "PROMPT_UNDECIDED"
        numbers = {f"{arm}_prompt_spread_pct": spread, f"{arm}_within_prompt_pct": inside}
        side = "CPU" if arm == "cpu" else "GPU"
        variant = "once" if code == "PROMPT_UNDECIDED" and not repeated else None
        words = {"side": side, "spread": spread, "inside": inside, "count": len(medians)}
        found.append(finding(code, numbers=numbers, variant=variant, **words))
    return found


def judge_conditions(rows: list[dict[str, Any]], frame: pd.DataFrame) -> list[Finding]:
    """Say what makes the timings less than they seem: noise, other work, two states, slow first visits, early ends."""
    found = []
    early = [row for row in rows if (row.get("new_tokens") or 0) < (row.get("max_new_tokens") or 0)]
    if early:
        numbers = {"new_tokens": early[0]["new_tokens"], "max_new_tokens": early[0]["max_new_tokens"]}
        found.append(finding("STOPPED_EARLY", numbers=numbers))
    load = (rows[0].get("load") or {}) if rows else {}
    if (load.get("load_1min") or 0) > (load.get("cores") or 1):
        found.append(finding("LOADED_AT_START", numbers={"load_1min": load["load_1min"], "cores": load["cores"]}))
    shares = steady(frame)["others_cpu_pct"].dropna()
    if len(shares) and shares.median() > timing.OTHERS_PCT:
        numbers = {"others_cpu_pct": float(shares.median()), "others_cpu_max_pct": float(shares.max())}
        found.append(finding("OTHER_WORK", numbers=numbers))
    for arm in main_arms(frame):
        found += _judge_arm(frame, arm)
    return found + _judge_repeats(rows)


def _judge_arm(frame: pd.DataFrame, arm: str) -> list[Finding]:
    found, samples, side = [], list(_rates_of(frame, arm)), "CPU" if arm == "cpu" else "GPU"
    states = timing.two_states(samples)
    if states:
        found.append(_two_states(frame, arm, side, states))
    spread = timing.spread_pct(samples)
    if spread is not None and spread > timing.NOISY_PCT:
        variant = "very" if spread > timing.VERY_NOISY_PCT else None
        found.append(finding("NOISY", numbers={f"{arm}_iqr_pct": spread}, variant=variant, side=side, spread=spread))
    first = frame[(frame["arm"] == arm) & (frame["visit"] == "first")]["tpot_ms"].dropna()
    usual = _of(frame, arm)["tpot_ms"].dropna()
    if len(first) and len(usual) and first.median() > FIRST_VISIT_TIMES * usual.median():
        extra = float(first.median() - usual.median())
        numbers = {f"{arm}_first_visit_tpot_ms": float(first.median()), f"{arm}_steady_tpot_ms": float(usual.median())}
        words: dict[str, Any] = {"first": float(first.median()), "usual": float(usual.median()), "extra": extra}
        found.append(finding("FIRST_VISIT_SLOW", numbers=numbers, side=side, **words))
    return found


def _two_states(frame: pd.DataFrame, arm: str, side: str, states: timing.States) -> Finding:
    """Name both states, and whether a process stays in one or changes over while it runs."""
    groups = [g["decode_tok_s"].dropna() > states.cut for _, g in _of(frame, arm).groupby("process")]
    stays = all(fast.all() or not fast.any() for fast in groups)
    numbers = {f"{arm}_slow_state_tok_s": states.low, f"{arm}_fast_state_tok_s": states.high}
    words = {"slow": states.low, "fast": states.high, "n_slow": states.n_low, "n_fast": states.n_high}
    return finding("TWO_STATES", numbers=numbers, variant=None if stays else "inside", side=side, **words)


def _of(frame: pd.DataFrame, arm: str) -> pd.DataFrame:
    return steady(frame)[steady(frame)["arm"] == arm]


def _judge_repeats(rows: list[dict[str, Any]]) -> list[Finding]:
    """Greedy decoding of one prompt by one arm must give the same tokens every time."""
    seen: dict[tuple, set] = {}
    for row in rows:
        if row.get("visit") == "steady" and row.get("kind") == "main" and row.get("token_ids"):
            key = (row["arm"], row["prompt_id"], row["max_new_tokens"])
            seen.setdefault(key, set()).add(tuple(row["token_ids"]))
    varied = sorted({key for key, variants in seen.items() if len(variants) > 1})
    if not varied:
        return []
    numbers = {"prompts_that_varied": len(varied), "prompts_compared": len(seen)}
    return [finding("NOT_REPEATABLE", numbers=numbers, arms=", ".join(sorted({key[0] for key in varied})))]
