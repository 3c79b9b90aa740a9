"""rocBLAS's log: trace, bench, profile and internal layers, missing Tensile libraries, and TunableOp's result file.

ROCBLAS_LAYER is a sum of 1 trace, 2 bench, 4 profile (at exit), 8 internal (which back end), 16 kernel choice. One call
may stand in several layers; each is counted as a form of the same call, so nothing is counted twice.
"""

from __future__ import annotations

import functools
import re

from rocmlab.libraries import DTYPES, Call, Log
from rocmlab.readers.miopen import GFX, option_pairs

MARKS = (
    "--transpose",
    "rocblas",
    "rocBLAS",
    "Tensile",
    "tensile",
    "TunableOp",
    "regex_error",
    "Validator,",
    "-Gflops",
)

BENCH = re.compile(r"(?:^|\s)(\d+\s+)?\S*?rocblas-bench(?:\.exe)?\s+(.*)$")
TRACE = re.compile(r"rocblas_(\w+),(?! )(.*)$")
PROFILE = re.compile(r"-\s*\{\s*rocblas_function: \"rocblas_(\w+)\",(.*)$")
PAIR = re.compile(r"(\w+): (?:\"([^\"]*)\"|'([^']*)'|([^,}\s]+))")
NO_LIBRARY = re.compile(rf"rocBLAS error: Cannot read .*TensileLibrary\S*: (.+?) for GPU arch ?: ({GFX})")
LIBRARY_FILE = re.compile(rf"TensileLibrary\w*?_({GFX})\.(?:dat|yaml|co|hsaco)")
FALLBACK_FILE = re.compile(rf"TensileLibrary_\w*fallback(?:_({GFX}))?\.(?:hsaco|co)")
LETTERS = {"s": "float32", "d": "float64", "h": "float16", "c": "complex64", "z": "complex128", "bf": "bfloat16"}
ROUTINE = re.compile(r"(bf|[sdhcz])?(gemm\w*|gemv\w*)$")
VALUE = re.compile(r"-?[\d.]|[NTC]$")  # what arguments of a BLAS routine look like; a list of words is no call
HOUSEKEEPING = re.compile(r"(create|destroy|set|get|initialize|query|pointer|is)_|start_device|stop_device")
TUNED = re.compile(
    r"^\w*Gemm\w*TunableOp_(\w+?)_([TN]{2}),[tn]{2}_(\d+)_(\d+)_(\d+)(?:_B_(\d+))?[^,]*,(\w+),([\d.eE+-]+)"
)
TUNED_DTYPES = {"float": "float32", "double": "float64", "Half": "float16", "BFloat16": "bfloat16"}
COLUMNS = re.compile(r"(?:\[\d+\]:?\s*)?(transA,.*-Gflops,.*)$")


