"""Every operator of PyTorch's own OpInfo database, with its own sample inputs, against the CPU in float64.

The database (torch.testing._internal) is what PyTorch tests itself with; which operators it holds depends on the
installed torch. `study(...)` runs one request an operator and dtype over a few workers (opinfo_trial.py answers).
"""

from __future__ import annotations

import os
import queue
import threading
import time
from typing import Any

from rocmlab import evidence, operator_study, worker
from rocmlab.results import Run

SET = "all"
MOST_WORKERS = 4
RECYCLE = 400  # requests of one worker, so that what operators leave behind does not pile up
GROUPS = ("nn.functional", "linalg", "fft", "special", "masked", "signal", "sparse", "torch.ops")


def study(run: Run, device: str, plan: operator_study.Plan, *, mode: str, budget_s: float) -> int:
    """Try every entry in every dtype of the plan (mode "all"), or those that did not pass last time ("failed").

    Appends a row each and returns their number. Several workers share the list; each crash costs one row. What is left
    when the time is spent becomes rows too.
    """
    only = operator_study.failed(run.path, SET) if mode == "failed" else None
    if mode == "curated" or (only is not None and not only):
        return 0
    env = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    first = ("rocmlab.opinfo_trial:begin", {"device": device})
    keepers = [worker.Worker(env=env, first=first) for _ in range(_workers(device))]
    names = _names(keepers[0], device, plan.limit_s)
    if isinstance(names, str):
        row = {"op": "opinfo", "family": "opinfo", "dtype": "-", "status": "NOT_TRIED", "not_tried": names}
        run.append(operator_study.TABLE, _header(device, only) | row)
        return 1
    todo = [(op, dtype) for op in names for dtype in plan.dtypes if only is None or (op, dtype) in only]
    waiting: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    for one in todo:
        waiting.put(one)
    ends, lock = time.monotonic() + budget_s, threading.Lock()
    threads = [
        threading.Thread(target=_drain, args=(run, keeper, waiting, device, plan, ends, lock, only))
        for keeper in keepers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(todo)


def _workers(device: str) -> int:
    """One core each on a CPU; on a GPU half of the cores, because the device is shared anyway."""
    cores = os.cpu_count() or 1
    return max(1, min(MOST_WORKERS, cores if device == "cpu" else cores // 2))


def _header(device: str, only: frozenset | None) -> dict[str, Any]:
    return {
        "schema": operator_study.SCHEMA, "set": SET, "device_asked": device, "plan_only": only is not None,
    }  # fmt: skip


def _names(keeper: worker.Worker, device: str, limit_s: float) -> list[str] | str:
    """Return the names of all entries, or in words why the database cannot be had."""
    outcome = keeper.call("rocmlab.opinfo_trial:names", limit_s=limit_s)
    return outcome.result if outcome.status == "OK" else f"PyTorch's OpInfo database: {outcome.words}"


def _drain(
    run: Run,
    keeper: worker.Worker,
    waiting: queue.SimpleQueue[tuple[str, str]],
    device: str,
    plan: operator_study.Plan,
    ends: float,
    lock: threading.Lock,
    only: frozenset | None,
) -> None:
    """Take one operator after the other until none is left."""
    asked, dead = 0, 0
    last: dict[str, Any] = {}
    with keeper:
        while True:
            try:
                op, dtype = waiting.get_nowait()
            except queue.Empty:
                return
            with lock:
                operator_study.late_end(run, keeper, last)
            row = {"op": op, "family": family(op), "dtype": dtype, "compute_dtype": dtype}
            if dead >= operator_study.PATIENCE or time.monotonic() > ends:
                reason = "worker_will_not_start" if dead >= operator_study.PATIENCE else "budget_spent"
                row |= {"status": "NOT_TRIED", "not_tried": reason}
            else:
                row |= _ask(keeper, op, dtype, device, plan.limit_s)
                dead = dead + 1 if row.get("no_worker") else 0
                asked += 1
                if evidence.poisoned(row) or asked % RECYCLE == 0:
                    keeper.retire()
            last = _header(device, only) | row
            with lock:
                run.append(operator_study.TABLE, last)


def _ask(keeper: worker.Worker, op: str, dtype: str, device: str, limit_s: float) -> dict[str, Any]:
    before = keeper.started
    outcome = keeper.call("rocmlab.opinfo_trial:look", {"name": op, "dtype": dtype, "device": device}, limit_s=limit_s)
    row = dict(outcome.result or {"error": outcome.error})
    row |= {"status": outcome.status, "words": outcome.words, "exit_code": outcome.exit_code}
    row |= {"seconds": round(outcome.seconds, 3), "stderr": outcome.stderr[: operator_study.TEXT_KEPT]}
    if keeper.started > before and keeper.begun is not None and keeper.begun.status != "OK":
        row["no_worker"] = True
    return row


def family(op: str) -> str:
    """Return the group of an entry by its name."""
    group = next((group for group in GROUPS if op.startswith(f"{group}.")), "tensor operators")
    return f"OpInfo {group}"
