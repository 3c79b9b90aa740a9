"""What torch, HIP, HSA, the kernel driver and Windows say when something goes wrong: no library's prefix.

Each entry of SIGNS is a pattern, the name of the sign and the words that the pattern's groups give. Matching is by what
a message always says, never by a whole line: file names and line numbers differ by version.
"""

from __future__ import annotations

import re
from typing import Any

from rocmlab.libraries import Log
from rocmlab.readers.miopen import GFX

# A line without any of these is not looked at further; they are the cheap test before the patterns.
MARKS = (
    "out of memory", "not enough memory", "compiled with", "was not compiled for current", "still experimental",
    "kernel not used because", "No available kernel", "HIP error", "CUDA error", "hipError", "invalid device function",
    "no kernel image", "Cannot find CO", "NoBinaryForGpu", "for ISA: amdgcn", "emory access fault", "HSA_STATUS_ERROR",
    "hsa_init", "launch bounds", "illegal memory access", "not implemented for", "expandable_segments not supported",
    "miopenStatus", "rocblas_status", "HIPBLAS_STATUS", "CUBLAS_STATUS", "amdgpu", "amdhip64", "0xc0000005",
    "Access Violation", "rel err", "HW Exception by GPU", "cudaError", "CUDA_ERROR",
)  # fmt: skip

SIZE = r"([\d.]+) ?(bytes|KiB|MiB|GiB|TiB|KB|MB|GB)"
GIB = {"bytes": 2**-30, "KiB": 2**-20, "MiB": 2**-10, "GiB": 1.0, "TiB": 2.0**10}
GIB |= {"KB": 2**-20, "MB": 2**-10, "GB": 1.0}
OUT_OF_MEMORY = re.compile(rf"(?:(?:HIP|CUDA) out of memory\.|OutOfMemoryError:?).*?Tried to allocate {SIZE}")
BARE_OUT_OF_MEMORY = re.compile(
    r"(?:HIP|CUDA) error: (?:out of memory|hipErrorOutOfMemory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY)"
)
# Whose message it is; the next step differs. torch for ROCm writes HIP wherever torch for CUDA writes CUDA.
CUDA = re.compile(r"CUDA (?:out of memory|error)|cudaError|CUDA_ERROR")
HIP = re.compile(r"HIP (?:out of memory|error|warning)|hipError|HSA_STATUS|by GPU node|launch bounds")
PARTS = {
    "total_gib": re.compile(rf"total capacity of {SIZE}|{SIZE} total capacity"),
    "free_gib": re.compile(rf"(?:of which )?{SIZE} (?:is )?free"),
    "allocated_gib": re.compile(rf"{SIZE} is allocated by PyTorch|{SIZE} already allocated"),
    "reserved_unused_gib": re.compile(rf"{SIZE} is reserved by PyTorch but unallocated"),
    "reserved_gib": re.compile(rf"{SIZE} reserved in total"),
}

SDPA = (
    (re.compile(r"1?Torch was not compiled with (flash|memory efficient|cuDNN) attention"), "not_compiled"),
    (
        re.compile(
            r"(Flash|Mem)(?: Efficient)? attention (?:support )?on (?:\w+|Current AMD) GPU is still experimental"
        ),
        "flag",
    ),
    (re.compile(r"(Flash|Mem(?:ory)?)(?: [Ee]fficient)? attention was not compiled for current AMD GPU"), "no_target"),
    (re.compile(r"(Flash|Memory efficient|CuDNN|cuDNN) (?:attention )?kernel not used because: ?(.*)"), "refused"),
)
ATTENTION = {"flash": "flash", "mem": "memory-efficient", "cud": "cuDNN"}

