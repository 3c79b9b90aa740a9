"""The same model with almost nothing to compute: as many layers and operators, of a tiny width.

What a step of it takes is what the host takes for a step of the real one: Python, dispatch, launching.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

INTERMEDIATE, HEAD_DIM, KV_HEADS, VOCABULARY = 128, 16, 2, 1024
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")  # of the real vocabulary, which the twin has not


def config_of(config: Any) -> Any:
    """Return a model's config at tiny width: layers, norms, attention path and queries a key head stay as they are."""
    small = copy.deepcopy(config)
    heads = getattr(config, "num_attention_heads", KV_HEADS)
    queries = max(1, heads // (getattr(config, "num_key_value_heads", None) or heads))
    small.num_key_value_heads, small.num_attention_heads = KV_HEADS, KV_HEADS * queries
    # 64 with two queries a key head; some configs accept no width that is not a multiple of the heads.
    small.hidden_size, small.head_dim = HEAD_DIM * small.num_attention_heads, HEAD_DIM
    small.intermediate_size = INTERMEDIATE
    small.vocab_size = min(VOCABULARY, config.vocab_size)
    for name in TOKENS:
        setattr(small, name, None)
    return small


def make(model: Any, device: str, dtype: str) -> Any:
    """Return the twin of a model with random weights, in evaluation mode, with the same attention implementation."""
    import torch
    from transformers import AutoModelForCausalLM

    small = config_of(model.config)
    how = getattr(model.config, "_attn_implementation", None)
    torch.manual_seed(0)
    made = AutoModelForCausalLM.from_config(small, dtype=getattr(torch, dtype), attn_implementation=how)
    return made.to(device=torch.device(device)).eval()


@contextlib.contextmanager
def shallow(model: Any, layers: int) -> Iterator[None]:
    """Run a model with its first `layers` layers only, inside the context."""
    import torch

    base, config = model.model, model.config
    whole, count, kinds = base.layers, config.num_hidden_layers, getattr(config, "layer_types", None)
    base.layers, config.num_hidden_layers = torch.nn.ModuleList(list(whole)[:layers]), layers
    if kinds:
        config.layer_types = kinds[:layers]
    try:
        yield
    finally:
        base.layers, config.num_hidden_layers = whole, count
        if kinds:
            config.layer_types = kinds
