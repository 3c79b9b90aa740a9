"""Does feeding images keep up? DataLoader workers, and copies to the card from ordinary and from pinned memory.

Rows go to the tables `loader` (`study_loader`: one line a number of workers) and `transfers` (`study_copies`: one a
size and a way). Images are made on the spot, so that no disk is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rocmlab import clock, isolate, timing
from rocmlab.results import Run
from rocmlab.worker import Worker

PICTURE = 256  # pixels of a side before the crop
KIB, MIB = 1 << 10, 1 << 20
SIZES = (64 * KIB, MIB, 16 * MIB, 128 * MIB)
SAMPLES = 8


class Pictures:
    """A data set of made-up photographs: noise, smoothed, cut to `image` pixels, mirrored, scaled as ResNet wants it.

    The same on every machine; decoding large JPEG files costs several times as much.
    """

    def __init__(self, count: int, image: int) -> None:
        self.count, self.image = count, image

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        import torch
        from torch.nn import functional

        generator = torch.Generator().manual_seed(index)
        side = max(PICTURE, self.image)
        raw = torch.randint(0, 256, (1, 3, side, side), generator=generator, dtype=torch.uint8)
        smooth = functional.avg_pool2d(raw.float(), 5, stride=1, padding=2)
        left = int(torch.randint(0, side - self.image + 1, (1,), generator=generator))
        cut = smooth[0, :, left : left + self.image, left : left + self.image]
        return ((cut.flip(2) if index % 2 else cut) / 255 - 0.45) / 0.225


def study_loader(
    run: Run, keeper: Worker, device: str, *, workers: list[int], batch: int, image: int, batches: int, limit_s: float
) -> list[dict[str, Any]]:
    """Measure the loader in a worker that has touched no device yet, since its processes are copies of it."""
    given: dict[str, Any] = run.where()
    given |= {"device": device, "workers": workers, "batch": batch, "image": image, "batches": batches}
    outcome = keeper.call("rocmlab.loading:measure_loader", given, limit_s=limit_s)
    return [isolate.record(run, "loading_ended", "DataLoader", outcome)]


def study_copies(
    run: Run, keeper: Worker, device: str, *, batch: int, image: int, limit_s: float
) -> list[dict[str, Any]]:
    """Measure copies to the device in the worker; [] on the CPU, where there is nothing to copy to."""
    if device == "cpu":
        return []
    given: dict[str, Any] = run.where()
    given |= {"device": device, "batch_bytes": batch * 3 * image * image * 4}
    outcome = keeper.call("rocmlab.loading:measure_copies", given, limit_s=limit_s)
    return [isolate.record(run, "loading_ended", "copies to the card", outcome)]


def measure_loader(
    run_dir: str, notebook: str, attempt: str, device: str, workers: list[int], batch: int, image: int, batches: int
) -> None:
    """Measure the loader for each number of workers; more than there are cores are left out, with the reason."""
    run, cores = Run(Path(run_dir), notebook, attempt), timing.load()["cores"] or 1
    head = {"device": device, "batch": batch, "image_px": image, "cores": cores, "load": timing.load()}
    for count in workers:
        if count > cores:
            row: dict[str, Any] = {"samples_ms": [], "reason": f"more workers than the {cores} cores"}
        else:
            row = one_loader(count, batch, image, batches)
        run.append("loader", head | {"workers": count} | row)


def measure_copies(run_dir: str, notebook: str, attempt: str, device: str, batch_bytes: int) -> None:
    """Measure copies from the host to the device over sizes, among them that of a batch in float32."""
    timing.use(device)
    rows = [{"device": device, "load": timing.load()} | row for row in copies(device, batch_bytes)]
    Run(Path(run_dir), notebook, attempt).append("transfers", rows)


def one_loader(count: int, batch: int, image: int, batches: int) -> dict[str, Any]:
    """Return {samples_ms, start_ms} of one DataLoader: ms a batch, once all workers are at work.

    With n workers the first batches come together; so many are made before the clock starts, and what is timed is the
    whole rest, cut into at least six stretches of n batches: six give an interval.
    """
    from torch.utils.data import DataLoader

    stretch = max(1, count)
    total = 2 * stretch + stretch * max(timing.MIN_REPEATS, round(batches / stretch))
    began = time.perf_counter()
    try:
        pictures: Any = Pictures(total * batch, image)
        loader: Any = DataLoader(pictures, batch_size=batch, num_workers=count)
        feed = iter(loader)
        next(feed)
        start_ms = 1000 * (time.perf_counter() - began)
        for _ in range(2 * stretch - 1):
            next(feed)
        samples, late = [], time.perf_counter()
        for _ in range((total - 2 * stretch) // stretch):
            early = late
            for _ in range(stretch):
                next(feed)
            late = time.perf_counter()
            samples.append(1000 * (late - early) / stretch)
        del feed
    except (RuntimeError, OSError) as error:  # shared memory too small in a container, no processes allowed
        return {"samples_ms": [], "reason": f"{type(error).__name__}: {error}"[:500]}
    return {"samples_ms": samples, "start_ms": start_ms}


def copies(device: str, batch_bytes: int) -> list[dict[str, Any]]:
    """Return one row a size and a way (pageable, pinned) of copies from the host to the device, taken in turns."""
    import torch

    rows = []
    for size in sorted({*SIZES, batch_bytes}):
        try:
            target = torch.empty(size, dtype=torch.uint8, device=torch.device(device))
            plain = torch.randint(0, 256, (size,), dtype=torch.uint8)
            ways = {"pageable": plain, "pinned": plain.pin_memory()}
            samples: dict[str, list[float]] = {way: [] for way in ways}
            for given in ways.values():
                clock.warm(_copies(target, given, 1), device, blocks=3)
            passes = max(1, round(4 * MIB / size))
            for block in range(SAMPLES):
                for name in ways if block % 2 == 0 else list(ways)[::-1]:
                    samples[name].append(clock.timed(_copies(target, ways[name], passes), device) / passes)
            rows += [{"way": way, "bytes": size, "passes": passes, "samples_ms": samples[way]} for way in ways]
        except RuntimeError as error:
            rows += [
                {"way": way, "bytes": size, "samples_ms": [], "reason": str(error)[:500]}
                for way in ("pageable", "pinned")
            ]
            timing.release(device)
    return [row | {"batch_bytes": batch_bytes, "clock": clock.WALL} for row in rows]


def _copies(target: Any, given: Any, count: int) -> Callable[[], None]:
    def work() -> None:
        for _ in range(count):
            target.copy_(given, non_blocking=True)

    return work
