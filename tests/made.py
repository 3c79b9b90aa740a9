"""Made-up generation and text records: what notebook 03 would have written on a machine of known speed."""

from typing import Any

PROMPTS = ("one", "two", "three")


def generation(arm: str = "gpu", tok_s: float = 30.0, **changes: Any) -> dict[str, Any]:
    """One record of 61 tokens decoded at `tok_s` after a first token at 0.1 s."""
    new = changes.pop("new_tokens", 61)
    stamps = [0.1 + step / tok_s for step in range(new)]
    record = {
        "schema": "rocmlab-generation-1",
        "arm": arm,
        "device": "cpu" if arm.startswith("cpu") else "cuda:0",
        "dtype": "float32" if arm.startswith("cpu") else "float16",
        "kind": "main",
        "visit": "steady",
        "process": 0,
        "block": 0,
        "repeat": 0,
        "prompt_id": "one",
        "batch": 1,
        "prompt_tokens": 20,
        "max_new_tokens": 61,
        "new_tokens": new,
        "t_start_s": 0.0,
        "t_first_token_s": stamps[0],
        "t_end_s": stamps[-1],
        "token_stamps_s": stamps,
        "token_ids": list(range(new)),
        "weight_bytes": 1_000_000_000,
        "kv_bytes_a_position": 0,
        "others_cpu_pct": 0.5,
        "model": "made-up",
        "model_spec": "random:made-up",
        "load": {"load_1min": 0.2, "cores": 8},
    }
    return record | changes


def study(
    gpu: float | None = 30.0, cpu: float = 15.0, processes: int = 2, jitter: tuple[float, ...] = (0.99, 1.0, 1.01)
) -> list[dict[str, Any]]:
    """A whole study: every process visits every prompt with both arms; `jitter` scales the rates by prompt."""
    rows = []
    for process in range(processes):
        for block, (prompt, scale) in enumerate(zip(PROMPTS, jitter, strict=True)):
            marks = {"process": process, "block": block, "prompt_id": prompt}
            rows.append(generation("cpu", cpu * scale, **marks))
            if gpu:
                rows.append(generation("gpu", gpu * scale, **marks))
    return rows


def text(gaps: list[float] | None = None, **changes: Any) -> dict[str, Any]:
    """One text record of four tokens that agree with the CPU."""
    record = {
        "schema": "rocmlab-greedy-check-1",
        "arm": "gpu",
        "device": "cuda:0",
        "dtype": "float16",
        "model": "made-up",
        "prompt_id": "one",
        "cpu_float32": {"token_ids": [5, 6, 7, 8], "text": "a b c d"},
        "subject": {"token_ids": [5, 6, 7, 8], "text": "a b c d"},
        "gaps_logits": gaps or [0.0, 0.0, 0.0, 0.0],
        "max_abs_logit": 40.0,
        "logits_finite": True,
        "first_nonfinite_step": None,
    }
    return record | changes
