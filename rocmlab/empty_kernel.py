"""What does a launch cost below torch? An empty kernel, compiled at run time and launched through the driver by ctypes.

`launch(...)` runs in a child process (a wrong library or driver may crash it) and returns every step of the chain with
how it went: HIPRTC and the HIP runtime on AMD, NVRTC and the CUDA driver on NVIDIA. torch is only imported where the
libraries do not load without it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
import importlib.util
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocmlab import compiler_check

SOURCE = b'extern "C" __global__ void empty() {}\n'
NAME = b"empty"
LOG_CHARACTERS = 500
VOID, UINT = ctypes.c_void_p, ctypes.c_uint
# Function, three sizes of the grid, three of a block, shared memory, stream, parameters, extra: both drivers agree.
LAUNCH_TYPES: Any = [VOID, *[UINT] * 7, VOID, VOID, VOID]
# Numbers of cuda.h: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
MAJOR, MINOR = 75, 76


class StepFailed(RuntimeError):
    """One step of the chain did not work; the message says what the library said."""


@dataclass(frozen=True)
class Kind:
    """How one maker names what both have: the compiler's prefix and code functions, the driver's functions."""

    compiler: str
    size: str
    code: str
    load: str
    find: str
    launch: str
    wait: str


HIP = Kind("hiprtc", "GetCodeSize", "GetCode", "hipModuleLoadData", "hipModuleGetFunction", "hipModuleLaunchKernel",
           "hipDeviceSynchronize")  # fmt: skip
CUDA = Kind("nvrtc", "GetCUBINSize", "GetCUBIN", "cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel",
            "cuCtxSynchronize")  # fmt: skip


def launch(arch: str, index: int, blocks: int, launches: int) -> dict[str, Any]:
    """Compile, load and launch the empty kernel: `{steps, library, enqueue_us, drained_us, call_us, reason}`.

    `arch` is the target that the device reports ("gfx1032", "sm_90"); times are us a launch, one a block. `call_us` is
    what ctypes itself takes for a call with as many arguments. `reason` is None when every step worked.
    """
    steps: list[dict[str, Any]] = []
    found: dict[str, Any] = {"steps": steps, "library": None, "compiler": None, "enqueue_us": [], "drained_us": []}
    kind = HIP if arch.startswith("gfx") else CUDA
    try:
        driver, found["library"] = _step(steps, "load the driver", lambda: _loaded(drivers(kind), kind.launch))
        _step(steps, "start the driver", lambda: _start(driver, kind, index))
        target = _step(steps, "name the target", lambda: arch if kind is HIP else _sm(driver, index))
        found |= _step(steps, "compile", lambda: _compiled(kind, target))
        code = found.pop("image")
        function = _step(steps, "load the kernel", lambda: _function(driver, kind, code))
        _step(steps, "launch once", lambda: _blocks(driver, kind, function, 1, 1))
        found |= _step(steps, "launch in blocks", lambda: _blocks(driver, kind, function, blocks, launches))
        found["call_us"] = _step(steps, "time an empty call", lambda: _call_us(launches))
    except StepFailed as failure:
        return found | {"reason": f"{steps[-1]['step']}: {failure}"}
    return found | {"reason": None}


def _step(steps: list[dict[str, Any]], name: str, work: Callable[[], Any]) -> Any:
    """Do one step and note it; the name goes to stderr first, so that a crash inside it can be told."""
    print(f"step: {name}", file=sys.stderr, flush=True)
    steps.append({"step": name, "ok": False, "words": None})
    try:
        done = work()
    except (StepFailed, OSError, AttributeError, ImportError, RuntimeError) as error:
        steps[-1]["words"] = str(error)[:LOG_CHARACTERS]
        raise StepFailed(steps[-1]["words"]) from error
    steps[-1]["ok"] = True
    return done


# ---- where the libraries are


def folders() -> list[Path]:
    """Return the folders in which torch's wheels and the system keep such libraries, torch's own first."""
    found = []
    for package in ("torch", "_rocm_sdk_core", "nvidia"):
        spec = importlib.util.find_spec(package)
        for place in map(Path, (spec and spec.submodule_search_locations) or []):
            found += [place / "lib", place / "bin", *sorted(place.glob("*/lib")), *sorted(place.glob("*/bin"))]
    if sys.platform == "win32":
        found.append(Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32")
        found += [Path(os.environ[name]) / "bin" for name in ("CUDA_PATH", "HIP_PATH") if os.environ.get(name)]
    else:
        found += [folder / "lib" for folder in sorted(Path("/opt").glob("rocm*"))]
        found += [folder / "lib64" for folder in sorted(Path("/usr/local").glob("cuda*"))]
    return found


def _named(patterns: tuple[str, ...], fallback: str) -> list[str]:
    paths = [str(path) for folder in folders() for name in patterns for path in sorted(folder.glob(name))]
    system = ctypes.util.find_library(fallback)
    kept = [path for path in dict.fromkeys(paths) if "builtins" not in path and ".alt." not in path]
    return [*kept, system] if system else kept


def drivers(kind: Kind) -> list[str]:
    """Return candidates for the library that launches, best first."""
    if kind is CUDA:
        return ["nvcuda.dll"] if sys.platform == "win32" else ["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"]
    return _named(("amdhip64*.dll",) if sys.platform == "win32" else ("libamdhip64.so*",), "amdhip64")


def compilers(kind: Kind) -> list[str]:
    """Return candidates for the runtime compiler, best first."""
    if kind is HIP:
        return compiler_check.libraries()
    return _named(("nvrtc64_*.dll",) if sys.platform == "win32" else ("libnvrtc.so*",), "nvrtc")


def _loaded(paths: list[str], needed: str) -> tuple[ctypes.CDLL, str]:
    """Return the first library that loads and has a function, with its path; torch's import may bring what it needs."""
    errors: list[str] = []
    for attempt in ("alone", "after torch"):
        if attempt == "after torch":
            importlib.import_module("torch")
        for path in paths:
            try:
                if sys.platform == "win32" and Path(path).is_absolute():
                    os.add_dll_directory(str(Path(path).parent))
                library = ctypes.CDLL(path)
                getattr(library, needed)
            except (OSError, AttributeError) as error:
                errors.append(str(error))
                continue
            return library, path
        if not paths:
            break
    raise StepFailed("; ".join(dict.fromkeys(errors)) or "no such library was found")