class Parser:
    """Reads rocBLAS lines into a log. Internal lines count as calls only where no other layer shows any."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.columns: list[str] = []

    def feed(self, text: str, line: int) -> str:
        """Return "known", "damaged", or "" for a line that is none of rocBLAS's."""
        if "rocblas-bench" in text:
            return self._bench(text, line)
        if "--transpose" in text:
            return "damaged"  # the beginning of the line is lost
        if "-Gflops" in text and (match := COLUMNS.search(text)):
            self.columns = match[1].strip().split(",")
            return "known"
        if "rocblas_function" in text:
            return self._profile(text, line)
        at = text.find("rocblas_")
        if at >= 0 and (at == 0 or not text[at - 1].isalnum()):
            return self._trace(text[at:], line)
        if "TunableOp" in text or text.startswith("Validator,"):
            return self._tuned(text, line)
        return self._message(text, line)

    def follow(self, text: str, line: int) -> bool:
        """Take the row of results under the columns that rocblas-bench or hipblaslt-bench prints."""
        if not self.columns:
            return False
        columns, self.columns = self.columns, []
        found = {name.lower(): value for name, value in zip(columns, text.strip().split(","), strict=False)}
        try:
            m, n, k = (int(found[name]) for name in "mnk")
            batch, us = int(found.get("batch_count", 1)), float(found["us"])
        except (KeyError, ValueError):
            return False
        library = "hipBLASLt" if any(name.startswith("hipblaslt") for name in columns) else "rocBLAS"
        self.log.libraries[library] += 1
        trans = found.get("transa", "") + found.get("transb", "")
        self.log.add(Call(library, "bench", "bench_result", trans, m, n, k, batch), line, ms=us / 1000)
        return True

    def close(self) -> None:
        found = list(self.log.calls.items())
        if any(c.library == "rocBLAS" and c.kind == "gemm" for (c, _), _ in found):
            return
        for (call, phase), tally in found:
            if call.library == "rocBLAS" and call.kind == "backend":
                self.log.calls[(call._replace(kind="gemm", routine="gemm"), phase)] = tally

    def _add(self, call: Call | None, line: int, form: str, times: int = 1) -> str:
        if call is None:
            return "damaged"
        self._heard()
        self.log.add(call, line, form, times)
        return "known"

    def _bench(self, text: str, line: int) -> str:
        match = BENCH.search(text)
        if match is None:
            return "damaged"
        return self._add(bench(match[2]), line, "bench", int(match[1] or 1))

    def _profile(self, text: str, line: int) -> str:
        match = PROFILE.search(text)
        pairs = {p[0]: p[1] or p[2] or p[3] for p in PAIR.findall(match[2])} if match else {}
        if not match or not pairs.get("call_count", "").isdigit():
            return "damaged"
        return self._add(profile(match[1], pairs), line, "profile", int(pairs["call_count"]))

    def _trace(self, text: str, line: int) -> str:
        match = TRACE.match(text)
        if match is None:
            return ""
        routine, fields = match[1], match[2].split(",")
        if routine == "internal":
            return self._internal(fields, line)
        if HOUSEKEEPING.match(routine):
            self._heard()
            return ""
        if ROUTINE.match(routine) is None and not any(map(VALUE.match, fields)):
            return ""
        return self._add(trace(routine, fields), line, "trace")

    def _heard(self) -> None:
        self.log.libraries["rocBLAS"] += 1
        self.log.listening.add("rocBLAS")

    def _internal(self, fields: list[str], line: int) -> str:
        self._heard()
        name = fields[0]
        if not name.endswith("_backend") or len(fields) < 6 or not all(f.isdigit() for f in fields[3:6]):
            return "damaged" if "gemm" in name else "known"
        backend = name.removeprefix("rocblas_gemm_").removesuffix("_backend")
        m, n, k = map(int, fields[3:6])
        if backend == "hipblaslt":
            self.log.sign("rocblas_to_hipblaslt", line)
        if backend == "source":
            self.log.sign("fallback_kernel", line, f"source {m} {n} {k}", kernel="rocblas source kernel", m=m, n=n, k=k)
        self.log.add(Call("rocBLAS", backend, "backend", m=m, n=n, k=k, kernel=f"{backend} back end"), line)
        return "known"

    def _tuned(self, text: str, line: int) -> str:
        match = TUNED.match(text.strip())
        if match is None:
            return "known" if text.startswith("Validator,") else "damaged" if "TunableOp_" in text else ""
        dtype, _, m, n, k, batch, solution, ms = match.groups()
        library = {"Rocblas": "rocBLAS", "Hipblaslt": "hipBLASLt"}.get(
            solution.split("_")[1] if "_" in solution else ""
        )
        kind = Call(
            library or "default", "TunableOp", "tuned_gemm", m=int(m), n=int(n), k=int(k), batch=int(batch or 1),
            dtype=TUNED_DTYPES.get(dtype, dtype), kernel=solution, stage="search",
        )  # fmt: skip
        self.log.add(kind, line, ms=float(ms))
        return "known"

    def _message(self, text: str, line: int) -> str:
        log = self.log
        if match := NO_LIBRARY.search(text):
            log.libraries["rocBLAS"] += 1
            log.sign("no_tensile", line, match[2], arch=match[2], reason=match[1])
            if not text.isascii():
                path = text.split("Cannot read ")[1].split(": ")[0]
                log.sign("non_ascii", line, path[:300], path=path[:300])
            return "known"
        if match := FALLBACK_FILE.search(text):
            log.sign("fallback_kernel", line, match[0], kernel=match[0], m=None, n=None, k=None)
            return "known"
        if match := LIBRARY_FILE.search(text):
            log.sign("tensile_file", line, match[1], arch=match[1])
            return "known"
        if "Could not initialize Tensile" in text:
            log.sign("tensile_failed", line)
            return "known"
        if "falling back to tensile" in text.lower():  # hipBLASLt had no solution; rocBLAS does the work
            log.libraries["rocBLAS"] += 1
            return "known"
        if text.lstrip().startswith(("rocBLAS error", "rocBLAS warning")):
            log.libraries["rocBLAS"] += 1
            log.sign("library_error", line, f"rocBLAS {text[:200]}", library="rocBLAS", text=text.strip()[:200])
            return "known"
        known = ("List of available TensileLibrary", "regex_error(")
        return "known" if any(one in text for one in known) else ""


