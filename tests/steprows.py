"""Made-up rows of the table `step`: a machine whose host and device times are known beforehand."""

from typing import Any

JITTER = (1.0, 1.004, 0.997, 1.002, 0.999, 1.001)
KERNELS, LAYERS = 1620, 28
# The prefilled queue on an H200 with 2 to 14 of 28 layers, and what a full queue gave.
DEPTHS = {2: 0.51, 4: 0.89, 7: 1.45, 14: 2.77}


def line(quantity: str, ms: float | None = None, *, parts: tuple[float, float, float] | None = None, **facts: Any):
    """One line of six samples around a value; `parts` are forward, choose and read of a stamped step."""
    row = {"quantity": quantity, "device": "cuda:0", "dtype": "float16", "grade": "D", "valid": ms is not None}
    row |= {"samples_ms": [ms * one for one in JITTER] if ms is not None else [], "method": "made up", "reason": None}
    if parts:
        row |= {f"{name}_ms": [value * one for one in JITTER]
                for name, value in zip(("forward", "choose", "read"), parts, strict=True)}  # fmt: skip
    return row | facts


def step(quantity: str, forward: float, choose: float, read: float, **facts: Any) -> dict[str, Any]:
    """A stamped step whose time is the sum of its parts."""
    return line(quantity, forward + choose + read, parts=(forward, choose, read), **facts)


def queue(depths: dict[int, float], *, spin_ms: float = 60.0, a_layer: float = 0.68) -> list[dict[str, Any]]:
    """Readings of a prefilled queue; filling it takes `a_layer` ms a layer, and as long as the spin once it is full."""
    rows = []
    for layers, ms in depths.items():
        filled = a_layer * layers if layers * KERNELS / LAYERS < 1024 else spin_ms + ms
        rows.append(line("D_queue", ms, layers=layers, of_layers=LAYERS, spin_ms=spin_ms, enqueue_ms=[filled] * 6))
    return rows


def h200(**changes: Any) -> list[dict[str, Any]]:
    """The host-bound step of methods section 1: T 18.9, twin 18.6, its CPU 6.9, replay 4.53, queue at four depths."""
    rows = {
        "T": step("T", 18.75, 0.05, 0.1),
        "H": step("H", 18.45, 0.05, 0.1),
        "H_cpu": step("H_cpu", 6.85, 0.02, 0.03),
        "E1": line("E1", 18.9),
        "D_graph": line("D_graph", 4.53),
        "H_graph": line("H_graph", 2.56),
        "D_busy": line("D_busy", 3.38, grade="A"),
        "launches": line("launches", count=KERNELS, grade="A"),
        "chain_queue": line("chain_queue", 0.0025),
        "chain_graph": line("chain_graph", 0.0020),
    }
    rows |= changes
    return [row for row in rows.values() if row] + queue({**DEPTHS, 28: 8.1})


def device_bound() -> list[dict[str, Any]]:
    """The same step with 1 ms of device work injected into each of 28 layers: T 33.6, E1 18.9, replay 4.53 + 28."""
    return h200(T=step("T", 18.75, 0.05, 14.8), D_graph=line("D_graph", 32.53), D_busy=line("D_busy", 31.38, grade="A"))


def cpu(host: float = 6.4, whole: float = 55.8) -> list[dict[str, Any]]:
    """A step on two cores without a device: only the step and its twin are measured."""
    rows = [
        step("T", whole - 0.08, 0.06, 0.02),
        step("H", host - 0.05, 0.03, 0.02),
        line("smallest", 0.0013),
        line("dispatches", count=1097),
    ]
    return [row | {"device": "cpu", "dtype": "float32"} for row in rows]
