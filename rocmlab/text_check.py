"""Does the device write the text that the CPU writes, and if not, is rounding the reason?

`study(run, model, arm, prompts, new_tokens, limit_s=...)` runs `check` in a child process, which appends rows to the
table `text`; texts.py judges them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rocmlab import generate, isolate, models
from rocmlab.prompts import PROMPTS, prompt_ids
from rocmlab.results import Run

SCHEMA = "rocmlab-greedy-check-1"


def study(
    run: Run, model: str | None, arm: dict[str, str], prompts: list[str], new_tokens: int, *, limit_s: float
) -> list[dict[str, Any]]:
    """Run `check` in a process of its own; [] when there is no model with real weights to write text with."""
    if model is None:
        return []
    given = run.where() | {"model": model, "arm": arm}
    outcome = isolate.call(
        "rocmlab.text_check:check", given | {"prompts": prompts, "new_tokens": new_tokens}, limit_s=limit_s
    )
    return [generate.ended(run, "text", outcome)]


def check(
    run_dir: str, notebook: str, attempt: str, model: str, arm: dict[str, str], prompts: list[str], new_tokens: int
) -> None:
    """Write the same greedy texts on the CPU in float32 and on the subject, and judge each token by the CPU's logits.

    One forward pass of the CPU over the subject's tokens gives, for each of them, how far it lies below the CPU's best
    choice. A rounding difference shows as a small gap, a wrong kernel as a large one. On a CPU subject the same pass
    compares decoding with a cache against one pass without.
    """
    run = Run(Path(run_dir), notebook, attempt)
    reference = models.load(model, "cpu", "float32")
    own = reference if arm["device"] == "cpu" and arm["dtype"] == "float32" else None
    subject = own or models.load(model, arm["device"], arm["dtype"])
    for prompt in prompts:
        ids = prompt_ids(reference, PROMPTS[prompt])
        expected = generate.generation(reference, "cpu", ids, new_tokens)["token_ids"]
        written = expected if own else generate.generation(subject, arm["device"], ids, new_tokens)["token_ids"]
        row = {
            "schema": SCHEMA,
            "model": reference.name,
            "model_hash": reference.model_hash,
            "prompt_id": prompt,
            "prompt_tokens": len(ids),
            "new_tokens": new_tokens,
            "do_sample": False,
            "cpu_float32": {"token_ids": expected, "text": text_of(reference, expected)},
            "subject": {"token_ids": written, "text": text_of(reference, written)},
            **arm,
            **_gaps(reference, subject, arm["device"], ids, written),
        }
        run.append("text", row)


def text_of(loaded: models.Loaded, tokens: list[int]) -> str:
    """Return the text up to the first end token: the end token is off while measuring, what follows it is no answer."""
    end = loaded.tokenizer.eos_token_id
    return loaded.tokenizer.decode(tokens[: tokens.index(end)] if end in tokens else tokens)


def _gaps(
    reference: models.Loaded, subject: models.Loaded, device: str, ids: list[int], written: list[int]
) -> dict[str, Any]:
    """Return gaps (in logits, one a written token) below the CPU's best token, and the largest logits error."""
    import torch

    whole = torch.tensor([ids + written])
    steps = slice(len(ids) - 1, len(ids) + len(written) - 1)
    with torch.inference_mode():
        cpu = reference.model(whole).logits[0, steps].float()
        seen = cpu if subject is reference else subject.model(whole.to(device)).logits[0, steps].float().cpu()
    chosen = torch.tensor(written)
    gaps = cpu.max(dim=-1).values - cpu.gather(1, chosen[:, None])[:, 0]
    broken = (~torch.isfinite(seen).all(dim=-1)).nonzero()
    error = (seen - cpu).abs().max().item()
    return {
        "gaps_logits": [round(gap, 5) for gap in gaps.tolist()],
        "max_logit_error": error,
        "max_abs_logit": cpu.abs().max().item(),
        "logits_finite": len(broken) == 0,
        "first_nonfinite_step": int(broken[0]) if len(broken) else None,
    }
