"""Can the runtime compiler of HIP (HIPRTC) compile for this card, also a kernel that includes a C++ header?

`run("gfx1032")` compiles a plain kernel and one that includes <type_traits>, each in a child process; no card is
needed. MIOpen compiles batch norm, GRU and LSTM at run time and includes that header, so a wheel without the C++
headers fails there though the card is fine (ROCm/legacy-rocm-build issues 5941, 6150 and 6314).
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rocmlab import isolate

KERNELS = {
    "plain": "",
    "type_traits": "#include <type_traits>\n",
}
BODY = """
extern "C" __global__ void twice(float* values) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    values[i] = 2.0f * values[i];
}
"""
LIMIT_S = 8
LOG_CHARACTERS = 2000


def libraries() -> list[str]:
    """Return the HIPRTC libraries of this Python and system, torch's own first."""
    folders = []
    for package in ("torch", "_rocm_sdk_core"):
        found = importlib.util.find_spec(package)
        folders += [
            Path(place) / part for place in (found and found.submodule_search_locations) or [] for part in PARTS
        ]
    names = ("hiprtc*.dll",) if sys.platform == "win32" else ("libhiprtc.so*", "libhiprtc-*.so*")
    if sys.platform == "win32":
        folders.append(Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32")  # not run on Windows yet
    else:
        folders += [folder / "lib" for folder in sorted(Path("/opt").glob("rocm*"))]
    paths = [str(path) for folder in folders for name in names for path in sorted(folder.glob(name))]
    if sys.platform != "win32":
        # Older releases have no libhiprtc: the functions are in the HIP runtime itself.
        paths += [name for name in map(ctypes.util.find_library, ("hiprtc", "amdhip64")) if name]
    return [path for path in dict.fromkeys(paths) if "builtins" not in path]


PARTS = ("lib", "bin")


def run(arch: str, *, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Compile both kernels for a target; returns `{arch, library, version, plain, type_traits, reason}`.

    A kernel's entry is `{ok, status, log, bytes}`; null entries and a `reason` where there is no runtime compiler.
    """
    paths = libraries()
    empty = {"arch": arch, "library": None, "version": None, "plain": None, "type_traits": None}
    if not paths:
        return {**empty, "reason": "no HIPRTC library found"}
    with ThreadPoolExecutor(len(KERNELS)) as pool:
        asked = {
            kind: pool.submit(
                isolate.call,
                "rocmlab.compiler_check:compile_one",
                {"paths": paths, "kind": kind, "arch": arch},
                limit_s=limit_s,
            )
            for kind in KERNELS
        }
    outcomes = {kind: future.result() for kind, future in asked.items()}
    answers = {kind: outcome.result or _failed(outcome) for kind, outcome in outcomes.items()}
    found = {key: answers["plain"].pop(key, None) for key in ("library", "version")}
    for key in found:
        answers["type_traits"].pop(key, None)
    return {**empty, **found, **answers, "reason": None}


def _failed(outcome: isolate.Outcome) -> dict[str, Any]:
    return {"ok": False, "status": outcome.status, "log": outcome.error or outcome.words, "bytes": None}


def compile_one(paths: list[str], kind: str, arch: str) -> dict[str, Any]:
    """Compile one kernel with the first library that loads; runs in a child process, since it may crash.

    Raises OSError when no library loads, with the loader's words for each.
    """
    loaded, name = _load(paths)
    program, source = ctypes.c_void_p(), (KERNELS[kind] + BODY).encode()
    _check(loaded, loaded.hiprtcCreateProgram(ctypes.byref(program), source, b"check.hip", 0, None, None))
    options = (ctypes.c_char_p * 2)(f"--offload-arch={arch}".encode(), b"-std=c++17")
    status = loaded.hiprtcCompileProgram(program, len(options), options)
    log, size = _log(loaded, program), ctypes.c_size_t()
    if status == 0:
        _check(loaded, loaded.hiprtcGetCodeSize(program, ctypes.byref(size)))
    return {
        "ok": status == 0 and size.value > 0,
        "status": "OK" if status == 0 else _words(loaded, status),
        "log": log[:LOG_CHARACTERS],
        "bytes": size.value or None,
        "library": name,
        "version": _version(loaded),
    }


def _load(paths: list[str]) -> tuple[ctypes.CDLL, str]:
    errors = []
    for path in paths:
        try:
            loaded = ctypes.CDLL(path)
            loaded.hiprtcGetErrorString.restype = ctypes.c_char_p
        except (OSError, AttributeError) as error:
            errors.append(f"{path}: {error}")
            continue
        return loaded, path
    raise OSError("; ".join(errors))


def _log(loaded: ctypes.CDLL, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    if loaded.hiprtcGetProgramLogSize(program, ctypes.byref(size)) != 0 or size.value < 2:
        return ""
    text = ctypes.create_string_buffer(size.value)
    loaded.hiprtcGetProgramLog(program, text)
    return text.value.decode("utf-8", errors="replace")


def _version(loaded: ctypes.CDLL) -> str | None:
    major, minor = ctypes.c_int(), ctypes.c_int()
    status = loaded.hiprtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}" if status == 0 else None


def _words(loaded: ctypes.CDLL, status: int) -> str:
    return (loaded.hiprtcGetErrorString(status) or b"").decode() or f"status {status}"


def _check(loaded: ctypes.CDLL, status: int) -> None:
    if status != 0:
        raise OSError(f"HIPRTC: {_words(loaded, status)}")
