"""How is a model of a real shape made where its weights are not at hand: published shapes, seeded random weights.

`random_model("qwen3-0.6b", "float16", "cuda")` runs the same kernels and reads the same bytes as the trained model.
"""

from __future__ import annotations

from typing import Any

from rocmlab.bundled import ModelError, set_rope_theta

SEED = 0
BLOCK_VALUES = 4_194_301  # a prime near 4 Mi, so that no two rows of a matrix are the same values
WEIGHT_STD = 0.02  # of both models' own initialisation

# Shapes of public models, from their published config.json. Only what differs from the class's default is named.
_QWEN3 = {"model_type": "qwen3", "vocab_size": 151936, "head_dim": 128, "num_key_value_heads": 8}
_QWEN3 |= {"rope_theta": 1_000_000.0, "tie_word_embeddings": True, "max_position_embeddings": 40960}
PRESETS: dict[str, dict[str, Any]] = {
    "qwen3-0.6b": _QWEN3
    | {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16},
    "qwen3-1.7b": _QWEN3
    | {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16},
    "qwen3-4b": _QWEN3
    | {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32},
    "smollm2-135m": {"model_type": "llama", "vocab_size": 49152, "hidden_size": 576, "intermediate_size": 1536}
    | {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "rope_theta": 100_000.0}
    | {"tie_word_embeddings": True, "max_position_embeddings": 8192},
    "tiny": {"model_type": "llama", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128}
    | {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True},
}


def random_model(preset: str, dtype: str, device: str) -> Any:
    """Make a model of a preset's shape with seeded random weights, directly on its device; equal on every device.

    The weights are one block of normal values laid end to end, each tensor at its own offset: drawing 600 million
    values would take longer than the measurement, and the speed of a dense product does not depend on repeats.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    if preset not in PRESETS:
        raise ModelError(f"random:{preset} is not a known shape. Known: {', '.join(PRESETS)}")
    values = dict(PRESETS[preset])
    theta = values.pop("rope_theta", None)
    config = AutoConfig.for_model(**values)
    if theta:
        set_rope_theta(config, theta)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    generator = torch.Generator().manual_seed(SEED)
    block = torch.randn(BLOCK_VALUES, generator=generator).mul_(WEIGHT_STD).to(device, getattr(torch, dtype)).repeat(2)
    weights = {name: _filled(block, value.shape, index) for index, (name, value) in enumerate(_own(model))}
    model.load_state_dict(weights, strict=False, assign=True)
    model.tie_weights()
    # The rotary tables are no part of the weights: made on the meta device, they would stay empty.
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config).to(device)
    return model


def _own(model: Any) -> list[tuple[str, Any]]:
    """Return (name, tensor) of every weight, without the head that is tied to the embedding."""
    tied = model.config.tie_word_embeddings
    return [(name, value) for name, value in model.state_dict().items() if not (tied and name == "lm_head.weight")]


def _filled(block: Any, shape: Any, index: int) -> Any:
    """Return a tensor of this shape cut from the (doubled) block; the weights of a norm (one dimension) are ones."""
    count = shape.numel()
    if len(shape) == 1:
        return block.new_ones(shape)
    offset, filled = index * 7919 % BLOCK_VALUES, block.new_empty(count)
    for start in range(0, count, BLOCK_VALUES):
        length = min(BLOCK_VALUES, count - start)
        filled[start : start + length] = block[offset : offset + length]
    return filled.view(shape)