# ---- compile


def compiled(arch: str) -> dict[str, Any]:
    """Compile the empty kernel for a target, no card needed: `{compiler, image}`. Raises StepFailed."""
    return _compiled(HIP if arch.startswith("gfx") else CUDA, arch)


def _compiled(kind: Kind, target: str) -> dict[str, Any]:
    library, path = _loaded(compilers(kind), f"{kind.compiler}CreateProgram")

    def call(name: str, *arguments: Any) -> None:
        status = getattr(library, kind.compiler + name)(*arguments)
        if status != 0:
            raise StepFailed(f"{kind.compiler}{name}: status {status}. {_log(library, kind, program)}".strip())

    program, size = VOID(), ctypes.c_size_t()
    call("CreateProgram", ctypes.byref(program), SOURCE, b"empty.cu", 0, None, None)
    option = f"--offload-arch={target}" if kind is HIP else f"--gpu-architecture={target}"
    call("CompileProgram", program, 1, (ctypes.c_char_p * 1)(option.encode()))
    call(kind.size, program, ctypes.byref(size))
    image = ctypes.create_string_buffer(size.value)
    call(kind.code, program, image)
    return {"compiler": path, "target": target, "image": image}


def _log(library: ctypes.CDLL, kind: Kind, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    asked = getattr(library, f"{kind.compiler}GetProgramLogSize")
    if not program or asked(program, ctypes.byref(size)) != 0 or size.value < 2:
        return ""
    text = ctypes.create_string_buffer(size.value)
    getattr(library, f"{kind.compiler}GetProgramLog")(program, text)
    return text.value.decode("utf-8", errors="replace")[:LOG_CHARACTERS]


# ---- launch


def _call(driver: ctypes.CDLL, name: str, *arguments: Any) -> None:
    status = getattr(driver, name)(*arguments)
    if status != 0:
        raise StepFailed(f"{name}: {_words(driver, status)}")


def _words(driver: ctypes.CDLL, status: int) -> str:
    if hasattr(driver, "hipGetErrorString"):
        driver.hipGetErrorString.restype = ctypes.c_char_p
        said = driver.hipGetErrorString(status)
    else:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(status, ctypes.byref(text))
        said = text.value
    return f"{(said or b'unknown error').decode('utf-8', errors='replace')} ({status})"


def _start(driver: ctypes.CDLL, kind: Kind, index: int) -> None:
    """Start the driver and make the device current: on CUDA by its primary context, the one that torch uses too."""
    if kind is HIP:
        _call(driver, "hipInit", 0)
        return _call(driver, "hipSetDevice", index)
    device, context = ctypes.c_int(), VOID()
    _call(driver, "cuInit", 0)
    _call(driver, "cuDeviceGet", ctypes.byref(device), index)
    _call(driver, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return _call(driver, "cuCtxSetCurrent", context)


def _sm(driver: ctypes.CDLL, index: int) -> str:
    device, parts = ctypes.c_int(), []
    _call(driver, "cuDeviceGet", ctypes.byref(device), index)
    for attribute in (MAJOR, MINOR):
        value = ctypes.c_int()
        _call(driver, "cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        parts.append(value.value)
    return f"sm_{parts[0]}{parts[1]}"


def _function(driver: ctypes.CDLL, kind: Kind, image: Any) -> ctypes.c_void_p:
    module, function = VOID(), VOID()
    _call(driver, kind.load, ctypes.byref(module), image)
    _call(driver, kind.find, ctypes.byref(function), module, NAME)
    return function


def _blocks(driver: ctypes.CDLL, kind: Kind, function: ctypes.c_void_p, blocks: int, launches: int) -> dict[str, Any]:
    """Launch `blocks` times `launches` kernels into an empty queue; us a launch until queued, and until done."""
    start = getattr(driver, kind.launch)
    start.argtypes = LAUNCH_TYPES
    arguments = (function, 1, 1, 1, 1, 1, 1, 0, None, None, None)
    found: dict[str, list[float]] = {"enqueue_us": [], "drained_us": []}
    for _ in range(blocks):
        _call(driver, kind.wait)
        began, failed = time.perf_counter(), 0
        for _ in range(launches):
            failed |= start(*arguments)
        queued = time.perf_counter()
        _call(driver, kind.wait)
        done = time.perf_counter()
        if failed:
            raise StepFailed(f"{kind.launch}: {_words(driver, failed)}")
        found["enqueue_us"].append(1e6 * (queued - began) / launches)
        found["drained_us"].append(1e6 * (done - began) / launches)
    return found


def _call_us(launches: int) -> float:
    """Return what ctypes takes for a call with a launch's arguments, in us: a C function that does nothing, abs."""
    library = ctypes.CDLL("msvcrt") if sys.platform == "win32" else ctypes.CDLL(None)
    nothing = library.abs
    nothing.argtypes = LAUNCH_TYPES
    arguments = (VOID(1), 1, 1, 1, 1, 1, 1, 0, None, None, None)
    times = []
    for _ in range(10):
        began = time.perf_counter()
        for _ in range(launches):
            nothing(*arguments)
        times.append(1e6 * (time.perf_counter() - began) / launches)
    return min(times)
