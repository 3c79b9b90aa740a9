"""Made-up sides of a comparison: what is equal and what differs is chosen by each test."""

from rocmlab.machines import Machine
from rocmlab.quantities import Item
from rocmlab.sides import Side

SETTINGS = {
    "metric": "decode_tok_s",
    "model": "qwen3-0.6b",
    "dtype": "float16",
    "batch": 1,
    "prompt_tokens": 64,
    "new_tokens": 256,
    "stop_rule": "length",
    "way": "generate()",
    "visit": "steady",
    "method_version": 1,
    "evidence_grade": "D",
}
FACTORS = {
    "os": "Linux-6.8.0",
    "torch_version": "2.9.1+rocm7.1",
    "hip_version": "7.1.0",
    "cuda_version": None,
    "driver": "amdgpu 6.14",
    "transformers_version": "5.0",
    "python_version": "3.12.3",
    "cpu": "Ryzen",
    "variables": "",
}


def item(samples=(10.0,) * 8, arm="gpu", what="short factual", question="decode", **settings) -> Item:
    """One quantity; settings of another value, or more of them."""
    roof = settings.pop("roof_pct", None)
    middle = sorted(samples)[len(samples) // 2]
    given = {**SETTINGS, **settings}
    return Item(
        question, arm, what, given, middle, list(samples), roof_pct=roof, roof_kind=roof and "measured", gb_s=roof
    )


def side(label="A", *items: Item, arch="gfx1032", memory=8 << 30, name="RX 6650 XT", arm="gpu", **factors) -> Side:
    """One run with these quantities; factors of another value."""
    return Side(label, Machine(label, name, arch, memory), arm, {**FACTORS, **factors}, list(items or [item()]))
