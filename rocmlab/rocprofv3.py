"""What does rocprofv3 see of the same decode steps, where it is installed?

`measure(run, ...)` runs them under it in a process of its own, and records what its kernel table says.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from rocmlab import isolate, models, readers, timing, tracing
from rocmlab.prompts import PROMPTS, prompt_ids
from rocmlab.results import Run


def measure(
    run: Run, model: str, device: str, dtype: str, *, prompt: str, steps: int, limit_s: float
) -> dict[str, Any]:
    """Run the same steps under rocprofv3 if it is installed, and record what its kernel table says."""
    tool = shutil.which("rocprofv3")
    row: dict[str, Any] = {"what": "rocprofv3", "status": "NOT_AVAILABLE", "words": "rocprofv3 is not on PATH"}
    if device != "cpu" and tool:
        with tempfile.TemporaryDirectory(prefix="rocmlab-", ignore_cleanup_errors=True) as folder:
            given = f"{model!r}, {device!r}, {dtype!r}, {prompt!r}, {steps}"
            code = f"from rocmlab import rocprofv3; rocprofv3.repeat({given})"
            command = [tool, "--kernel-trace", "--stats", "--output-format", "csv", "-d", f"{folder}/out"]
            command += ["--", sys.executable, "-c", code]
            env = isolate.child_environment()
            exit_code, seconds, _, stderr = isolate.run(command, limit_s=limit_s, env=env, folder=Path(folder))
            status, words = (
                ("TIMEOUT", f"ended after {limit_s:g} s") if exit_code is None else isolate.meaning(exit_code)
            )
            row |= {"status": status, "words": words, "seconds": round(seconds, 1), "stderr": stderr[-2000:]}
            for table in sorted(Path(folder, "out").rglob("*kernel_stats.csv")):
                answer = readers.answer(table)
                row |= {key: answer[key] for key in ("numbers", "libraries", "top_kernels") if key in answer}
                if "top_kernels" not in answer and row["status"] == "OK":
                    row |= {
                        "status": "UNREADABLE",
                        "words": f"its table {table.name} holds no kernels that can be read",
                    }
    run.append(tracing.TABLE, row)
    return row


def repeat(model: str, device: str, dtype: str, prompt: str, steps: int) -> None:
    """Load a model and decode once to warm up and once more, for a profiler that watches from outside."""
    loaded = models.load(model, device, dtype)
    for _ in range(2):
        tracing.decode(loaded, device, prompt_ids(loaded, PROMPTS[prompt]), steps)
    timing.synchronise(device)
