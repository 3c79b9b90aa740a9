"""One step of a network in an arm (dtype and memory layout), and whether it computes what float64 on the CPU does.

Float32 stays float32: TF32 is switched off by `exact()`. Training takes 16 bit by autocast, float16 with GradScaler;
inference has its weights in the dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from rocmlab import networks

LEARNING_RATE, MOMENTUM = 0.01, 0.9
# GradScaler begins at 65,536, which a fresh network may overflow: it would skip steps while they are timed.
FIRST_SCALE = 1024.0
LEAST_SCALE = 2.0**-20  # below it every gradient of a working kernel is finite; what is not then is a wrong one


@dataclass(frozen=True)
class Plan:
    """What is asked of each network; sizes in pixels and tokens, `check_` for the comparison with float64."""

    batch: int
    image: int
    length: int
    size: str
    rounds: int
    check_batch: int
    check_image: int
    sustained_s: float


def exact() -> bool:
    """Keep float32 float32: TF32, which cuDNN would use by default, has float16's precision and a name of its own.

    Returns whether torch would use it all the same.
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return bool(torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32)


def split(arm: str) -> dict[str, str]:
    """Return {arm, dtype, layout} of "float16" or "float16 channels_last"."""
    dtype, _, layout = arm.partition(" ")
    return {"arm": arm, "dtype": dtype, "layout": layout or "contiguous"}


def stepper(model: str, network: Any, batch: int, device: str, arm: dict[str, Any], plan: Plan) -> Callable[[], Any]:
    """Return a function that does one step on a copy of the network and returns the loss, or the output.

    Training: forward, loss, backward, SGD, 16 bit by autocast. Inference: weights in the dtype.
    """
    import copy

    import torch

    mine = copy.deepcopy(network).to(torch.device(device))
    given = networks.inputs(model, batch, plan.image, plan.length).to(torch.device(device))
    if arm["layout"] == "channels_last":
        mine = mine.to(memory_format=torch.channels_last)
        given = given.contiguous(memory_format=torch.channels_last)
    if networks.WORK[model] == "training":
        return _trainer(model, mine.train(), given, networks.targets(batch).to(given.device), arm["dtype"])
    dtype = getattr(torch, arm["dtype"])
    mine = mine.eval().to(dtype)
    given = given.to(dtype) if given.is_floating_point() else given

    def step() -> Any:
        with torch.inference_mode():
            return networks.output(model, mine, given)

    return step


def _trainer(model: str, network: Any, given: Any, wanted: Any, dtype: str) -> Callable[[], Any]:
    import torch

    kind, narrow = given.device.type, dtype in ("float16", "bfloat16")
    network, given = (
        (network, given) if narrow else (network.to(getattr(torch, dtype)), given.to(getattr(torch, dtype)))
    )
    optimiser = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    scaled = dtype == "float16" and kind == "cuda"
    scaler = torch.amp.GradScaler(kind, init_scale=FIRST_SCALE, enabled=scaled)  # type: ignore[attr-defined]

    def step() -> Any:
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(kind, dtype=getattr(torch, dtype) if narrow else None, enabled=narrow):
            found = networks.output(model, network, given)
            loss = torch.nn.functional.cross_entropy(found, wanted)
        scaler.scale(loss).backward()
        scaler.step(optimiser)
        scaler.update()
        return loss.detach()

    return step


# ---- right or wrong


def answers(model: str, network: Any, device: str, arm: dict[str, Any], plan: Plan) -> dict[str, list[Any]]:
    """Return what an arm computes on a small batch, lists of float64 tensors on the CPU: {output}, or {loss, gradient}.

    The loss is that of a training step. The gradient is taken with fixed statistics of the batch norms: with those of a
    small batch a fresh network is so ill-conditioned that even float32 gradients come out 2% apart.
    """
    import torch

    small = replace(plan, image=plan.check_image)
    found = stepper(model, network, plan.check_batch, device, arm, small)()
    if networks.WORK[model] != "training":
        return {"output": [found.to("cpu", torch.float64)]}
    return {"loss": [found.to("cpu", torch.float64)], "gradient": _gradient(model, network, device, arm, small)}


def _gradient(model: str, network: Any, device: str, arm: dict[str, Any], plan: Plan) -> list[Any]:
    """Return the gradient of every weight, one tensor each."""
    import copy

    import torch

    narrow = arm["dtype"] in ("float16", "bfloat16")
    dtype = torch.float32 if narrow else getattr(torch, arm["dtype"])
    mine = copy.deepcopy(network).eval().to(device=device, dtype=dtype)
    given = networks.inputs(model, plan.check_batch, plan.image, plan.length).to(device, dtype)
    if arm["layout"] == "channels_last":
        mine = mine.to(memory_format=torch.channels_last)
        given = given.contiguous(memory_format=torch.channels_last)
    scale = FIRST_SCALE if arm["dtype"] == "float16" else 1.0
    while True:
        mine.zero_grad(set_to_none=True)
        with torch.autocast(given.device.type, dtype=getattr(torch, arm["dtype"]) if narrow else None, enabled=narrow):
            found = networks.output(model, mine, given)
            loss = torch.nn.functional.cross_entropy(found, networks.targets(plan.check_batch).to(device))
        (scale * loss).backward()
        made = [one.grad.to("cpu", torch.float64) / scale for one in mine.parameters()]
        # As GradScaler does: what overflows in float16 is scaled down and tried again, and is no wrong kernel.
        if arm["dtype"] != "float16" or scale <= LEAST_SCALE or all(bool(torch.isfinite(one).all()) for one in made):
            return made
        scale /= 4


def check(got: dict[str, list[Any]], right: dict[str, list[Any]]) -> dict[str, Any]:
    """Compare answers with those in float64: {<what>_error} relative to the norm, of the worst tensor; all finite?"""
    import torch

    row: dict[str, Any] = {"finite": all(bool(torch.isfinite(one).all()) for many in got.values() for one in many)}
    for name, many in got.items():
        row[f"{name}_error"] = max(_apart(one, wanted) for one, wanted in zip(many, right[name], strict=True))
    return row | ({"loss": float(got["loss"][0]), "loss_float64": float(right["loss"][0])} if "loss" in got else {})


def _apart(one: Any, wanted: Any) -> float:
    import torch

    size = float(torch.linalg.vector_norm(wanted))
    return float(torch.linalg.vector_norm(one - wanted)) / (size or 1.0)
