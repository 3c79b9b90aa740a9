"""Is the text that the GPU writes right? Pure judges of the `text` records of notebook 03.

A different token is no proof of a fault, and an equal one no proof of health: each token is judged by how far it lies
below the CPU's best choice.
"""

from __future__ import annotations

from typing import Any

from rocmlab.findings import Finding, finding

# Epsilon of each type; a logit rounded in that type moves by about this share of itself.
EPSILON = {"float32": 1.19e-7, "float16": 9.77e-4, "bfloat16": 7.81e-3}
# Seen on a CPU (SmolLM2-135M, five texts of 64 tokens): gaps up to 0.9 epsilon x the largest logit in bfloat16 and 0.3
# in float16. Four times that is still far from what a wrong kernel does (10 logits and more).
GAP_EPSILONS = 4.0
GAP_FLOOR_LOGITS = 0.02  # another order of summation, in float32


def gap_tolerance(text: dict[str, Any]) -> float:
    """Return the gap in logits below the reference's best token that rounding in this dtype may explain."""
    scale = EPSILON.get(text.get("dtype", ""), EPSILON["float16"]) * (text.get("max_abs_logit") or 0.0)
    return max(GAP_FLOOR_LOGITS, GAP_EPSILONS * scale)


def first_divergence(text: dict[str, Any]) -> int | None:
    """Return the step (from 0) at which the subject's tokens first differ from the CPU's, None where they agree."""
    expected, written = text["cpu_float32"]["token_ids"], text["subject"]["token_ids"]
    pairs = enumerate(zip(expected, written, strict=False))
    return next((step for step, (one, other) in pairs if one != other), None)


def wrong_step(text: dict[str, Any]) -> int | None:
    """Return the first step that rounding cannot explain or whose logits are not finite; None when right."""
    steps = [i for i, gap in enumerate(text.get("gaps_logits") or []) if gap is None or gap > gap_tolerance(text)]
    if text.get("first_nonfinite_step") is not None:
        steps.append(text["first_nonfinite_step"])
    return min(steps) if steps else None


def judge_text(texts: list[dict[str, Any]]) -> list[Finding]:
    """Judge the texts: right to the token, different by rounding only, or wrong (then no speed stands without it)."""
    if not texts:
        return []
    wrong = {text["prompt_id"]: step for text in texts if (step := wrong_step(text)) is not None}
    arm = texts[0].get("arm", "subject")
    if wrong:
        numbers = {"first_wrong_step": min(wrong.values()), "texts_wrong": len(wrong), "texts": len(texts)}
        return [finding("WRONG_TEXT", numbers=numbers, variant="run", prompts=", ".join(wrong), arm=arm)]
    steps = {text["prompt_id"]: first_divergence(text) for text in texts}
    apart = {prompt: step for prompt, step in steps.items() if step is not None}
    worst = max(max(text["gaps_logits"], default=0.0) for text in texts)
    agreed = {"texts": len(texts), "texts_identical": len(texts) - len(apart), "largest_gap_logits": worst}
    words = {"tolerance": min(gap_tolerance(text) for text in texts), "model": texts[0].get("model", "")}
    variant = "cpu" if texts[0].get("device") == "cpu" else None
    return [finding("TEXT_RIGHT", numbers=agreed, variant=variant, **words)]


# ---- single records, for `rocmlab read`


def judge_paths(record: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Judge a greedy check that holds the tokens of several GPU paths beside `cpu_float32`.

    Returns the speed of every right path, null with a reason for a wrong one, and the finding if any path is wrong.
    """
    reference = record.get("cpu_float32")
    expected = reference.get("token_ids") if isinstance(reference, dict) else None
    if not isinstance(expected, list) or not expected:
        return {}, [finding("NO_REFERENCE_TEXT")]
    if record.get("gaps_logits") and isinstance(record.get("subject"), dict):
        return {}, judge_text([record])
    paths = {key.removeprefix("gpu_"): value for key, value in record.items() if _is_path(key, value)}
    steps = {name: _path_step(path, expected) for name, path in paths.items()}
    wrong = {name: step for name, step in steps.items() if step is not None}
    numbers: dict[str, Any] = {}
    for name, path in paths.items():
        numbers[f"{name}_tok_s"] = None if name in wrong else path.get("tok_s")
        if name in wrong:
            numbers[f"{name}_tok_s_reason"] = "its text is wrong, so its speed is no result"
        elif path.get("tok_s") is None:
            numbers[f"{name}_tok_s_reason"] = "the record holds no rate"
    if not wrong:
        said = finding("PATHS_RIGHT", numbers={"paths": len(paths), "tokens": len(expected)}, names=", ".join(paths))
        return numbers, [said]
    numbers["first_wrong_step"] = min(wrong.values())
    broken = any(paths[name].get("logits_finite") is False for name in wrong)
    words = {"wrong_arm": ", ".join(wrong), "right_arm": ", ".join(name for name in paths if name not in wrong)}
    words["reason"] = "logits not finite: NaN or Infinity" if broken else "other tokens than the CPU"
    variant = None if words["right_arm"] else "all_wrong"
    return numbers, [finding("WRONG_TEXT", numbers=numbers, variant=variant, **words)]


def _is_path(key: str, value: Any) -> bool:
    return key != "cpu_float32" and isinstance(value, dict) and "token_ids" in value


def _path_step(path: dict[str, Any], expected: list[int]) -> int | None:
    written = path.get("token_ids")
    written = written if isinstance(written, list) else []
    pairs = enumerate(zip(expected, written, strict=False))
    apart = next((step for step, (one, other) in pairs if one != other), None)
    if apart is None and len(written) != len(expected):
        apart = min(len(written), len(expected))
    if path.get("logits_finite") is False:
        broken = path.get("first_nonfinite_step")
        return broken if isinstance(broken, int) else apart or 0
    return apart
