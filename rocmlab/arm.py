"""What an arm of an experiment is: one way to take decode steps, and the subject that takes them. Inside a worker."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rocmlab import decode, models

CONTEXT = 64


@dataclass
class Subject:
    """What is under study: the loaded model, device and dtype, and the context of a usual step."""

    loaded: models.Loaded
    device: str
    dtype: str
    context: int = CONTEXT

    @property
    def model(self) -> Any:
        return self.loaded.model


@dataclass
class Arm:
    """One way to take steps. `run` may return its own ms a step; `force(tokens)` returns logits (n, vocabulary) of a
    text it is made to follow; `tokens` a step and sequence may be more than one. `dose(step_ms)` is told before each
    block what the usual step takes now, and returns the ms a step that are injected from here on."""

    run: Callable[[int], float | None]
    rewind: Callable[[int], None] = lambda count: None
    around: Callable[[], Any] = contextlib.nullcontext
    force: Callable[[list[int]], Any] | None = None
    tokens: float = 1.0
    dose: Callable[[float], float] | None = None
    facts: dict[str, Any] = field(default_factory=dict)


def prompts(subject: Subject, rows: int = 1, context: int | None = None, model: Any = None) -> list[list[int]]:
    """Return seeded random prompts of one length, in the subject's vocabulary or in that of another model."""
    vocabulary = (model or subject.model).config.vocab_size
    return decode.random_prompts(vocabulary, [context or subject.context] * rows, seed=1)
