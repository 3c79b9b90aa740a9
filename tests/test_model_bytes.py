"""Bytes of weights and cache that one token reads, against arithmetic."""

import pytest

from rocmlab import model_bytes, models

torch = pytest.importorskip("torch")


def test_bytes_a_token_of_qwen3():
    """1.192 GB in float16: the tied head is read at every step, counted once; the cache holds 28 layers x 8 x 128."""
    import types

    loaded = models.load("random:tiny", "cpu", "float16")
    numbers = sum(p.numel() for p in loaded.model.parameters())
    assert model_bytes.weight_bytes(loaded.model) == 2 * numbers
    config = types.SimpleNamespace(num_hidden_layers=28, num_key_value_heads=8, head_dim=128)
    shape = types.SimpleNamespace(config=config, dtype=torch.float16)
    assert model_bytes.kv_bytes_a_position(shape) == 2 * 28 * 8 * 128 * 2


def test_an_untied_embedding_is_one_row_not_a_table():
    model = models.load("random:tiny", "cpu", "float32").model
    tied = model_bytes.weight_bytes(model)
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
    assert model_bytes.weight_bytes(model) == tied  # the head instead of the table
