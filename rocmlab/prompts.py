"""Which texts is a model asked to continue, and which tokens are they for it?

`prompt_ids(loaded, PROMPTS["reasoning"])` works for every model; one of random weights has no tokenizer and gets ids
that are the same in every process.
"""

from __future__ import annotations

import re
import zlib

from rocmlab.models import Loaded

PROMPTS = {
    "short_factual": "Which planet of the solar system has the most moons, and about how many are known?",
    "summarization": (
        "Summarise in two sentences: A graphics card that its maker does not list can often be used all the same. "
        "Somebody compiles the libraries for it, every operator runs, and the results agree with the processor. "
        "Yet the speed disappoints, and the usual suspects are named without measurement: the driver, the memory, "
        "the model, the operating system. Only a timeline of one single step shows who waits for whom."
    ),
    "reasoning": (
        "A train leaves at 9:40 and needs 2 hours and 35 minutes, including one stop of 12 minutes. It makes up "
        "5 minutes on the way. When does it arrive, and how long was it moving? Explain step by step."
    ),
    "code_generation": (
        "Write a Python function that takes a list of token times in seconds and returns the median gap between "
        "neighbours in milliseconds. Handle a list with fewer than two times."
    ),
    "long_form": "Describe, for a reader without a technical background, what happens inside a computer while it "
    "writes an answer one word at a time.",
}


def prompt_ids(loaded: Loaded, text: str) -> list[int]:
    """Return a prompt's token ids: the model's chat template, or for random weights one stable id a word."""
    if loaded.tokenizer is None:
        words = re.findall(r"\w+|[^\w\s]", text)
        return [zlib.crc32(word.encode()) % loaded.model.config.vocab_size for word in words]
    message = [{"role": "user", "content": text}]
    if not getattr(loaded.tokenizer, "chat_template", None):
        return list(loaded.tokenizer(text)["input_ids"])
    ids = loaded.tokenizer.apply_chat_template(message, add_generation_prompt=True, enable_thinking=False)
    return list(ids["input_ids"] if hasattr(ids, "keys") else ids)
