"""MIOpen's log: driver commands, solver choice, run-time compilation, databases.

Switched on by MIOPEN_ENABLE_LOGGING_CMD (one driver command an operation), MIOPEN_LOG_LEVEL (5 info to 7 trace) and
MIOPEN_ENABLE_LOGGING (API calls with their arguments). Releases print "MIOpen(HIP): ", newer builds "MIOpen: ".
"""

from __future__ import annotations

import functools
import re

from rocmlab.libraries import Call, Log

MARKS = (
    "[LogCmd",
    "MIOpenDriver",
    "MIOpen(HIP)",
    "MIOpen: ",
    "MIOpen Error:",
    "hiprtc",
    "HIPRTC_ERROR",
    "' file not found",
    "when compiling for gfx",
)
STARTS = ("MIOpen(HIP)", "MIOpen: ", "MIOpen Error:")

GFX = r"gfx(?:\d{1,2}(?:-\d)?-generic|[0-9a-f]{3,5})(?::[a-z]+[+-])*(?![0-9a-z-])"
LINE = re.compile(r"MIOpen(?:\(HIP\))?\s*[\d.]*: (Fatal|Error|Warning|Info|Info2|Trace|Command) \[([^\]]*)\]\s?(.*)$")
THROWN = re.compile(r"MIOpen Error: (.*?):(\d+): (.*)$")
API = re.compile(r"MIOpen(?:\(HIP\))?\s*[\d.]*: miopenStatus_t (miopen\w+)\(")
DRIVER = re.compile(r"MIOpenDriver(?:\.exe)?\s+(\S+)\s*(.*)$")
WORD = re.compile(r"(.*?)(bfp16|fp16|fp64|int8|fp8|bfp8)?$")
WORKSPACE = re.compile(r"Solver <([^>]+)>, workspace required: (\d+), provided ptr: \S+ size: (\d+)")
HEADER = re.compile(r"fatal error: '([^']+)' file not found")
COMPILED_FOR = re.compile(rf"when compiling for ({GFX})")
SOURCE = re.compile(r"([\w.+-]+\.(?:cpp|cl|hpp|s|mlir)): HIPRTC_ERROR|[sS]ource(?: file)?: ([\w.+-]+\.\w+)")
CHOSEN = re.compile(r"(?:FW|BW|BD|WRW?|BWrW|Bwd|Wrw|\w+) Chosen Algorithm: ([\w<>, :]+?) , (\d+), ([\d.eE+-]+)")
CANDIDATE = re.compile(r"id: \d+, algo: -?\d+, time: ([\d.eE+-]+), ws: \d+, name: (\w+)")
AVAILABLE = re.compile(r"maxSolutionCount = \d+, available = (\d+)")
RUN_KERNEL = re.compile(r"kernel_name = ([^,]+),")
UNREADABLE = re.compile(r"Unable to load file: ([^)]*)|Caught exception: \(([^)]*)\), passing empty solver")
KDB = re.compile(rf"Missing system database file: (({GFX})?\S*)")
DATABASE = re.compile(r"(?:Cannot|Unable to|Failed to) (?:open|create|load|write)\b[^:]*:\s*(.+)$")
RAW_NAME = re.compile(rf"Raw device name: ({GFX})")

KINDS = {
    "conv": "convolution", "bnorm": "batch_norm", "rnn": "rnn", "pool": "pooling", "activ": "activation",
    "softmax": "softmax", "CBAInfer": "fusion",
}  # fmt: skip
DTYPES = {"": "float32", "fp16": "float16", "bfp16": "bfloat16", "fp64": "float64", "int8": "int8"}
# Options without which a command was cut: what the shape needs, and the last one that MIOpen always writes.
NEEDED = {
    "convolution": ("n", "c", "H", "W", "k", "y", "x", "p", "q", "u", "v", "l", "j", "g", "F"),
    "batch_norm": ("n", "c", "H", "W", "m", "forw"),
    "rnn": ("n", "W", "H", "l", "m", "F"),
}
# What of the options is not shape: direction, timing, solver, mode of the driver.
NOT_SHAPE = {"F", "t", "S", "V", "w", "forw", "b", "r", "s", "i"}


