"""Switch a library's log on, do a piece of work in a child process, and keep what was logged.

`listen(run, "onednn", work)` sets the variables before the child starts, as the libraries demand, and reads its output.
One child a kind of log; a child without any log measures how much the logs slow the work down. Logged and clean runs
are never mixed. The logs of cuBLAS, cuBLASLt and cuDNN are one kind: calls of the first and the last end in the second,
and only the order of lines in one stream shows which; one child instead of three also saves half the notebook's time.

`python -m rocmlab.logbook FOLDER` collects the raw logs of this machine without a notebook.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmlab import isolate, libraries, library_judges, results, timing
from rocmlab.libraries import Log
from rocmlab.readers import logs
from rocmlab.results import Run
from rocmlab.workload import FULL_EXIT, LIMIT_BYTES

CLEAN = "clean"
MOST_KNOWN = 100_000  # lines of a log that are remembered, so that memory stays small whatever it holds

# What each log needs to be set, by back end of torch. All write to stdout or stderr, where the marks of the work are.
KINDS: dict[str, dict[str, dict[str, str]]] = {
    "cpu": {
        "onednn": {"ONEDNN_VERBOSE": "1", "DNNL_VERBOSE": "1"},
        "mkl": {"MKL_VERBOSE": "1"},
    },
    "hip": {
        "rocblas": {"ROCBLAS_LAYER": "10"},  # 2 bench, 8 which back end
        "hipblaslt": {"HIPBLASLT_LOG_MASK": "32"},
        "miopen": {
            "MIOPEN_ENABLE_LOGGING_CMD": "1",
            "MIOPEN_ENABLE_LOGGING_CMD_FIND": "1",
            "MIOPEN_LOG_LEVEL": "6",
        },
        "runtime": {"AMD_LOG_LEVEL": "3", "AMD_LOG_MASK": "129"},  # 1 API calls, 128 kernels by name
    },
    "cuda": {
        "nvidia": {
            "CUBLAS_LOGINFO_DBG": "1",
            "CUBLAS_LOGDEST_DBG": "stdout",
            "CUBLASLT_LOG_LEVEL": "2",
            "CUDNN_LOGLEVEL_DBG": "3",
            "CUDNN_LOGDEST_DBG": "stdout",
            "CUDNN_FRONTEND_LOG_INFO": "1",
            "CUDNN_FRONTEND_LOG_FILE": "stdout",
        },
    },
}


@dataclass(frozen=True)
class Listened:
    """One child: how it ended, what its work returned, and what its streams hold."""

    kind: str
    status: str
    words: str
    seconds: float
    result: dict[str, Any] | None
    log: Log
    file: str
    bytes: int


def backend(device: str) -> str:
    """Return cpu, hip or cuda: whose logs can exist for work on this device. Imports torch, touches no GPU."""
    if device == "cpu":
        return "cpu"
    import torch

    return "hip" if torch.version.hip else "cuda"


def listen(run: Run, kind: str, variables: dict[str, str], work: dict[str, Any], *, limit_s: float) -> Listened:
    """Do `work` (arguments of `labour`) in a child with these variables set; never raises for what the child does."""
    with tempfile.TemporaryDirectory(prefix="rocmlab-log-", ignore_cleanup_errors=True) as folder:
        streams = Path(folder)
        outcome = isolate.call("rocmlab.workload:labour", work, limit_s=limit_s, env=variables, streams=streams)
        status, words = outcome.status, outcome.words
        if outcome.exit_code == FULL_EXIT:
            status, words = "LOG_FULL", f"ended: its log grew over {LIMIT_BYTES >> 20} MB"
        size = sum((streams / name).stat().st_size for name in ("stdout", "stderr"))
        target = run.path / "logs" / f"{run.notebook}-{kind}.log"
        keep(streams, target)
        return Listened(
            kind, status, words, outcome.seconds, outcome.result, logs.parse(target), f"logs/{target.name}", size
        )


def keep(streams: Path, target: Path) -> None:
    """Write both streams of a child into one log, stdout first, without names of people and machines.

    A library says the same thousands of times, so each line is looked through once.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, str] = {}
    with target.open("w", encoding="utf-8", newline="\n") as file:
        for name in ("stdout", "stderr"):
            for block in _blocks(logs.lines(streams / name)):
                new = [line for line in dict.fromkeys(block) if line not in known]
                known.update(zip(new, results.redact(new), strict=True))
                file.write("\n".join(known[line] for line in block) + "\n")
                if len(known) > MOST_KNOWN:
                    known.clear()
            file.write(f"{logs.MARK}end of {name}\n")


