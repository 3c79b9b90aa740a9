"""Changes to a model or its surroundings that can be put on and taken off again, while two arms take turns."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from rocmlab import clock, model_bytes, models, random_weights, timing

PUBLIC = {"qwen3-0.6b": {2: "qwen3-1.7b", 4: "qwen3-4b"}}  # the next sizes of the same family


@contextlib.contextmanager
def attention(backend: str) -> Iterator[None]:
    """Allow one backend of scaled_dot_product_attention only."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    names = {"math": "MATH", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION"}
    with sdpa_kernel([getattr(SDPBackend, names[backend])]):
        yield


@contextlib.contextmanager
def no_cudnn_attention() -> Iterator[None]:
    """Forbid cuDNN's attention; nothing changes where there is none."""
    import torch

    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@contextlib.contextmanager
def hooked(model: Any, hook: Callable[..., None]) -> Iterator[None]:
    """Call something after each layer."""
    handles = [one.register_forward_hook(hook) for one in model.model.layers]
    try:
        yield
    finally:
        for one in handles:
            one.remove()


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with so many threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """Keep this process on one of its cores."""
    import psutil

    process = psutil.Process()
    before = process.cpu_affinity()
    here = timing.core()
    process.cpu_affinity([here if here in before else before[0]])
    try:
        yield
    finally:
        process.cpu_affinity(before)


@contextlib.contextmanager
def tunable() -> Iterator[None]:
    """Let TunableOp try the kernels of each product once, and use the best from then on."""
    import torch

    torch.cuda.tunable.enable(True)
    torch.cuda.tunable.tuning_enable(True)
    try:
        yield
    finally:
        torch.cuda.tunable.enable(False)


def cycles_a_us(device: str) -> float:
    """Return how many cycles of torch.cuda._sleep make a microsecond, by the wall clock: the difference of two sleeps,
    so that what a launch costs does not count."""
    import torch

    short, long = 2_000_000, 12_000_000
    took = {}
    for cycles in (short, long):
        spin = functools.partial(torch.cuda._sleep, cycles)
        took[cycles] = min(clock.timed(spin, device) for _ in range(4))
    return (long - short) / max(1e-3, 1000 * (took[long] - took[short]))


# ---- modules of the model


def changed(
    model: Any, *, fused: bool = False, merged: bool = False, padded: bool = False, transposed: bool = False
) -> Callable[[], Any]:
    """Return a context in which modules run another forward: made once, put on and taken off in no time.

    fused: torch's own rms_norm instead of the module's operators. merged: one product for q, k, v and one for gate, up.
    padded: a second row in every product of one row. transposed: weights laid out the other way round.
    """
    import torch

    swaps: list[tuple[Any, Callable[..., Any]]] = []
    for module in model.modules():
        if fused and type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            swaps.append((module, _fused(module)))
        if (padded or transposed) and isinstance(module, torch.nn.Linear):
            swaps.append((module, _padded(module) if padded else _transposed(module)))
    for layer in model.model.layers if merged else []:
        attention_, mlp = layer.self_attn, layer.mlp
        swaps += _merged([attention_.q_proj, attention_.k_proj, attention_.v_proj])
        swaps += _merged([mlp.gate_proj, mlp.up_proj])

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        for module, forward in swaps:
            module.forward = forward
        try:
            yield
        finally:
            for module, _ in swaps:
                module.__dict__.pop("forward", None)

    return around


def _fused(module: Any) -> Callable[[Any], Any]:
    import torch

    weight, eps, shape = module.weight, module.variance_epsilon, tuple(module.weight.shape)
    return lambda x: torch.nn.functional.rms_norm(x, shape, weight, eps)


def _merged(projections: list[Any]) -> list[tuple[Any, Callable[..., Any]]]:
    """The first of several products of one input computes all of them; the others hand out what it left for them."""
    import torch

    weight = torch.cat([one.weight for one in projections]).detach()
    bias = torch.cat([one.bias for one in projections]).detach() if projections[0].bias is not None else None
    sizes = [one.out_features for one in projections]
    left: dict[int, Any] = {}

    def first(x: Any) -> Any:
        parts = torch.nn.functional.linear(x, weight, bias).split(sizes, dim=-1)
        left.update(enumerate(parts[1:], 1))
        return parts[0]

    def handed_out(number: int) -> Callable[[Any], Any]:
        return lambda x: left.pop(number)

    return [(projections[0], first), *((one, handed_out(n)) for n, one in enumerate(projections[1:], 1))]


def _padded(module: Any) -> Callable[[Any], Any]:
    import torch

    def forward(x: Any) -> Any:
        if x.numel() != x.shape[-1]:
            return torch.nn.functional.linear(x, module.weight, module.bias)
        two = x.reshape(1, -1).expand(2, -1)
        return torch.nn.functional.linear(two, module.weight, module.bias)[:1].view(*x.shape[:-1], -1)

    return forward


def _transposed(module: Any) -> Callable[[Any], Any]:
    import torch

    weight = module.weight.detach().t().contiguous()

    def forward(x: Any) -> Any:
        made = torch.matmul(x, weight)
        return made if module.bias is None else made + module.bias

    return forward


# ---- twins and shapes


def wider(loaded: models.Loaded, times: int) -> str:
    """Return the spec of a model of the same family `times` as wide, registering its shape where no public one fits."""
    own = loaded.name.lower()
    public = PUBLIC.get(own, {}).get(times)
    if public:
        return f"random:{public}"
    random_weights.PRESETS[f"{own}-x{times}"] = wide(loaded.model.config, times)
    return f"random:{own}-x{times}"


def wide(config: Any, times: int) -> dict[str, Any]:
    """Return the values of a config `times` as wide, with the same layers."""
    heads, kv = config.num_attention_heads, getattr(config, "num_key_value_heads", None)
    rope = getattr(config, "rope_parameters", None) or {}
    values = {"model_type": config.model_type, "vocab_size": config.vocab_size, "rope_theta": rope.get("rope_theta")}
    values |= {"num_hidden_layers": config.num_hidden_layers, "tie_word_embeddings": config.tie_word_embeddings}
    values |= {"max_position_embeddings": config.max_position_embeddings}
    values |= {"hidden_size": times * config.hidden_size, "intermediate_size": times * config.intermediate_size}
    dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return values | {
        "num_attention_heads": times * heads,
        "num_key_value_heads": times * (kv or heads),
        "head_dim": dim,
    }


def shape_facts(model: Any) -> dict[str, Any]:
    """Return what a prediction needs of a model: layers, bytes of weights in all and a layer, bytes of the cache a
    position."""
    config = model.config
    layer_bytes = sum(one.numel() * one.element_size() for one in model.model.layers[0].parameters())
    return {
        "layers": config.num_hidden_layers,
        "weight_bytes": model_bytes.weight_bytes(model),
        "layer_bytes": layer_bytes,
        "kv_bytes_a_position": model_bytes.kv_bytes_a_position(model),
    }
