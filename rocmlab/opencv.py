"""Does OpenCV find a device through OpenCL, is a filter on it right, and faster than on the processor?

An optional extra: `pip install rocmlab[opencv]`. `study(...)` runs `measure` in a child, since a broken OpenCL driver
may crash; rows go to the table `opencv`. OpenCV's UMat is computed on the OpenCL device, Mat on the processor.
"""

from __future__ import annotations

import os
import time
from typing import Any

from rocmlab import isolate, timing
from rocmlab.results import Run

CHOICE = "OPENCV_OPENCL_DEVICE"  # platform:type:name; without it OpenCV takes a GPU only
KINDS = {2: "CPU", 4: "GPU", 8: "accelerator"}
FILTER = "GaussianBlur 15 x 15"
SAMPLES = 8
LEVELS = 1  # of 255: both ways round, not always alike


def study(run: Run, *, height: int, limit_s: float) -> list[dict[str, Any]]:
    """Try OpenCV with the device it chooses; without a GPU among them once more with the processor as OpenCL device."""
    ended = []
    for choice in dict.fromkeys((os.environ.get(CHOICE, ""), ":CPU:")):
        given = {"height": height, "choice": choice}
        env = {CHOICE: choice} if choice else None
        outcome = isolate.call("rocmlab.opencv:measure", given, limit_s=limit_s, env=env)
        said = f"{outcome.status}: {outcome.words}"
        row = outcome.result or {"installed": None, "error": said, "choice": choice}
        run.append("opencv", row)
        ended.append(isolate.record(run, "opencv_ended", f"OpenCV {choice}".strip(), outcome))
        if row.get("installed") is False or row.get("device_name") or row.get("have_opencl") is False:
            break
    return ended


def measure(height: int, choice: str) -> dict[str, Any]:
    """Return one row: version, OpenCL device, times of the filter in ms both ways, and how far results are apart."""
    try:
        import cv2
    except ImportError as error:
        return {"installed": False, "error": str(error), "choice": choice}
    row: dict[str, Any] = {"installed": True, "version": cv2.__version__, "choice": choice, "filter": FILTER}
    row |= {"have_opencl": cv2.ocl.haveOpenCL(), "load": timing.load()}
    if not row["have_opencl"]:
        return row
    cv2.ocl.setUseOpenCL(True)
    if not cv2.ocl.useOpenCL():
        return row
    device = cv2.ocl.Device.getDefault()
    row |= {"device_name": device.name(), "device_vendor": device.vendorName(), "device_version": device.version()}
    return row | {"device_kind": KINDS.get(device.type(), str(device.type()))} | _filter(cv2, height)


def _filter(cv2: Any, height: int) -> dict[str, Any]:
    import numpy as np

    picture = np.random.default_rng(0).integers(0, 256, (height, height * 16 // 9, 3), dtype=np.uint8)
    placed = cv2.UMat(picture)

    def on_host() -> Any:
        return cv2.GaussianBlur(picture, (15, 15), 3.0)

    def on_device() -> Any:
        made = cv2.GaussianBlur(placed, (15, 15), 3.0)
        cv2.ocl.finish()
        return made

    def with_copies() -> Any:
        return cv2.GaussianBlur(cv2.UMat(picture), (15, 15), 3.0).get()

    ways = {"mat": on_host, "umat": on_device, "umat_copied": with_copies}
    first = {f"{name}_first_ms": _ms(way) for name, way in ways.items()}
    apart = np.abs(on_host().astype(np.int16) - on_device().get().astype(np.int16))
    samples: dict[str, list[float]] = {f"{name}_ms": [] for name in ways}
    for block in range(SAMPLES):
        for name in ways if block % 2 == 0 else list(ways)[::-1]:
            samples[f"{name}_ms"].append(_ms(ways[name]))
    return {
        "height_px": height,
        "levels_apart": int(apart.max()),
        "pixels_apart": int((apart > LEVELS).sum()),
        **first,
        **samples,
    }


def _ms(way: Any) -> float:
    began = time.perf_counter()
    way()
    return 1000 * (time.perf_counter() - began)