NO_KERNEL = re.compile(
    r"invalid device function|hipErrorNoBinaryForGpu|no kernel image is available|Cannot find CO in the bundle"
    r"|hipErrorInvalidDeviceFunction|hipErrorInvalidKernelFile|hipErrorInvalidImage"
)
TARGET = re.compile(rf"amdgcn-amd-amdhsa--({GFX})(?: - \[(Found|Not Found)\])?")
FAULT = re.compile(
    r"(Memory access fault by GPU node-\d+.*?(?:Reason: [^.]*|$)|HSA_STATUS_ERROR\w*(?:: [^.]*\.)? *(?:code: 0x\w+)?"
    r"|[^:]*an illegal memory access was encountered|Launch params \([^)]*\) are larger than launch bounds \(\d+\)"
    r"|hipErrorLaunchFailure|hipErrorIllegalAddress|unspecified launch failure"
    r"|cudaErrorLaunchFailure|cudaErrorIllegalAddress|CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED))"
)
HSA_INIT = re.compile(r"hsa_init\(?\)?\W+(?:failed)?\W*(?:->|with|:)?\s*(?:error )?(\d+|0x[0-9a-fA-F]+)?(.*)$")
HARDWARE = re.compile(r"(HW Exception by GPU node-\d+).*?reason ?: ?(.*\S)")
DRIVER_HANG = re.compile(
    r"(ring \S+ timeout|GPU reset begin|MES failed to respon\w+|MES might be in unrecoverable|IP block:\S+ is hung)"
)
DRIVER_FAULT = re.compile(r"(\[\w+\] page fault)")
NOT_IMPLEMENTED = re.compile(r"[\"'](\w+)[\"'] not implemented for [\"'](\w+)[\"']")
STATUS = re.compile(r"\b((?:miopenStatus|rocblas_status_|HIPBLAS_STATUS_|CUBLAS_STATUS_)\w+)")
GOOD_STATUS = {"miopenStatusSuccess", "rocblas_status_success", "HIPBLAS_STATUS_SUCCESS", "CUBLAS_STATUS_SUCCESS"}
OTHER_ERROR = re.compile(r"(HIP|CUDA) error: (.+?)\s*$")
NUMERIC = re.compile(r"(\w*gemm[^:]*).*max abs err ([\d.eE+-]+)\s+max rel err ([\d.eE+-]+)")
CRASHED_DLL = re.compile(r"(amdhip64\w*\.dll|librocdxg\S*|amdcomgr\w*\.dll)", re.IGNORECASE)


