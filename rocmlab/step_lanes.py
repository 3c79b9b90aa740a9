"""A decode step as predictions see it: the ledger's two lanes, each in parts that a change can scale. Pure.

`lanes(ledger)` takes an account of ledger.of_run apart; `doses` chooses the delays that will be injected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocmlab.changes import Change
from rocmlab.rates import is_number


@dataclass(frozen=True)
class Lanes:
    """A step taken apart, in ms: the host's launches, Python and the rest; the device's part that follows the bytes and
    the part that follows the number of kernels. `serial`: nothing overlaps (a CPU)."""

    step: float
    launch: float
    python: float
    other: float
    moved: float
    kernels: float
    serial: bool
    graph: float | None = None
    twin: float | None = None
    delay: float = 0.0
    scale: float = 1.0  # of times that were measured apart, so that together they make the step

    @property
    def host(self) -> float:
        return self.launch + self.python + self.other

    @property
    def device(self) -> float:
        return self.moved + self.kernels + self.delay

    @property
    def total(self) -> float:
        """The step that these lanes make."""
        return self.host + self.device if self.serial else max(self.host, self.device)


def lanes(ledger: dict[str, Any] | None) -> Lanes | None:
    """Return the lanes of an account (ledger.of_run), None without a step time or a device time.

    The lane that binds is as wide as the step; on a CPU what neither explains is shared between both in proportion.
    """
    quantities = (ledger or {}).get("quantities") or {}
    step, device = _ms(quantities.get("T")), _ms((ledger or {}).get("device_ms"))
    if ledger is None or not step:
        return None
    serial = (ledger.get("subject") or {}).get("device") == "cpu"
    twin, graph = _ms(quantities.get("H")), _ms(quantities.get("D_graph"))
    parts = {one["name"]: one.get("ms") for lane in ("host_lane", "device_lane") for one in ledger.get(lane) or []}
    if twin is None and device is None:
        return None
    if serial:
        host = parts.get("python_dispatch") or min(twin or 0.0, step)
        device = device if device is not None else max(0.0, step - host)
        scale = step / (host + device)
        host, device = host * scale, device * scale
    else:
        host, device = twin if twin is not None else step, device if device is not None else step
        scale, (host, device) = 1.0, _as_wide_as(step, host, device, ledger.get("regime"))
    launch, python, other = _host_parts(parts, host, serial)
    floor = min(parts.get("memory_floor") or 0.0, device)
    return Lanes(step, launch, python, other, floor, device - floor, serial, graph, twin, scale=scale)


def _as_wide_as(step: float, host: float, device: float, regime: str | None) -> tuple[float, float]:
    if regime == "host_bound":
        return step, device
    if regime == "device_bound":
        return host, step
    factor = step / max(host, device)  # mixed: what neither explains is shared between them
    return host * factor, device * factor


def _host_parts(parts: dict[str, Any], host: float, serial: bool) -> tuple[float, float, float]:
    """Split the host's time as the ledger does; what it cannot split counts as Python."""
    if serial:
        return 0.0, host, 0.0
    launch, python = parts.get("launch") or 0.0, parts.get("python_dispatch") or 0.0
    small = sum(parts.get(name) or 0.0 for name in ("sampling", "readback"))
    if not launch + python:
        return 0.0, host, 0.0
    small = min(small, host - launch - python) if host > launch + python else 0.0
    factor = (host - small) / (launch + python)
    return launch * factor, python * factor, small


def _ms(quantity: Any) -> float | None:
    if isinstance(quantity, dict) and is_number(quantity.get("ms")) and quantity.get("valid", True):
        return float(quantity["ms"])
    return None


# ---- doses


def doses(found: Lanes | None) -> dict[str, float]:
    """Return the delays to inject as shares of a usual step: one on the host that must show where the host binds, one
    on the device inside its slack, and one beyond it."""
    if found is None:
        return {"host": 0.5, "hidden": 0.2, "shown": 1.5}
    slack = max(0.0, found.step - found.device) / found.step
    hidden = 0.5 * slack if slack > 0.1 else 0.2
    return {name: round(share, 3) for name, share in (("host", 0.5), ("hidden", hidden), ("shown", slack + 1))}


def dosed(change: Change, amounts: dict[str, float]) -> dict[str, Any]:
    """Return what an arm is given, with the dose as a share of the usual step."""
    return {key: amounts[value] if key == "dose" else value for key, value in change.given.items()}
