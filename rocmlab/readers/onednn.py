"""The CPU libraries' logs: oneDNN (ONEDNN_VERBOSE=1, before that DNNL_VERBOSE) and MKL (MKL_VERBOSE=1).

torch's CPU build on x86 hands a one-row float32 product to MKL (SGEMM), which oneDNN therefore does not log; a bfloat16
one to oneDNN's matmul where the processor has the instructions; a float16 one to its own kernel, which nobody logs.
"""

from __future__ import annotations

import re

from rocmlab.libraries import DTYPES, Call, Log

MARKS = ("onednn_verbose,", "dnnl_verbose,", "mkldnn_verbose,", "MKL_VERBOSE ")

MKL = re.compile(r"MKL_VERBOSE (\w+)\(([^)]*)\) ([\d.]+)(ns|us|ms|s)\b")
MATMUL = re.compile(r"^((?:\d+x)+\d+):((?:\d+x)+\d+)")
INNER = re.compile(r"([a-z]+)(\d+)")
SOURCE = re.compile(r"src(?:_|:)(\w+?)(?::|\s|$)")
WEIGHTS = re.compile(r"wei(?:_|:)(\w+?)(?::|\s|$)")
MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}
LETTERS = {"S": "float32", "D": "float64", "C": "complex64", "Z": "complex128", "H": "float16"}
MIXED = {"BF16BF16F32": "bfloat16", "F16F16F32": "float16", "S8U8S32": "int8", "S16S16S32": "int16"}
KINDS = {"batch_normalization": "batch_norm", "inner_product": "gemm", "matmul": "gemm"}


class Parser:
    """Reads oneDNN and MKL lines into a log."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def feed(self, text: str, line: int) -> str:
        """Return "known", "damaged", or "" for a line of another library."""
        at = text.find("MKL_VERBOSE ")
        if at >= 0:
            self.log.libraries["MKL"] += 1
            return self._mkl(text[at:], line)
        at = text.find("_verbose,")
        if at < 0:
            return ""
        self.log.libraries["oneDNN"] += 1
        return self._onednn(text[at + 9 :], line)

    def _mkl(self, text: str, line: int) -> str:
        match = MKL.match(text)
        if match is None:
            return "damaged" if "(" in text[:40] else "known"
        call = mkl_call(match[1], match[2].split(","))
        self.log.add(call, line, ms=float(match[3]) * MS[match[4]])
        return "known"

    def _onednn(self, text: str, line: int) -> str:
        fields = text.rstrip().split(",")
        try:
            at = fields.index("exec")
        except ValueError:
            known = {"info", "create", "create:cache_hit", "create:cache_miss", "create_nested", "graph"}
            return "known" if known & set(fields[:4]) or fields[0].startswith("v") else "damaged"
        if "graph" in fields[:at]:
            return "known"
        if len(fields) < at + 7:
            return "damaged"
        try:
            ms = float(fields[-1])
        except ValueError:
            return "damaged"
        call = onednn_call(fields[at + 2], fields[at + 3], ",".join(fields[at + 5 : -2]), fields[-2])
        if call is None:
            return "damaged"
        self.log.add(call, line, ms=ms)
        return "known"


def onednn_call(primitive: str, kernel: str, memory: str, problem: str) -> Call | None:
    """Return the call of one executed primitive; None when its problem is not what such a primitive writes."""
    source = SOURCE.search(memory)
    weights = WEIGHTS.search(memory)
    dtype = DTYPES.get((source or weights)[1], "") if source or weights else ""  # type: ignore[index]
    kind = KINDS.get(primitive, primitive)
    if primitive == "matmul":
        match = MATMUL.match(problem)
        if match is None:
            return None
        left, right = ([int(d) for d in side.split("x")] for side in match.groups())
        batch = 1
        for size in left[:-2]:
            batch *= size
        # Row-major rows x k : k x columns is, as BLAS counts, m = columns and n = rows.
        return Call("oneDNN", primitive, kind, "", right[-1], left[-2], left[-1], batch, dtype, "", kernel)
    if primitive == "inner_product":
        sizes = {name: int(size) for name, size in INNER.findall(problem)}
        if not {"mb", "ic", "oc"} <= sizes.keys():
            return None
        k = sizes["ic"] * sizes.get("ih", 1) * sizes.get("iw", 1) * sizes.get("id", 1)
        return Call("oneDNN", primitive, kind, "", sizes["oc"], sizes["mb"], k, 1, dtype, "", kernel)
    return Call("oneDNN", primitive, kind, problem, dtype=dtype, kernel=kernel)


def mkl_call(routine: str, fields: list[str]) -> Call:
    """Return the call of one MKL line; GEMMs of a batch hand over pointers, so that their shape is unknown (None)."""
    name = routine.removesuffix("_64")
    dtype = LETTERS.get(name[0], "") if name[1:].startswith(("GEMM", "GEMV")) else ""
    compute = ""
    if name.startswith("GEMM_"):
        dtype, compute = MIXED.get(name[5:].removesuffix("_COMPUTE"), ""), "float32"
    if name[1:].startswith("GEMV"):
        return _gemv(routine, fields, dtype)
    if "GEMM" not in name:
        return Call("MKL", routine, "blas")
    try:
        m, n, k = (int(f) for f in fields[2:5])
    except ValueError:
        return Call("MKL", routine, "gemm", dtype=dtype, compute=compute)
    return Call("MKL", routine, "gemm", "".join(fields[:2]), m, n, k, 1, dtype, compute)


def _gemv(routine: str, fields: list[str], dtype: str) -> Call:
    try:
        rows, columns = (int(f) for f in fields[1:3])
    except ValueError:
        return Call("MKL", routine, "gemm", dtype=dtype)
    m, k = (columns, rows) if fields[0].lower() != "n" else (rows, columns)
    return Call("MKL", routine, "gemm", fields[0].upper() + "N", m, 1, k, 1, dtype)
