"""Training: autograd, optimisers and automatic mixed precision."""

from __future__ import annotations

import functools
from typing import Any

from rocmlab.operators.check import SINGLE, SIXTEEN, Check, normal


def _autograd() -> list[Check]:
    make = functools.partial(Check, family="autograd", dtypes=SINGLE, terms=256, steps=8)
    layers = (normal(64, 128), normal(256, 128, scale=0.09), normal(16, 256, scale=0.06))
    return [
        make("mlp_backward", run=_mlp_backward, inputs=layers, dtypes=("float32", *SIXTEEN)),
        make("double_backward", run=_double_backward, inputs=(normal(4096),)),
        make("checkpoint", run=_checkpoint, inputs=layers),
        make("gradient_accumulation", run=_accumulate, inputs=layers[:2]),
        make("clip_grad_norm", run=_clip, inputs=(normal(256, 512), normal(512))),
    ]


def _mlp_backward(t: Any, x: Any, first: Any, second: Any) -> Any:
    weights = [w.detach().requires_grad_() for w in (first, second)]
    out = t.nn.functional.gelu(x @ weights[0].t()) @ weights[1].t()
    return t.autograd.grad(out.square().mean(), weights)


def _double_backward(t: Any, x: Any) -> Any:
    leaf = x.detach().requires_grad_()
    (once,) = t.autograd.grad((leaf**3).sum(), leaf, create_graph=True)
    return t.autograd.grad(once.sum(), leaf)[0]


def _checkpoint(t: Any, x: Any, first: Any, second: Any) -> Any:
    from torch.utils.checkpoint import checkpoint

    weights = [w.detach().requires_grad_() for w in (first, second)]
    hidden = checkpoint(lambda w: t.tanh(x @ w.t()), weights[0], use_reentrant=False)
    return t.autograd.grad((hidden @ weights[1].t()).square().mean(), weights)


def _accumulate(t: Any, x: Any, weight: Any) -> Any:
    leaf = weight.detach().requires_grad_()
    for part in x.chunk(4):
        (part @ leaf.t()).square().mean().backward()
    return leaf.grad


def _clip(t: Any, *given: Any) -> Any:
    leaves = [g.detach().requires_grad_() for g in given]
    for leaf, g in zip(leaves, given, strict=True):
        leaf.grad = g.detach().clone()
    norm = t.nn.utils.clip_grad_norm_(leaves, 1.0)
    return norm, *(leaf.grad for leaf in leaves)


def _optimisers() -> list[Check]:
    make = functools.partial(Check, family="optimiser", inputs=(normal(128, 256), normal(128, 256)), steps=16)
    return [
        make("sgd_momentum", run=_optimise("SGD", lr=0.125, momentum=0.5)),
        make("adam", run=_optimise("Adam", lr=0.125), dtypes=("float32", "bfloat16")),
        make("adamw_foreach", run=_optimise("AdamW", lr=0.125, foreach=True), dtypes=("float32", "bfloat16")),
        make("adamw_fused", run=_optimise("AdamW", lr=0.125, fused=True), dtypes=SINGLE),
        make("rmsprop", run=_optimise("RMSprop", lr=0.0625), dtypes=SINGLE),
        make("adagrad", run=_optimise("Adagrad", lr=0.0625), dtypes=SINGLE),
    ]


def _optimise(name: str, **options: Any) -> Any:
    def run(t: Any, start: Any, gradient: Any) -> Any:
        leaf = start.detach().clone().requires_grad_()
        chosen = getattr(t.optim, name)([leaf], **options)
        for step in range(3):
            leaf.grad = gradient.detach() * (step + 1)
            chosen.step()
        return leaf.detach()

    return run


# ---- automatic mixed precision: weights and inputs in float32, products in the dtype under test


def _mixed() -> list[Check]:
    make = functools.partial(Check, family="autocast", dtypes=SIXTEEN, keyword=True, terms=256, steps=8, library="blas")
    layers = (normal(64, 128), normal(256, 128, scale=0.09), normal(16, 256, scale=0.06))
    return [
        make("autocast_forward", run=_autocast, inputs=layers),
        make("autocast_training_step", run=_autocast_step, inputs=layers, waits=True),
        make("autocast_convolution", run=_autocast_conv,
            inputs=(normal(2, 16, 14, 14), normal(16, 16, 3, 3, scale=0.08)), library="dnn"),
        make("grad_scaler_skips_overflow", run=_scaler, inputs=(normal(16, 16),), dtypes=("float16",), waits=True,
            library=None),
    ]  # fmt: skip


def _region(t: Any, x: Any, dtype: str) -> Any:
    """Autocast on the device of x; off in the float64 reference."""
    return t.autocast(x.device.type, getattr(t, dtype), enabled=x.dtype != t.float64)


def _autocast(t: Any, x: Any, first: Any, second: Any, *, dtype: str) -> Any:
    with _region(t, x, dtype):
        return t.nn.functional.gelu(x @ first.t()) @ second.t()


def _autocast_step(t: Any, x: Any, first: Any, second: Any, *, dtype: str) -> Any:
    """Take one training step with a scaled loss; returns the new weights."""
    weights = [w.detach().clone().requires_grad_() for w in (first, second)]
    chosen = t.optim.SGD(weights, lr=1.0)
    scaler = t.amp.GradScaler(x.device.type, init_scale=128.0, enabled=dtype == "float16" and x.dtype != t.float64)
    with _region(t, x, dtype):
        loss = (t.nn.functional.gelu(x @ weights[0].t()) @ weights[1].t()).float().square().mean()
    scaler.scale(loss.to(x.dtype)).backward()
    scaler.step(chosen)
    scaler.update()
    return [w.detach() for w in weights]


def _autocast_conv(t: Any, x: Any, weight: Any, *, dtype: str) -> Any:
    with _region(t, x, dtype):
        return t.nn.functional.relu(t.nn.functional.conv2d(x, weight, padding=1))


def _scaler(t: Any, x: Any, *, dtype: str) -> Any:
    """A gradient that overflows must be skipped and the scale halved; the weights stay as they were."""
    leaf = x.detach().clone().requires_grad_()
    scaler = t.amp.GradScaler(x.device.type, init_scale=1024.0)
    chosen = t.optim.SGD([leaf], lr=1.0)
    scaler.scale(leaf.sum() * float("inf")).backward()
    scaler.step(chosen)
    scaler.update()
    return leaf.detach(), t.tensor(scaler.get_scale(), dtype=x.dtype, device=x.device)


CHECKS = [*_autograd(), *_optimisers(), *_mixed()]