def _blocks(lines: Iterator[str], size: int = 4096) -> Iterator[list[str]]:
    block: list[str] = []
    for line in lines:
        block.append(line)
        if len(block) == size:
            yield block
            block = []
    if block:
        yield block


def study(run: Run, device: str, work: dict[str, Any], *, limit_s: float) -> list[Listened]:
    """Run the clean child and one child a kind of log; record how each ended and what it logged."""
    kinds = {CLEAN: dict[str, str](), **KINDS[backend(device)]}
    found = []
    for kind, variables in kinds.items():
        one = listen(run, kind, variables, {**work, "device": device}, limit_s=limit_s)
        found.append(one)
        record(run, one, variables, found[0])
    return found


def record(run: Run, one: Listened, variables: dict[str, str], clean: Listened) -> None:
    """Append one row about the child, and its library calls as tidy rows."""
    ms, clean_ms = ((x.result or {}).get("step_ms", {}) for x in (one, clean))
    slow = {dtype: ms[dtype] / clean_ms[dtype] for dtype in ms if clean_ms.get(dtype) and one.kind != CLEAN}
    rows = [{"kind_of_log": one.kind, "file": one.file, **row} for row in libraries.rows(one.log)]
    rows = [row for row in rows if row["kind"] != "api"]
    run.append(
        "library_runs",
        {
            "kind": one.kind,
            "variables": variables,
            "status": one.status,
            "words": one.words,
            "seconds": round(one.seconds, 2),
            "file": one.file,
            "bytes": one.bytes,
            "numbers": libraries.numbers(one.log),
            "phases": dict(one.log.phases),
            "step_ms": ms,
            "slow_down": slow,
            "findings": library_judges.judge(one.log),
            "per_step": per_step(rows, one.result),
            "load": timing.load(),
            "work": one.result,
        },
    )
    if rows:
        run.append("library_calls", rows)


def per_step(rows: list[dict[str, Any]], done: dict[str, Any] | None) -> dict[str, dict[str, float]]:
    """Return launches, copies and waits of one decode step by dtype, where the runtime's log holds them; {} else."""
    found: dict[str, dict[str, float]] = {}
    for dtype in (done or {}).get("dtypes", []):
        here = [r for r in rows if r["phase"] == f"decode {dtype}" and r["library"] == "HIP runtime"]
        if here and done:
            kinds = {"launch": "launches", "copy": "copies", "sync": "synchronisations"}
            found[dtype] = {
                f"{name}_a_step": sum(r["calls"] for r in here if r["kind"] == kind) / done["steps"]
                for kind, name in kinds.items()
            }
    return found


def main(folder: str, model: str = "random:tiny", device: str = "auto", dtype: str = "float16") -> None:
    """Collect the logs of this machine in a folder: `python -m rocmlab.logbook FOLDER [MODEL] [DEVICE] [DTYPE]`."""
    import torch

    if device == "auto":
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
    dtypes = ["float32", "bfloat16"] if device == "cpu" else [dtype]
    run = results.start("08", folder)
    for one in study(run, device, {"model": model, "dtypes": dtypes}, limit_s=300):
        errors = (one.result or {}).get("errors") or "-"
        print(f"{one.kind}: {one.status}, {one.words}, {one.bytes} bytes, errors: {errors}")
    print(f"logs and records are in {run.path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