class Parser:
    """Reads MIOpen lines into a log. Candidates of the fallback come as a block of lines, so it remembers one block."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.block: list[tuple[float, str, int]] = []
        self.expected = 0
        self.in_api = False

    def feed(self, text: str, line: int) -> str:
        """Return "known", "damaged", or "" for a line that is not MIOpen's."""
        at = text.find("MIOpen")
        if at >= 0 and text.startswith(STARTS, at):
            self.log.libraries["MIOpen"] += 1
            return self._own(text[at:], line)
        if "[LogCmd" in text or "MIOpenDriver" in text:
            return "damaged"  # the beginning of the line is lost
        return self._compiler(text, line)

    def follow(self, text: str) -> bool:
        """Take the argument lines of an API call (MIOPEN_ENABLE_LOGGING), up to its closing brace."""
        if not self.in_api:
            return False
        self.in_api = text.strip() != "}"
        return not self.in_api or text.startswith("\t") or " = " in text

    def close(self) -> None:
        self._choose()

    def _own(self, text: str, line: int) -> str:
        match = LINE.match(text)
        if match is None:
            return self._other_form(text, line)
        level, function, rest = match.groups()
        if function != "GetSolutionsFallback":
            self._choose()
        if level == "Command":
            return self._command(function, rest, line)
        self._text(level, function, rest, line)
        return "known"

    def _other_form(self, text: str, line: int) -> str:
        thrown = THROWN.match(text)
        if thrown:
            self._failure(thrown[3], line, "thrown")
            return "known"
        api = API.match(text)
        if api:
            self.in_api = True
            self.log.add(Call("MIOpen", api[1], "api"), line)
            return "known"
        if text.startswith("MIOpen Error:"):
            self._failure(text.removeprefix("MIOpen Error:").strip(" ."), line, "thrown")
            return "known"
        return "damaged"

    def _command(self, function: str, rest: str, line: int) -> str:
        call = command(rest, function.startswith("LogCmdFind"))
        if call is None:
            return "damaged"
        self.log.add(call, line)
        return "known"

    def _text(self, level: str, function: str, rest: str, line: int) -> None:
        log = self.log
        if function == "IsEnoughWorkspace" and (match := WORKSPACE.search(rest)):
            log.sign("workspace", line, f"{match[1]} {int(match[3]) > 0}", solver=match[1], some=int(match[3]) > 0)
        elif function == "GetSolutionsFallback":
            self._fallback(rest, line)
        elif match := CHOSEN.search(rest):
            self._solver(match[1].strip(), line, float(match[3]))
        elif function == "run" and (match := RUN_KERNEL.search(rest)):
            self._solver(match[1].strip(), line, None)
        elif function == "CallGemm":
            log.add(Call("MIOpen", "CallGemm", "convolution_gemm", kernel=rest.strip()), line)
        elif function == "SearchForSolutions" and rest.endswith("Success."):
            log.add(Call("MIOpen", function, "solver", kernel=rest.split(":")[0], stage="search"), line)
        elif match := RAW_NAME.search(rest):
            log.arch = match[1]
        elif "MIOPEN_FIND_MODE = DYNAMIC_HYBRID" in rest:
            log.sign("find_mode", line)
        else:
            self._databases(rest, line)
            if level in ("Error", "Fatal") or function in ("Compile", "BuildHip"):
                self._failure(rest, line, function)

    def _databases(self, rest: str, line: int) -> None:
        if match := KDB.search(rest):
            self.log.sign("kernel_db", line, match[1], arch=match[2] or "", file=match[1])
        elif "Database directory does not exist" in rest or "database not present" in rest:
            self.log.sign("kernel_db", line, "none", arch="", file="")

    def _fallback(self, rest: str, line: int) -> None:
        if match := UNREADABLE.search(rest):
            self.log.sign("heuristics", line, file=_last(match[1] or match[2]))
            self._path(rest, line)
        elif match := AVAILABLE.search(rest):
            self._choose()
            self.expected = int(match[1])
        elif match := CANDIDATE.search(rest):
            if len(self.block) >= self.expected > 0:
                self._choose()
            self.block.append((_float(match[1]), match[2], line))

    def _choose(self) -> None:
        if self.block:
            _, solver, line = min(self.block)
            self._solver(solver, line, None)
        self.block, self.expected = [], 0

    def _solver(self, name: str, line: int, ms: float | None) -> None:
        stage = "search" if ms is not None else "run"
        self.log.add(Call("MIOpen", "solver", "solver", kernel=name, stage=stage), line, ms=ms)
        if name.startswith("ConvDirectNaive") or "naive_conv" in name:
            self.log.sign("naive", line, name, solver=name)

    def _failure(self, rest: str, line: int, form: str) -> None:
        match = SOURCE.search(rest)
        if match and ("HIPRTC" in rest or "build failed" in rest):
            self.log.sign("compile_failed", line, f"{form} {match[1] or match[2]}", source=match[1] or match[2])
        elif form != "BuildHip" and "HIPRTC" not in rest:
            self.log.sign("library_error", line, f"MIOpen {rest[:200]}", library="MIOpen", text=rest[:200])
        self._path(rest, line)
        self._compiler(rest, line)

    def _path(self, rest: str, line: int) -> None:
        match = DATABASE.search(rest) or UNREADABLE.search(rest)
        if match and match[1] and not match[1].isascii():
            self.log.sign("non_ascii", line, match[1][:300], path=match[1][:300])

    def _compiler(self, text: str, line: int) -> str:
        """Take the compiler's own lines, which follow a failure without any prefix."""
        if header := HEADER.search(text):
            self.log.sign("header", line, header[1], header=header[1])
            path = text[: header.start()]
            if not path.isascii():
                self.log.sign("non_ascii", line, path.strip()[:300], path=path.strip()[:300])
            return "known"
        if arch := COMPILED_FOR.search(text):
            self.log.sign("compiled_for", line, arch[1], arch=arch[1])
            return "known"
        return ""


