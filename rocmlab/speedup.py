"""Is the GPU faster than the CPU, does the prompt matter, and may the numbers be believed? Judges of notebook 03, pure.

`judge(rows, texts)` takes the records of `generation` and `text` and returns findings; each can come out either way.
"""

from __future__ import annotations

import statistics
from typing import Any

import pandas as pd

from rocmlab import steadiness, timing
from rocmlab.findings import Finding, finding, worst_first
from rocmlab.speed import by_dtype, main_arms, paired, shown, steady, table
from rocmlab.steadiness import judge_processes
from rocmlab.texts import judge_text
from rocmlab.words import LANGUAGES
from rocmlab.words import both as both_languages

PROMPT_SAME_PCT = 5.0  # largest difference between prompts that still reads as "not the prompt"
PROMPT_SCATTER_PCT = 15.0  # repeats of one prompt that scatter more than this could hide a difference


def judge(
    rows: list[dict[str, Any]], texts: list[dict[str, Any]], processes: list[dict[str, Any]] | None = None
) -> list[Finding]:
    """Return the findings of one run's generation, text and process records, worst first; [] when nothing is there."""
    frame = table(rows)
    found = [*judge_processes(processes or []), *judge_text(texts)]
    if not steady(frame).empty:
        found += [*judge_ratio(frame), *judge_prompts(frame), *steadiness.judge(rows, frame)]
    return worst_first(found)


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
    decided = ratio.enough and not ratio.low <= 1 <= ratio.high and _equal_lengths(frame)
    code = "SPEEDUP_UNDECIDED" if not decided else "SPEEDUP" if ratio.low > 1 else "NO_SPEEDUP"
    found = [finding(code, numbers=numbers, **words)]
    return found + _like_for_like(frame, numbers, words)


def _equal_lengths(frame: pd.DataFrame) -> bool:
    """Return whether every arm wrote as many tokens for each prompt: a ratio of unequal lengths decides nothing."""
    return bool((steady(frame).groupby("prompt_id")["new_tokens"].nunique() == 1).all())


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
    # The headline's own dtypes once more, in the same turns: else a calm minute looks like a better dtype.
    usual = [group[group["dtype"] == words[key]] for group, key in ((gpu, "gpu_dtype"), (cpu, "cpu_dtype"))]
    again = None
    if not any(one.empty for one in usual):
        again = timing.ratio_interval(*paired(frame, usual[0].iloc[0]["arm"], usual[1].iloc[0]["arm"], "side"))
    if like is None or top is None:
        return []
    given: dict[str, Any] = {"like_for_like_ratio": like.median, "best_against_best_ratio": top.median}
    given |= {"headline_dtypes_ratio": again.median if again else None}
    given |= {} if again else {"headline_dtypes_ratio_reason": "those dtypes were not measured in these turns"}
    spans: dict[str, Any] = {"like_span": shown(like, 2), "best_span": shown(top, 2), "same_dtype": same}
    spans["again"] = both_languages("speed_again", span=shown(again, 2)) if again else dict.fromkeys(LANGUAGES, "")
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
        code = "PROMPT_UNDECIDED"
        if repeated and spread <= PROMPT_SAME_PCT and inside <= PROMPT_SCATTER_PCT:
            code = "PROMPT_NO_EFFECT"
        elif repeated and spread > PROMPT_SAME_PCT and inside < spread:
            code = "PROMPT_MATTERS"
        numbers = {f"{arm}_prompt_spread_pct": spread, f"{arm}_within_prompt_pct": inside}
        side = "CPU" if arm == "cpu" else "GPU"
        variant = "once" if code == "PROMPT_UNDECIDED" and not repeated else None
        words = {"side": side, "spread": spread, "inside": inside, "count": len(medians)}
        found.append(finding(code, numbers=numbers, variant=variant, **words))
    return found