@functools.lru_cache(maxsize=8192)
def bench(options: str) -> Call | None:
    """Return the call of one bench line's options; None when it was cut before its shape and types were complete."""
    pairs = option_pairs(options)
    if pairs is None or "f" not in pairs:
        return None
    routine = pairs["f"]
    if "gemm" not in routine:
        return _other(routine, pairs)
    dtype = DTYPES.get(pairs.get("a_type") or pairs.get("r") or "")
    compute = DTYPES.get(pairs.get("compute_type", ""), "")
    if dtype is None or ("_ex" in routine and not compute):
        return None
    return _gemm(routine, pairs, dtype, compute, pairs.get("transposeA", "") + pairs.get("transposeB", ""))


def profile(routine: str, pairs: dict[str, str]) -> Call | None:
    """Return the call of one profile entry."""
    found = ROUTINE.match(routine)
    if found is None or "gemv" in routine:
        return _other(routine, pairs)
    dtype = DTYPES.get(pairs.get("a_type", "")) or LETTERS.get(found[1] or "", "")
    pairs = {**pairs, **{x: pairs[x.upper()] for x in "mnk" if x.upper() in pairs}}
    compute = DTYPES.get(pairs.get("compute_type", ""), "")
    return _gemm(found[2], pairs, dtype, compute, pairs.get("transA", "") + pairs.get("transB", ""))


def trace(routine: str, fields: list[str]) -> Call | None:
    """Return the call of one trace line: its fields stand in the order of the function's arguments."""
    found = ROUTINE.match(routine)
    if found is None:
        return _other(routine, {})
    if "gemv" in routine:
        return _gemv(found[2], fields[0], fields[1:3], LETTERS.get(found[1] or "", ""))
    if len(fields) < 12:
        return None
    pairs = dict(zip(("m", "n", "k"), fields[2:5], strict=False))
    types = [f for f in fields if f in DTYPES]
    if "_ex" in routine and len(types) < 5:
        return None
    if "batched" in routine:
        # The count stands before the compute type, which is the last type, or before the closing word.
        last = max((i for i, f in enumerate(fields) if f in DTYPES), default=len(fields) - 1)
        pairs["batch_count"] = fields[last - 1]
    dtype = types[0] if types else ""
    compute = DTYPES[types[-1]] if "_ex" in routine else ""
    return _gemm(found[2], pairs, DTYPES.get(dtype) or LETTERS.get(found[1] or "", ""), compute, fields[0] + fields[1])


def _gemm(routine: str, pairs: dict[str, str], dtype: str, compute: str, trans: str) -> Call | None:
    try:
        m, n, k = (int(pairs[name]) for name in "mnk")
        batch = int(pairs.get("batch_count", 1))
    except (KeyError, ValueError):
        return None
    return Call("rocBLAS", routine, "gemm", trans, m, n, k, batch, dtype, compute)


def _gemv(routine: str, trans: str, dims: list[str], dtype: str) -> Call | None:
    """A matrix times one vector is a GEMM with n = 1; rocBLAS gives rows and columns of the matrix as stored."""
    try:
        rows, columns = (int(d) for d in dims)
    except ValueError:
        return None
    m, k = (rows, columns) if trans == "N" else (columns, rows)
    return Call("rocBLAS", routine, "gemm", trans + "N", m, 1, k, 1, dtype)


def _other(routine: str, pairs: dict[str, str]) -> Call | None:
    if "gemv" in routine:
        trans = pairs.get("transposeA") or pairs.get("transA") or "N"
        dims = [pairs.get("m") or pairs.get("M") or "", pairs.get("n") or pairs.get("N") or ""]
        return _gemv(routine, trans, dims, DTYPES.get(pairs.get("r") or pairs.get("a_type") or "", ""))
    return Call("rocBLAS", routine, "blas")
