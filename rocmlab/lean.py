"""The decode step written out for the device: the model's own weights, a sixth of the launches, no Python between them.

`Lean(model, rows, room)` holds merged weights and a cache of fixed size; `step()` runs one step with every tensor at a
fixed address, so that a graph can be captured of it. Only torch's own operators; one row a sequence.
"""

from __future__ import annotations

from typing import Any

KNOWN = ("llama", "qwen2", "qwen3")  # decoder layers of exactly this form
BLOCK = 64  # the cache's length is a multiple of it: fused attention wants its mask aligned


def known(model: Any) -> bool:
    """Tell whether this step may stand for a model's own."""
    config = model.config
    sliding = "sliding_attention" in (getattr(config, "layer_types", None) or [])
    biased = getattr(config, "mlp_bias", False) or getattr(config, "attention_bias", False)
    return config.model_type in KNOWN and config.hidden_act == "silu" and not sliding and not biased


def room_for(positions: int) -> int:
    """Return a cache length that holds these positions."""
    return -(-positions // BLOCK) * BLOCK


def layer(
    h: Any, keys: Any, values: Any, at: Any, turn: tuple[Any, Any], mask: Any, w: dict[str, Any], form: Any
) -> Any:
    """Run one decoder layer on h (rows, hidden); write its key and value at position `at` of the cache.

    `turn` = (cos, sin with its first half negated), each (1, 1, head_dim); `mask` (1, 1, heads / kv_heads, room) is
    added to the scores. The residual is added inside the product.
    """
    import torch
    from torch.nn import functional as nn

    heads, kv_heads, dim, eps = form
    rows, both = h.shape[0], heads + kv_heads
    mixed = nn.linear(nn.rms_norm(h, h.shape[-1:], w["norm_1"], eps), w["qkv"], w.get("qkv_bias"))
    mixed = mixed.view(rows, both + kv_heads, dim)
    turned, value = mixed[:, :both], mixed[:, both:]
    if "q_norm" in w:
        parts = [
            nn.rms_norm(turned[:, :heads], (dim,), w["q_norm"], eps),
            nn.rms_norm(turned[:, heads:], (dim,), w["k_norm"], eps),
        ]
        turned = torch.cat(parts, dim=1)
    turned = torch.addcmul(turned * turn[0], turned.roll(dim // 2, -1), turn[1])
    keys.index_copy_(2, at, turned[:, heads:, None])
    values.index_copy_(2, at, value[:, :, None])
    # The query heads that share a key head stand as rows of one product: nothing is repeated.
    query = turned[:, :heads].reshape(rows, kv_heads, heads // kv_heads, dim)
    seen = nn.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
    h = torch.addmm(h, seen.reshape(rows, -1), w["o"].t())
    gate, up = nn.linear(nn.rms_norm(h, h.shape[-1:], w["norm_2"], eps), w["gate_up"]).chunk(2, -1)
    return torch.addmm(h, nn.silu(gate) * up, w["down"].t())


def weights(block: Any) -> dict[str, Any]:
    """Return one layer's weights, those of products with one input merged."""
    import torch

    attention, mlp = block.self_attn, block.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    found = {
        "norm_1": block.input_layernorm.weight,
        "norm_2": block.post_attention_layernorm.weight,
        "qkv": torch.cat([one.weight for one in projections]),
        "o": attention.o_proj.weight,
        "gate_up": torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
        "down": mlp.down_proj.weight,
    }
    if projections[0].bias is not None:
        found["qkv_bias"] = torch.cat([one.bias for one in projections])
    for name in ("q_norm", "k_norm"):
        if hasattr(attention, name):
            found[name] = getattr(attention, name).weight
    return {name: value.detach() for name, value in found.items()}


class Lean:
    """One step of a model for `rows` sequences and up to `room` positions; `compiled` is a mode of torch.compile."""

    def __init__(self, model: Any, rows: int, room: int, compiled: str = "") -> None:
        import torch

        config = model.config
        heads = config.num_attention_heads
        kv_heads = getattr(config, "num_key_value_heads", None) or heads
        dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.model, self.form = model, (heads, kv_heads, dim, config.rms_norm_eps)
        self.layers = [weights(block) for block in model.model.layers]
        device, dtype = model.device, model.dtype
        shape = (rows, kv_heads, room_for(room), dim)
        self.keys = [torch.zeros(shape, device=device, dtype=dtype) for _ in self.layers]
        self.values = [torch.zeros(shape, device=device, dtype=dtype) for _ in self.layers]
        self.at = torch.zeros(1, dtype=torch.long, device=device)
        self.places = torch.arange(shape[2], device=device)
        self.open, self.shut = (torch.tensor(one, device=device, dtype=dtype) for one in (0.0, float("-inf")))
        self.run_layer = torch.compile(layer, dynamic=False, mode=compiled) if compiled else layer

    def fill(self, cache: Any) -> None:
        """Take over the keys and values of a prefilled cache of transformers."""
        for own_keys, own_values, one in zip(self.keys, self.values, cache.layers, strict=False):
            length = one.keys.shape[2]
            own_keys[:, :, :length].copy_(one.keys)
            own_values[:, :, :length].copy_(one.values)
        self.at.fill_(length)

    def logits(self, token: Any) -> Any:
        """Run one step over tokens (rows, 1); return logits (rows, 1, vocabulary) and advance the position."""
        import torch
        from torch.nn import functional as nn

        inner = self.model.model
        h = inner.embed_tokens(token)
        cos, sin = inner.rotary_emb(h, self.at[None])
        half = sin.shape[-1] // 2
        turn = (cos, torch.cat([-sin[..., :half], sin[..., half:]], dim=-1))
        mask = torch.where(self.places <= self.at, self.open, self.shut)
        mask = mask.repeat(1, 1, self.form[0] // self.form[1], 1)
        h = h[:, 0]
        for keys, values, w in zip(self.keys, self.values, self.layers, strict=True):
            h = self.run_layer(h, keys, values, self.at, turn, mask, w, self.form)
        self.at.add_(1)
        h = nn.rms_norm(h, h.shape[-1:], inner.norm.weight, self.form[3])
        return self.model.lm_head(h)[:, None]
