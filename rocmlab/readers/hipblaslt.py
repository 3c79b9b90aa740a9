"""hipBLASLt's log, and the record form that it shares with cuBLASLt.

HIPBLASLT_LOG_MASK is a sum of 1 error, 2 trace, 4 hints, 8 info, 16 API, 32 bench. Records look like
`[time][HIPBLASLT][pid][Trace][function] key=value ...`; the pid is missing on Windows, and older cuBLASLt has no time.
"""

from __future__ import annotations

import functools
import re

from rocmlab.libraries import DTYPES, Call, Log
from rocmlab.readers.miopen import GFX, option_pairs

MARKS = ("--api_method", "HIPBLASLT]", "hipblaslt", "[cublasLt]", "hipBLASLt", "Enum not found!")

RECORD = re.compile(r"(?:\[[^\[\]]*\])?\[(HIPBLASLT|cublasLt)\](?:\[(\d+)\])?\[(\w+)\]\[(\w+)\]\s?(.*)$")
BENCH = re.compile(r"(?:^|\s)(\d+\s+)?\S*?hipblaslt-bench(?:\.exe)?\s+(.*)$")
LAYOUT = re.compile(r"\b([ABCD])(?:desc)?=\[type=(\w+) rows=(\d+) cols=(\d+) ld=-?\d+([^\]]*)\]")
BATCH = re.compile(r"batch(?:Count|_count)?=(\d+)")
TRANS = re.compile(r"trans([abAB])=OP_(\w)")
COMPUTE = re.compile(r"computeType=(\w+)")
ALGO = re.compile(r"algo=\[algoId=(\d+)(?: tile=(?:MATMUL_TILE_)?(\w+))?(?: stages=(?:MATMUL_STAGES_)?(\w+))?([^\]]*)")
SPLIT = re.compile(r"numSplitsK=(\d+)")
NO_PATHS = re.compile(rf"No paths matched (\S+?)\.? Make sure|Enum not found! ({GFX})")
MATMUL = re.compile(r"(?:rocblaslt_matmul(?!_(?:desc|algo|preference))\w*|hipblasLtMatmul|cublasLt(\w*)Matmul)$")
LIBRARIES = {"HIPBLASLT": "hipBLASLt", "cublasLt": "cuBLASLt"}


