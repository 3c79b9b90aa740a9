"""NVIDIA's management library, read by ctypes: nothing to install, and no process for each reading.

Function names, units and enumerations are those of nvml.h: clocks in MHz, power in mW, temperature in degrees C.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable
from typing import Any

SM_CLOCK, MEMORY_CLOCK, GPU_TEMPERATURE = 1, 2, 0
# nvmlClocksEventReasons: why the clock is lower than it could be. Idle and the application's own setting are no limit.
LIMITS = {0x4: "power cap", 0x8: "hardware slowdown", 0x20: "heat", 0x40: "heat (hardware)", 0x80: "power brake"}


class Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Utilization(ctypes.Structure):
    """nvmlUtilization_t, in percent of the last sampling period."""

    _fields_ = [(name, ctypes.c_uint) for name in ("gpu", "memory")]


def library() -> Any:
    """Return the loaded and initialised library, None where there is none."""
    names = ("nvml.dll",) if os.name == "nt" else ("libnvidia-ml.so.1", "libnvidia-ml.so")
    for name in names:
        with contextlib.suppress(OSError, AttributeError):
            found = ctypes.CDLL(name)
            if found.nvmlInit_v2() == 0:
                return found
    return None


def handle(nvml: Any, bus: str | None) -> ctypes.c_void_p | None:
    """Return the handle of a card by PCI address; without one that of the only card, None where there are several."""
    found = ctypes.c_void_p()
    if bus and nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.encode("ascii"), ctypes.byref(found)) == 0:
        return found
    count = ctypes.c_uint()
    if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0 or count.value != 1:
        return None
    return found if nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(found)) == 0 else None


def reader(bus: str | None, nvml: Any = None) -> Callable[[], dict[str, Any]] | None:
    """Return the function that reads one card, None without the library or the card."""
    nvml = nvml or library()
    card = handle(nvml, bus) if nvml else None
    return (lambda: read(nvml, card)) if card else None


def read(nvml: Any, card: Any) -> dict[str, Any]:
    """Return the fields of one reading; a call that the card does not support gives None."""
    memory = _ask(nvml, "nvmlDeviceGetMemoryInfo", card, into=Memory())
    use = _ask(nvml, "nvmlDeviceGetUtilizationRates", card, into=Utilization())
    power, cap = (
        _ask(nvml, name, card, into=ctypes.c_uint())
        for name in ("nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit")
    )
    clocks = [
        _ask(nvml, "nvmlDeviceGetClockInfo", card, which, into=ctypes.c_uint()) for which in (SM_CLOCK, MEMORY_CLOCK)
    ]
    highest = [
        _ask(nvml, "nvmlDeviceGetMaxClockInfo", card, which, into=ctypes.c_uint()) for which in (SM_CLOCK, MEMORY_CLOCK)
    ]
    warm = _ask(nvml, "nvmlDeviceGetTemperature", card, GPU_TEMPERATURE, into=ctypes.c_uint())
    # Drivers from 535 on call throttle reasons event reasons.
    reasons = _ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", card, into=ctypes.c_ulonglong())
    reasons = reasons or _ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", card, into=ctypes.c_ulonglong())
    return {
        "sclk_mhz": clocks[0].value if clocks[0] else None,
        "sclk_max_mhz": highest[0].value if highest[0] else None,
        "mclk_mhz": clocks[1].value if clocks[1] else None,
        "mclk_max_mhz": highest[1].value if highest[1] else None,
        "power_w": power.value / 1000 if power else None,
        "power_cap_w": cap.value / 1000 if cap else None,
        "temp_c": warm.value if warm else None,
        "use_percent": use.gpu if use else None,
        "memory_used_bytes": memory.used if memory else None,
        "memory_total_bytes": memory.total if memory else None,
        "limited_by": None if reasons is None else limits(reasons.value),
    }


def limits(reasons: int) -> list[str]:
    """Return in words what holds the clock down; [] when nothing does."""
    return [name for bit, name in LIMITS.items() if reasons & bit]


def _ask(nvml: Any, name: str, card: Any, *given: int, into: Any) -> Any:
    """Call one function; return the structure it filled, None where it is missing or says that it cannot."""
    function = getattr(nvml, name, None)
    return into if function is not None and function(card, *given, ctypes.byref(into)) == 0 else None
