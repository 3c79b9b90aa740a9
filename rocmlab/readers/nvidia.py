"""cuBLAS's own log, and where records of cuDNN begin and end. (cuBLASLt shares hipBLASLt's record form.)

Switched on by CUBLAS_LOGINFO_DBG=1 with CUBLAS_LOGDEST_DBG, and CUDNN_LOGLEVEL_DBG=3 with CUDNN_LOGDEST_DBG. A record
starts with `I! cuBLAS (v13.4.1) function cublasStatus_t cublasGemmEx(...) called:`; lines `i!  m: type=int; val=2048`
give its arguments, until the next record or the line with the process. A GEMM is held until the next record, because
the cuBLASLt line between the two, if that is logged as well, names the kernel that cuBLAS chose for it.
"""

from __future__ import annotations

import re

from rocmlab.libraries import Call, Log
from rocmlab.readers import cudnn

MARKS = ("I! cuBLAS", "I! CuDNN", "I! cuDNN", "i!", "[cudnn_frontend]", "E! ", "W! Cu", "W! cu", "w!", "e!")

HEAD = re.compile(r"([IWE])! ?(cuBLAS|[cC]uDNN) \(v([^)]*)\) function (?:cublasStatus_t )?(\w+)\(")
ARGUMENT = re.compile(r"i! +(\w+): type=([^;]*); (?:val|streamId)=(.*)$")
GEMM = re.compile(
    r"cublas(?:([SDCZH])|Lt)?[gG]em(m|v)(?:3m)?(StridedBatched|Batched|GroupedBatched)?(Ex)?(?:_v2)?(?:_64)?$"
)
LETTERS = {"S": "float32", "D": "float64", "C": "complex64", "Z": "complex128", "H": "float16"}
CUDA_TYPES = {"16F": "float16", "32F": "float32", "64F": "float64", "16BF": "bfloat16", "8I": "int8", "32I": "int32"}
KEPT = {"m", "n", "k", "transa", "transb", "Atype", "computeType", "batchCount", "trans"}


class Parser:
    """Reads cuBLAS records, and hands those of cuDNN on; the one being read is held until it ends."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.cudnn = cudnn.Parser(log)
        self.owner = ""
        self.held: tuple[str, int] | None = None
        self.arguments: dict[str, str] = {}

    def feed(self, text: str, line: int) -> str:
        """Return "known", "damaged", or "" for a line of another library."""
        if text.startswith("i! ") and self.owner:
            return self._argument(text)
        match = HEAD.search(text)
        if match:
            return self._head(match, text, line)
        if (at := text.find("i!")) >= 0:
            return self._argument(text[at:])
        if text.startswith(("w! ", "e! ")):
            return "known" if self.owner else "damaged"
        if "[cudnn_frontend]" in text:
            self.cudnn.front(text, line)
            return "known"
        return ""

    def follow(self, text: str) -> bool:
        """Take a graph, a table or a rule around a heading of cuDNN's front end, which carry no mark of their own."""
        return self.cudnn.fronts and (text.startswith(("    ", '{"context":')) or not text.strip("="))

    def _head(self, match: re.Match[str], text: str, line: int) -> str:
        damaged = self.close()
        level, library, _, function = match.groups()
        self.owner = "cuBLAS" if library == "cuBLAS" else "cuDNN"
        self.log.libraries[self.owner] += 1
        if level == "E":
            name = f"{self.owner} {function}"
            self.log.sign("library_error", line, name, library=self.owner, text=text.strip()[:200])
        if level == "I" and self.owner == "cuDNN":
            self.cudnn.start(function, line)
        elif level != "W" and self.owner == "cuBLAS":
            self.held, self.arguments = (function, line), {}
        return "damaged" if damaged else "known"

    def _argument(self, text: str) -> str:
        if self.owner == "cuDNN":
            self.cudnn.argument(text)
            return "known"
        if not self.owner:
            return "damaged"
        if text.startswith(("i!Process", "i! Process")):
            return "damaged" if self._record() else "known"
        match = ARGUMENT.match(text) if self.held else None
        if match and match[1] in KEPT:
            self.arguments[match[1]] = match[3].strip(" ;")
        return "known"

    def close(self) -> bool:
        """Count what is held; return True when it is a GEMM that was cut before its shape was complete."""
        self.cudnn.close()
        return self._record()

    def finish(self) -> bool:
        """End the log: count what is held, and plans that only cuDNN's front end named."""
        damaged = self.close()
        self.cudnn.finish()
        self.log.settle()
        return damaged

    def _record(self) -> bool:
        if self.held is None:
            return False
        (function, line), found = self.held, self.arguments
        self.held, self.arguments = None, {}
        self.log.settle()
        match = GEMM.match(function)
        if match is None:
            self.log.add(Call("cuBLAS", function, "api"), line)
            return False
        if not {"m", "n"} <= found.keys() or not ("k" in found or match[2] == "v"):
            # Julia's and some callers' logs name the function only: the call counts, its shape is unknown.
            self.log.add(Call("cuBLAS", function, "gemm", dtype=_dtype(match[1], found)), line)
            return bool(found)
        self.log.hold(_gemm("cuBLAS", function, match, found), line)
        return False


def _dtype(letter: str | None, found: dict[str, str]) -> str:
    match = re.search(r"CUDA_R_(\w+?)\(", found.get("Atype", ""))
    return CUDA_TYPES.get(match[1], match[1]) if match else LETTERS.get(letter or "", "")


def _gemm(library: str, function: str, match: re.Match[str], found: dict[str, str]) -> Call:
    try:
        m, n = int(found["m"]), int(found["n"])
        k = int(found.get("k", 0))
        batch = int(found.get("batchCount", 1))
    except ValueError:
        return Call(library, function, "gemm", dtype=_dtype(match[1], found))
    trans = "".join(found.get(name, "CUBLAS_OP_N").removeprefix("CUBLAS_OP_")[:1] for name in ("transa", "transb"))
    if match[2] == "v":  # a matrix times one vector: a GEMM with n = 1
        transposed = "OP_N" not in found.get("trans", "CUBLAS_OP_N")
        m, n, k = (n, 1, m) if transposed else (m, 1, n)
    compute = re.search(r"CUBLAS_COMPUTE_(\d+)F|CUDA_R_(\d+)F", found.get("computeType", ""))
    inside = f"float{compute[1] or compute[2]}" if compute else ""
    return Call(library, function, "gemm", trans, m, n, k, batch, _dtype(match[1], found), inside)
