"""Which path did a call of attention take? Three witnesses: torch's own choice, the operators that ran, the kernels."""

from __future__ import annotations

from typing import Any

from rocmlab import timing, tracing, workload
from rocmlab.attention import DEFAULT, TABLE
from rocmlab.attention_inputs import Case, Inputs, make
from rocmlab.results import Run

# Operators that only look at memory in another way: nothing is computed and nothing launched.
VIEWS = {"_unsafe_view", "_reshape_alias", "alias", "detach"}


def choice(case: Case, inputs: Inputs) -> str | None:
    """Return the back end that torch says it would choose; None where this torch cannot be asked."""
    import torch

    queries, caches, mask = inputs.at(case.length)
    keys, values = caches[0]
    grouped = case.gqa and inputs.groups > 1
    if not grouped and inputs.groups > 1:
        from rocmlab.attention_inputs import repeated

        keys, values = repeated(keys, inputs.groups), repeated(values, inputs.groups)
    options = {"is_causal": case.causal, **({"enable_gqa": True} if grouped else {})}
    ask = lambda: torch._C._SDPBackend(torch._fused_sdp_choice(queries, keys, values, mask, **options))  # noqa: E731
    return workload.chosen(ask)


def operators(case: Case, inputs: Inputs) -> dict[str, Any]:
    """Return {ops, views, path}: operators of one call that compute, that only look, and their names in order.

    torch cuts a call of attention into its parts only outside of inference mode.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    names: list[str] = []
    views = 0

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            nonlocal views
            if func.is_view or func._schema.name.split("::")[-1] in VIEWS:
                views += 1
            else:
                names.append(func._schema.name.split("::")[-1])
            return func(*args, **(kwargs or {}))

    try:
        queries, caches, mask = inputs.at(case.length)
        with torch.inference_mode(False), torch.no_grad():
            given = [x if x is None else x.clone() for x in (queries, *caches[0], mask)]
            with Count():
                inputs.once(*given)
    except (RuntimeError, AttributeError, TypeError) as error:
        return {"ops": None, "ops_reason": f"{type(error).__name__}: {error}"[:200]}
    return {"ops": len(names), "views": views, "path": names}


def kernels(run: Run, head: dict[str, Any], cases: list[Case]) -> None:
    """Record the kernels of one call of the default, in both phases at the longest usual shape."""
    import torch

    if head["device"] == "cpu":
        return
    for phase in ("decode", "prefill"):
        usual = [case for case in cases if case.phase == phase and case.usual]
        case = max(usual, key=lambda one: one.length)
        row = head | case.fields() | {"what": "kernels", "backend": DEFAULT}
        try:
            inputs = make(case, head)
            inputs.calls(case.length, 1)
            timing.synchronise(head["device"])
            with tracing.profile(head["device"]) as prof:
                inputs.calls(case.length, 1)
                timing.synchronise(head["device"])
            kind = torch.autograd.DeviceType.CPU
            run.append(TABLE, row | {"kernels": [one.name for one in prof.events() if one.device_type != kind][:40]})
        except Exception as error:  # a build whose profiler sees no device; the other witnesses stand
            run.append(TABLE, row | {"kernels": None, "reason": f"{type(error).__name__}: {error}"[:300]})