class Parser:
    """Reads hipBLASLt and cuBLASLt lines. A trace record may go on over indented lines, so the last one is held."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.held: tuple[str, str, str, int] | None = None
        self.api: dict[tuple[str, str], tuple[int, int]] = {}  # (library, function): (calls, first line)

    def feed(self, text: str, line: int) -> str:
        """Return "known", "damaged", or "" for a line of another library."""
        match = RECORD.search(text)
        if match:
            damaged = self._release()
            return "damaged" if damaged else self._record(match, line)
        if "hipblaslt-bench" in text:
            return self._bench(text, line)
        if "--api_method" in text:
            return "damaged"  # the beginning of the line is lost
        if match := NO_PATHS.search(text):
            self.log.libraries["hipBLASLt"] += 1
            self.log.sign(
                "hipblaslt_missing", line, match[0], what=match[2] or (match[1] or "").replace("\\", "/").split("/")[-1]
            )
            return "known"
        if "HIPBLASLT]" in text or "[cublasLt]" in text:
            return "damaged"
        if "on an unsupported architecture" in text or "Overriding blas backend to hipblas" in text:
            self.log.sign("hipblaslt_unsupported", line)
            return "message"
        if "hipBlasLT failed, falling back" in text or text.lstrip().startswith("rocblaslt"):
            self.log.libraries["hipBLASLt"] += 1
            return "known"
        return ""

    def follow(self, text: str) -> bool:
        """Take a line that continues the held trace record."""
        if self.held is None or not text.startswith((" ", "\t")):
            return False
        library, function, body, line = self.held
        if len(body) > 4000:
            return False
        self.held = (library, function, f"{body} {text.strip()}", line)
        return True

    def close(self) -> bool:
        """Finish; return True when the last record was cut."""
        damaged = self._release()
        shown = {c.library for c, _ in self.log.calls if c.kind == "gemm"}
        for (library, function), (count, line) in self.api.items():
            if library not in shown:  # the public function calls the inner one: two forms of one product
                self.log.add(Call(library, "matmul", "gemm"), line, f"api {function}", count)
        return damaged

    def _record(self, match: re.Match[str], line: int) -> str:
        library, _, level, function, body = match.groups()
        name = LIBRARIES[library]
        self.log.libraries[name] += 1
        self.log.listening.add(name)
        if level == "Error":
            self.log.sign("library_error", line, f"{name} {body[:200]}", library=name, text=body[:200])
        if not MATMUL.match(function):
            return "known"
        if level.lower() == "trace":
            call = matmul(name, function, body) if library == "cublasLt" else None
            if call is None:
                self.held = (name, function, body, line)
            elif not self.log.inner(call):
                self.log.add(call, line, "trace")
        elif level.lower() == "api":
            count, first = self.api.get((name, function), (0, line))
            self.api[(name, function)] = (count + 1, first)
        return "known"

    def _release(self) -> bool:
        """Turn the held record into a call; return True when it cannot be one."""
        if self.held is None:
            return False
        library, function, body, line = self.held
        self.held = None
        call = matmul(library, function, body)
        if call is None:
            return True
        self.log.add(call, line, "trace")
        return False

    def _bench(self, text: str, line: int) -> str:
        match = BENCH.search(text)
        call = bench(match[2]) if match else None
        if call is None or match is None:
            return "damaged"
        self.log.libraries["hipBLASLt"] += 1
        self.log.listening.add("hipBLASLt")
        self.log.add(call, line, "bench", int(match[1] or 1))
        return "known"


@functools.lru_cache(maxsize=8192)
def bench(options: str) -> Call | None:
    """Return the call of one bench line; None when it was cut before its shape and types were complete."""
    pairs = option_pairs(options)
    if pairs is None:
        return None
    dtype, compute = DTYPES.get(pairs.get("a_type", "")), DTYPES.get(pairs.get("compute_type", ""))
    try:
        m, n, k = (int(pairs[name]) for name in "mnk")
        batch = int(pairs.get("batch_count") or 1)
    except (KeyError, ValueError):
        return None
    if dtype is None or compute is None:
        return None
    trans = pairs.get("transA", "") + pairs.get("transB", "")
    return Call("hipBLASLt", "matmul", "gemm", trans, m, n, k, batch, dtype, compute)


def matmul(library: str, function: str, body: str) -> Call | None:
    """Return the call of one trace record: m and n are those of D, k is the inner side of A."""
    layouts = {name: (dtype, int(rows), int(cols), rest) for name, dtype, rows, cols, rest in LAYOUT.findall(body)}
    if "A" not in layouts or "B" not in layouts or not ({"C", "D"} & layouts.keys()):
        return None
    trans = {side.upper(): letter for side, letter in TRANS.findall(body)}
    dtype, rows, cols, rest = layouts["A"]
    out = layouts.get("D") or layouts["C"]
    compute = COMPUTE.search(body)
    batch = BATCH.search(rest)
    inner = MATMUL.match(function)
    routine = f"inner {function}" if inner and inner[1] else "matmul"
    return Call(
        library, routine, "gemm", trans.get("A", "N") + trans.get("B", "N"), out[1], out[2],
        rows if trans.get("A", "N") != "N" else cols, int(batch[1]) if batch else 1, DTYPES.get(dtype, dtype),
        DTYPES.get(compute[1], compute[1]) if compute else "",
        _algorithm(body),
    )  # fmt: skip


def _algorithm(body: str) -> str:
    """Return cuBLASLt's algorithm, its tile and stages, and into how many parts it cuts k, where it does."""
    match = ALGO.search(body)
    if match is None:
        return ""
    split = SPLIT.search(match[4])
    named = zip(("algo", "tile", "stages", "split-k"), (*match.groups()[:3], split and split[1]), strict=True)
    return " ".join(f"{name} {value}" for name, value in named if value)
