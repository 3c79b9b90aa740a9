"""Which remedy that exists here makes decode fastest, by how much, and at what price, for the answer box? Pure."""

from __future__ import annotations

from typing import Any

from rocmlab import experiment_judges, gemm_judges, remedies, words
from rocmlab.clues import Clues
from rocmlab.findings import Finding, finding
from rocmlab.rates import is_number

OTHER_PACE = 1.25  # the gain over the step taken apart, over the gain in turns: beyond, both are said


def judge(clues: Clues) -> Finding | None:
    """Return the best remedy of 11 with its price in one sentence; else what 11 says of remedies, None without any."""
    rows = clues.table("experiments")
    best = remedies.best(rows)
    if best is None:
        said = [one for one in experiment_judges.judge_remedies(rows) if one["code"] == "NO_REMEDY_HELPS"]
        return said[0] if said else None
    keys = ("gain_ratio", "gain_ratio_low", "gain_ratio_high", "decode_tok_s", "usual_tok_s")
    costs = {key: best.get(key) for key in ("compile_s", "memory_gib", "logits_error")}
    numbers = {f"remedy_{key}": best.get(key) for key in keys} | {f"remedy_{key}": one for key, one in costs.items()}
    numbers |= {f"{key}_reason": "not measured" for key, value in numbers.items() if value is None}
    said_of = {lang: _costs(costs | {"most": best.get("logits_max_abs")}, lang) for lang in words.LANGUAGES}
    how = words.both(f"remedy_how_{best['name']}")
    slow = _decode_only(clues, best["name"])
    return finding(
        "BEST_REMEDY", numbers=numbers, texts=_texts(clues), remedy=experiment_judges.label(best["name"]), cost=said_of,
        how={lang: how[lang] + slow[lang] for lang in how}, pace=_pace(clues, best),
        gain=words.number(best["gain_ratio"], "×"), before=words.number(best["usual_tok_s"], "tok/s"),
        after=words.number(best["decode_tok_s"], "tok/s"),
    )  # fmt: skip


def _texts(clues: Clues) -> dict[str, str]:
    """Return that the remedy is about one text, where the step that was taken apart has more; "" where it has one."""
    several = words.both("verdict_of_one_text", texts=f"{clues.texts:,}")
    return several if clues.texts != 1 else dict.fromkeys(words.LANGUAGES, "")


def _pace(clues: Clues, best: dict[str, Any]) -> dict[str, str]:
    """Return the gain against the step that was taken apart, where the loop beside it had another pace."""
    if clues.step is None or clues.texts != 1 or not is_number(best["decode_tok_s"]) or not best["usual_tok_s"]:
        return dict.fromkeys(words.LANGUAGES, "")
    gain = best["decode_tok_s"] * clues.step.ms / 1000
    if 1 / OTHER_PACE <= gain / best["gain_ratio"] <= OTHER_PACE:
        return dict.fromkeys(words.LANGUAGES, "")
    return words.both("remedy_pace", step=words.number(clues.step.ms, "ms"), gain=words.number(gain, "×"))


def _decode_only(clues: Clues, dtype: str) -> dict[str, str]:
    """Return that a dtype which makes decode faster makes long prompts slower, where 06 timed such products."""
    ratio = gemm_judges.over([gemm_judges.rated(row, {}) for row in clues.table("gemm_rate")], dtype, "float32")
    if not clues.on_cpu or ratio is None or ratio >= gemm_judges.HALF_SLOW:
        return dict.fromkeys(words.LANGUAGES, "")
    return words.both("remedy_decode_only", dtype=dtype, times=words.number(1 / ratio))


def _costs(costs: dict[str, Any], lang: str) -> str:
    """Return what a remedy costs in words: time to compile, memory, and the largest error of its logits."""
    parts = []
    if is_number(costs["compile_s"]) and costs["compile_s"] >= 0.1:
        parts.append(words.word("remedy_compile", lang, seconds=words.seconds(costs["compile_s"], lang)))
    if is_number(costs["memory_gib"]) and costs["memory_gib"] >= 0.01:
        parts.append(words.word("remedy_memory", lang, memory=words.number(costs["memory_gib"] * 2**30, "B")))
    error = costs["logits_error"]
    key = "remedy_error" if is_number(error) else "remedy_no_error"
    said = words.word(key, lang, error=words.number(error), most=words.number(costs["most"]))
    return words.word("list_comma", lang).join([*parts, said])