class Parser:
    """Reads messages into the signs of a log; those that name their parts on several lines are joined by their keys."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def feed(self, text: str, line: int) -> str:
        """Return "message" for a message that is known, "" for anything else."""
        before = len(self.log.signs), sum(s.count for s in self.log.signs.values())
        for read in (self._memory, self._attention, self._kernels, self._faults, self._driver, self._rest):
            if read(text, line):
                return "message"
        after = len(self.log.signs), sum(s.count for s in self.log.signs.values())
        return "message" if after != before else ""

    def _memory(self, text: str, line: int) -> bool:
        whole = OUT_OF_MEMORY.search(text)
        if not whole and not BARE_OUT_OF_MEMORY.search(text):
            return False
        self.log.sign("out_of_memory", line, "" if whole else "bare", backend=backend(text), **sizes(text))
        return True

    def _attention(self, text: str, line: int) -> bool:
        found = False
        for pattern, why in SDPA:
            if match := pattern.search(text):
                which = ATTENTION[match[1].lower()[:3] if match[1].lower()[:3] != "fla" else "flash"]
                reason = match[2] if why == "refused" else ""
                self.log.sign("sdpa", line, f"{which} {why}", which=which, why=why, reason=reason)
                found = True
        if "No available kernel. Aborting execution" in text:
            self.log.sign("sdpa_aborted", line)
            found = True
        return found

    def _kernels(self, text: str, line: int) -> bool:
        target = TARGET.search(text)
        if target and target[2] != "Found" and ("for ISA" in text or target[2]):
            self.log.sign("no_code_object", line, target[1], arch=target[1], backend="HIP")
            return True
        if NO_KERNEL.search(text):
            self.log.sign("no_code_object", line, "", arch="", backend=backend(text))
            return True
        return bool(target)

    def _faults(self, text: str, line: int) -> bool:
        if match := HSA_INIT.search(text):
            self.log.sign("hsa_init", line, code=match[1] or "", text=text.strip()[:200])
            return True
        if "HSA_STATUS_ERROR_NOT_INITIALIZED" in text:
            if not self.log.named("hsa_init"):  # else only the consequence of what was said before
                self.log.sign("hsa_init", line, code="", text=text.strip()[:200])
            return True
        if match := HARDWARE.search(text):
            said = f"{match[1]}: {match[2][:100]}"
            self.log.sign("gpu_hang", line, said, text=said)
            return True
        if match := FAULT.search(text):
            kind = "resources" if "HSA_STATUS_ERROR_OUT_OF_RESOURCES" in text else ""
            said = match[1].strip()[:200]
            self.log.sign("gpu_fault", line, match[1][:40], text=said, kind=kind, backend=backend(text))
            return True
        return False

    def _driver(self, text: str, line: int) -> bool:
        if "amdgpu" in text:
            if match := DRIVER_HANG.search(text):
                self.log.sign("gpu_hang", line, match[1], text=match[1])
                return True
            if match := DRIVER_FAULT.search(text):
                self.log.sign("gpu_fault", line, "page fault", text="amdgpu: " + match[1], kind="", backend="HIP")
                return True
            return "amdgpu:" in text
        if match := CRASHED_DLL.search(text):
            self.log.sign("crash_module", line, match[1].lower(), module=match[1])
        if "0xc0000005" in text or "Access Violation" in text:
            self.log.sign("access_violation", line)
        return False

    def _rest(self, text: str, line: int) -> bool:
        log = self.log
        if match := NOT_IMPLEMENTED.search(text):
            log.sign("not_implemented", line, f"{match[1]} {match[2]}", operator=match[1], dtype=match[2])
        elif "expandable_segments not supported" in text:
            log.sign("expandable_segments", line)
        elif match := STATUS.search(text):
            if match[1] in GOOD_STATUS:
                return False
            log.sign("status", line, match[1], text=match[1])
        elif match := NUMERIC.search(text):
            log.sign(
                "numeric", line, match[1], what=match[1].strip(), abs_err=_number(match[2]), rel_err=_number(match[3])
            )
        elif match := OTHER_ERROR.search(text):
            log.sign("library_error", line, f"{match[1]} {match[2][:200]}", library=match[1], text=match[2][:200])
        else:
            return False
        return True


def backend(text: str) -> str:
    """Return "CUDA" or "HIP", whichever a message names, "" when it names none."""
    return "CUDA" if CUDA.search(text) else "HIP" if HIP.search(text) else ""


def sizes(text: str) -> dict[str, Any]:
    """Return asked, total, free, allocated, reserved but unused and other users' memory of an out-of-memory message, in
    GiB; null with a reason where the message does not say."""
    asked = re.search(rf"Tried to allocate {SIZE}", text)
    found: dict[str, Any] = {"asked_gib": _gib(asked)}
    for key, pattern in PARTS.items():
        found[key] = _gib(pattern.search(text))
    reserved = found.pop("reserved_gib")
    if found["reserved_unused_gib"] is None and reserved is not None and found["allocated_gib"] is not None:
        found["reserved_unused_gib"] = reserved - found["allocated_gib"]
    parts = [found[key] for key in ("total_gib", "free_gib", "allocated_gib", "reserved_unused_gib")]
    found["other_gib"] = None if None in parts else parts[0] - sum(parts[1:])
    return found


def _gib(match: re.Match[str] | None) -> float | None:
    if match is None:
        return None
    number, unit = next((n, u) for n, u in zip(match.groups()[::2], match.groups()[1::2], strict=True) if n)
    value = _number(number)
    return None if value is None else value * GIB[unit]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
