"""Which inventory and monitoring tools are here, and what do they answer? All asked at once, each with a limit.

`ask(limit_s=5)` runs them; exit code 0 with empty output counts as "no answer", never as "no problem".
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rocmlab import isolate
from rocmlab.readers import decode, hip_tools, inventories, nvidia_smi, rocminfo, smi
from rocmlab.readers import tools as tool_texts

# Tools whose presence is recorded; those of COMMANDS are also asked.
NAMES = (
    "rocm-smi",
    "amd-smi",
    "rocminfo",
    "rocprof",
    "rocprofv3",
    "rocm-sdk",
    "hipInfo",
    "hipconfig",
    "clinfo",
    "nvidia-smi",
)
COMMANDS = {
    "rocminfo": ["rocminfo"],
    "rocm-smi": [
        *("rocm-smi", "--showproductname", "--showtemp", "--showpower", "--showclocks", "--showuse"),
        *("--showmeminfo", "vram", "--showdriverversion", "--json"),
    ],
    "amd-smi": ["amd-smi", "static", "--asic", "--driver", "--vram", "--json"],
    "amd-smi version": ["amd-smi", "version"],
    "hipInfo": ["hipInfo"],
    "hipconfig": ["hipconfig", "--full"],
    "clinfo": ["clinfo"],
    "rocm-sdk version": ["rocm-sdk", "version"],
    "rocm-sdk targets": ["rocm-sdk", "targets"],
    "nvidia-smi": ["nvidia-smi", f"--query-gpu={nvidia_smi.QUERY}", "--format=csv,noheader,nounits"],
}
PARSERS = {
    "rocminfo": rocminfo.parse,
    "rocm-smi": smi.parse,
    "amd-smi": smi.parse,
    "amd-smi version": smi.parse,
    "hipInfo": hip_tools.hipinfo,
    "hipconfig": hip_tools.hipconfig,
    "clinfo": inventories.clinfo,
    "rocm-sdk version": hip_tools.rocm_sdk,
    "rocm-sdk targets": hip_tools.rocm_sdk,
    "nvidia-smi": nvidia_smi.parse,
}
LIMIT_S = 5
KEPT_CHARACTERS = 600


def where(name: str) -> str | None:
    """Return the path of a tool: on PATH, or beside this Python, where wheels put theirs (also when not activated)."""
    beside = Path(sys.executable).parent
    return shutil.which(name) or shutil.which(name, path=os.pathsep.join([str(beside), str(beside / "Scripts")]))


def which() -> dict[str, str | None]:
    """Return "present" or None a tool name."""
    return {name: "present" if where(name) else None for name in NAMES}


def ask(limit_s: float = LIMIT_S) -> dict[str, dict[str, Any]]:
    """Run every tool that is here; `{command: {status, seconds, parsed, said}}`, status ok, empty, error or timeout."""
    present = {key: path for key, command in COMMANDS.items() if (path := where(command[0]))}
    if not present:
        return {}
    with ThreadPoolExecutor(len(present)) as pool:
        answers = pool.map(lambda one: _one(one[0], one[1], limit_s), present.items())
        return dict(zip(present, answers, strict=True))


def _one(key: str, path: str, limit_s: float) -> dict[str, Any]:
    command = [path, *COMMANDS[key][1:]]
    with tempfile.TemporaryDirectory(prefix="rocmlab-", ignore_cleanup_errors=True) as folder:
        try:
            env = isolate.child_environment()
            code, seconds, _, err = isolate.run(command, limit_s=limit_s, env=env, folder=Path(folder))
            # The whole of it: a machine with eight GPUs fills more than isolate keeps.
            out = decode(Path(folder, "stdout").read_bytes())
        except OSError as error:
            return {"status": "error", "exit_code": None, "seconds": 0.0, "parsed": None, "said": str(error)}
    return {"exit_code": code, "seconds": round(seconds, 2), **judge_output(key, code, out, err)}


def judge_output(key: str, code: int | None, out: str, err: str) -> dict[str, Any]:
    """Return `{status, parsed, said}` of what a tool printed; `said` is the first of its words where it failed."""
    status = "timeout" if code is None else "error" if code != 0 else "ok" if out.strip() else "empty"
    # A tool that fails may still have said why on its normal output (rocminfo without its kernel module).
    out, err = tool_texts.clean(out), tool_texts.clean(err)
    parsed = None
    try:
        parsed = PARSERS[key](out) if out.strip() and code is not None else None
    except Exception:  # an answer in a form that nobody has seen yet costs this answer, never the check
        status = "error"
    said = None if status == "ok" else " ".join((out + " " + err).split())[:KEPT_CHARACTERS]
    return {"status": status, "parsed": parsed, "said": said}


def sensors(answers: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row a GPU from the monitoring tools that answered: index, temp_c, power_w, sclk_mhz, use, memory."""
    for key in ("nvidia-smi", "rocm-smi", "amd-smi"):
        parsed = (answers.get(key) or {}).get("parsed")
        rows = parsed if isinstance(parsed, list) else (parsed or {}).get("gpus") or []
        if rows:
            return rows
    return []
