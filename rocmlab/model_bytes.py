"""How many bytes must one decoded token read: the weights, and the cache of every position before it?"""

from __future__ import annotations

from typing import Any


def weight_bytes(model: Any) -> int:
    """Return the bytes of weights read for one token: each unique parameter once; an untied embedding is one row."""
    unique = {parameter.data_ptr(): parameter for parameter in model.parameters()}
    total = sum(parameter.numel() * parameter.element_size() for parameter in unique.values())
    table, head = model.get_input_embeddings().weight, model.get_output_embeddings()
    if head is None or head.weight.data_ptr() != table.data_ptr():
        total -= table.numel() * table.element_size()
    return total


def kv_bytes_a_position(model: Any) -> int:
    """Return the bytes of key and value cache of one position, all layers."""
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return 2 * config.num_hidden_layers * heads * head_dim * model.dtype.itemsize
