"""Is the text that the GPU writes right? Pure judges of the `text` records of notebook 03.

A different token is no proof of a fault, and an equal one no proof of health: each token is judged by how far it lies
below the CPU's best choice.
"""

from __future__ import annotations

from typing import Any

from rocmlab.findings import Finding, finding
from rocmlab.rates import is_number

# Epsilon of each type; a logit rounded in that type moves by about this share of itself.
EPSILON = {"float32": 1.19e-7, "float16": 9.77e-4, "bfloat16": 7.81e-3}
# Seen on a CPU (SmolLM2-135M, five texts of 64 tokens): gaps up to 0.9 epsilon x the largest logit in bfloat16 and 0.3
# in float16. Four times that is still far from what a wrong kernel does (10 logits and more).
GAP_EPSILONS = 4.0
LARGEST_LOGIT = 1e6  # no model has such a one; a record that says more is damaged, and must not excuse every gap
GAP_FLOOR_LOGITS = 0.02  # another order of summation, in float32


def gap_tolerance(text: dict[str, Any]) -> float:
    """Return the gap in logits below the reference's best token that rounding in this dtype may explain."""
    largest = text.get("max_abs_logit")
    epsilon = EPSILON.get(str(text.get("dtype")), EPSILON["float16"])
    scale = epsilon * min(abs(largest), LARGEST_LOGIT) if is_number(largest) else 0.0
    return max(GAP_FLOOR_LOGITS, GAP_EPSILONS * scale)


def first_divergence(text: dict[str, Any]) -> int | None:
    """Return the step (from 0) at which the subject's tokens first differ from the CPU's, None where they agree."""
    pairs = enumerate(zip(_tokens(text.get("cpu_float32")), _tokens(text.get("subject")), strict=False))
    return next((step for step, (one, other) in pairs if one != other), None)


def wrong_step(text: dict[str, Any]) -> int | None:
    """Return the first step that rounding cannot explain or whose logits are not finite; None when right."""
    bound = gap_tolerance(text)
    steps: list[int] = [i for i, gap in enumerate(_gaps(text)) if not (is_number(gap) and gap <= bound)]
    broken = text.get("first_nonfinite_step")
    if isinstance(broken, int):
        steps.append(broken)
    return min(steps) if steps else None


def _gaps(text: dict[str, Any]) -> list[Any]:
    gaps = text.get("gaps_logits")
    return gaps if isinstance(gaps, list) else []


def _tokens(side: Any) -> list[Any]:
    """Return the tokens of one side of a record, [] where it holds no list of them."""
    tokens = side.get("token_ids") if isinstance(side, dict) else None
    return tokens if isinstance(tokens, list) else []


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
    worst = max(max(_gaps(text), default=0.0) for text in texts)
    agreed = {"texts": len(texts), "texts_identical": len(texts) - len(apart), "largest_gap_logits": worst}
    words = {"tolerance": min(gap_tolerance(text) for text in texts), "model": texts[0].get("model", "")}
    variant = "cpu" if texts[0].get("device") == "cpu" else None
    return [finding("TEXT_RIGHT", numbers=agreed, variant=variant, **words)]


# ---- single records, for `rocmlab read`


def judge_paths(record: dict[str, Any]) -> tuple[dict[str, Any], list[Finding]]:
    """Judge a greedy check that holds the tokens of several GPU paths beside `cpu_float32`.

    Returns the speed of every right path, null with a reason for a wrong one, and the finding if any path is wrong.
    """
    if _gaps(record) and isinstance(record.get("subject"), dict):
        return {}, judge_text([record])
    expected = _tokens(record.get("cpu_float32"))
    paths = {key.removeprefix("gpu_"): value for key, value in record.items() if _is_path(key, value)}
    steps = {name: _path_step(path, expected) for name, path in paths.items()}
    wrong = {name: step for name, step in steps.items() if step is not None}
    unknown = [name for name, path in paths.items() if name not in wrong and not (expected and _tokens(path))]
    right = [name for name in paths if name not in wrong and name not in unknown]
    numbers: dict[str, Any] = {}
    for name, path in paths.items():
        rate = path.get("tok_s") if is_number(path.get("tok_s")) and name in right else None
        numbers[f"{name}_tok_s"] = rate
        if rate is None:
            why = NO_SPEED["wrong" if name in wrong else "unknown" if name in unknown else "right"]
            numbers[f"{name}_tok_s_reason"] = why
    found = [finding("TEXT_NOT_COMPARED", paths=", ".join(unknown) or "gpu")] if unknown or not paths else []
    if not wrong:
        said = {"paths": len(right), "tokens": len(expected)}
        return numbers, [*found, *([finding("PATHS_RIGHT", numbers=said, names=", ".join(right))] if right else [])]
    numbers["first_wrong_step"] = min(wrong.values())
    broken = any(paths[name].get("logits_finite") is False for name in wrong)
    words = {"wrong_arm": ", ".join(wrong), "right_arm": ", ".join(right)}
    words["reason"] = "logits not finite: NaN or Infinity" if broken else "other tokens than the CPU"
    variant = None if right else "others_unknown" if unknown else "all_wrong"
    return numbers, [finding("WRONG_TEXT", numbers=numbers, variant=variant, **words), *found]


NO_SPEED = {
    "wrong": "its text is wrong, so its speed is no result",
    "unknown": "its text could not be compared with the CPU's, so its speed is no result yet",
    "right": "the record holds no rate",
}


def _is_path(key: str, value: Any) -> bool:
    return key != "cpu_float32" and isinstance(value, dict) and "token_ids" in value


def _path_step(path: dict[str, Any], expected: list[Any]) -> int | None:
    written = _tokens(path)
    pairs = enumerate(zip(expected, written, strict=False))
    apart = next((step for step, (one, other) in pairs if one != other), None)
    if apart is None and expected and written and len(written) != len(expected):
        apart = min(len(written), len(expected))
    if path.get("logits_finite") is False:
        broken = path.get("first_nonfinite_step")
        return broken if isinstance(broken, int) else apart or 0
    return apart