@functools.lru_cache(maxsize=4096)
def command(rest: str, search: bool) -> Call | None:
    """Return the call of one driver command, None when the command was cut."""
    match = DRIVER.search(rest)
    if match is None:
        return None
    base, suffix = WORD.match(match[1]).groups()  # type: ignore[union-attr]
    kind = KINDS.get(base, base or match[1])
    options = option_pairs(match[2])
    if options is None or any(name not in options for name in NEEDED.get(kind, ())):
        return None
    if kind in NEEDED and not all(_number(options[name]) for name in NEEDED[kind] if name != "m"):
        return None
    shape = " ".join(f"{k}={v}" for k, v in options.items() if k not in NOT_SHAPE)
    routine = "LogCmdFind" if search else match[1]
    return Call(
        "MIOpen",
        routine,
        kind,
        shape,
        dtype=DTYPES.get(suffix or "", ""),
        kernel="",
        stage="search" if search else "run",
    )


def option_pairs(text: str) -> dict[str, str] | None:
    """Return {option: value} of a driver or bench command; None when the last option lost its value to a cut."""
    pairs: dict[str, str] = {}
    words = text.split()
    at = 0
    while at < len(words):
        name = words[at].lstrip("-")
        if not words[at].startswith("-") or not name:
            at += 1
            continue
        if at + 1 < len(words) and not _is_option(words[at + 1]):
            pairs[name] = words[at + 1]
            at += 2
        else:
            if at + 1 == len(words) and len(name) == 1:
                return None
            pairs[name] = ""
            at += 1
    return pairs


def _last(path: str) -> str:
    return path.replace("\\", "/").split("/")[-1]


def _is_option(word: str) -> bool:
    return word.startswith("-") and not _number(word)


def _number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("inf")
