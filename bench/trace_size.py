"""How long does reading and judging a trace take, by its size, and how much memory?

`python bench/trace_size.py 5 50 500` repeats a small trace with shifted times and ids until it has that many MB, then
reads and judges each in a process of its own. Run it on a quiet machine; the load average is printed beside the times.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
SEED = HERE / "tests" / "data" / "traces" / "decode_made.json.gz"
# Runs in the child: peak memory in KiB on Linux; Windows has no resource module.
CHILD = """
import sys, time
from pathlib import Path
import rocmlab.profiler, rocmlab.trace_judge
from rocmlab import readers
began = time.perf_counter()
answer = readers.answer(Path(sys.argv[1]))
seconds = time.perf_counter() - began
try:
    import resource
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
except ImportError:
    peak = float("nan")
print(seconds, peak, answer["numbers"]["events"], answer["numbers"]["device_events"], answer["verdict"])
"""


def shifted(event: dict[str, Any], round_number: int, span_us: float, ids: int) -> dict[str, Any]:
    """Return an event of a later repetition: later by so many spans, with numbers that no other repetition uses."""
    event = dict(event)
    if "ts" in event:
        event["ts"] = round(event["ts"] + round_number * span_us, 3)
    if "id" in event:
        event["id"] += round_number * ids
    args = event.get("args") or {}
    moved = {key: args[key] + round_number * ids for key in ("correlation", "External id") if key in args}
    return {**event, "args": {**args, **moved}} if moved else event


def write(path: Path, seed: Path, megabytes: float) -> int:
    """Repeat a trace until the file has this size; return how many events it holds."""
    opener = gzip.open if seed.suffix == ".gz" else open
    with opener(seed, "rt", encoding="utf-8") as file:
        document = json.load(file)
    events = [event for event in document.pop("traceEvents") if event.get("ph") != "M" and event.get("cat") != "Trace"]
    complete = [event for event in events if event["ph"] == "X"]
    span_us = max(e["ts"] + e["dur"] for e in complete) - min(e["ts"] for e in complete) + 100.0
    ids = 1 + max(max(e.get("args", {}).get(key, 0) for key in ("correlation", "External id")) for e in complete)
    written, number = 0, 0
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(document)[:-1] + (', "traceEvents": [' if document else '"traceEvents": ['))
        while written < megabytes * 1e6:
            text = ",".join(json.dumps(shifted(event, number, span_us, ids)) for event in events)
            file.write(("," if number else "") + text)
            written += len(text)
            number += 1
        file.write("]}")
    return number * len(events)


def measure(path: Path) -> list[str]:
    """Read and judge one file in a fresh process; return its printed fields."""
    env = {**os.environ, "PYTHONPATH": str(HERE)}
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split()


def main(arguments: list[str]) -> None:
    seed = next((Path(a) for a in arguments if not a.replace(".", "").isdigit()), SEED)
    sizes = [float(a) for a in arguments if a.replace(".", "").isdigit()] or [5, 50, 500]
    print(f"{seed.name}, {os.cpu_count()} cores")
    print(f"{'MB':>8} {'events':>9} {'device':>8} {'s':>7} {'s/100 MB':>9} {'peak MB':>8} {'load':>5}  verdict")
    with tempfile.TemporaryDirectory(prefix="rocmlab-bench-") as folder:
        for size in sizes:
            path = Path(folder, "trace.json")
            write(path, seed, size)
            megabytes = path.stat().st_size / 1e6
            load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
            seconds, peak, events, device, verdict = measure(path)
            rate = float(seconds) / megabytes * 100
            print(
                f"{megabytes:8.1f} {events:>9} {device:>8} {float(seconds):7.2f} {rate:9.2f} {float(peak):8.0f} "
                f"{load:5.2f}  {verdict}",
                flush=True,
            )


if __name__ == "__main__":
    began = time.monotonic()
    main(sys.argv[1:])
    print(f"{time.monotonic() - began:.0f} s in all")
